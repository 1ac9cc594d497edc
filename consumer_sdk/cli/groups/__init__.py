"""Commands on the positions of groups."""
