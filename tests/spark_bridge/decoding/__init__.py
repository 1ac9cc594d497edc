"""Values that are decoded, or rejected."""
