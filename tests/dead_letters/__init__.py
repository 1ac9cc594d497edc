"""Where records go that were given up."""
