"""A query's rejected rows as dead letters."""
