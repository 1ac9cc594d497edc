"""Commits of a group: the request, the checkpoint in its metadata, and the limit of the metadata."""
