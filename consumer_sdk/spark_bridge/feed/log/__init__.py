"""What a feed directory holds: segments, and the numbered manifests that name them."""
