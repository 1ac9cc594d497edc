"""``kill -9`` of everything that a Spark query consists of, while its topic goes on growing."""
