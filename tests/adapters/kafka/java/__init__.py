"""Members of a group that are Java's own consumer."""
