"""Where micro-batches and batch queries begin and end."""
