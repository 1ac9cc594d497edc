"""A running consumer in a terminal."""
