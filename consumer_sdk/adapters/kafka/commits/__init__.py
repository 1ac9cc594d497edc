"""What a commit of a group says: its request, the checkpoint in its metadata, and how large that may be."""
