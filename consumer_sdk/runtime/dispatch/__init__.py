"""Hands records out: lanes and workers for `run`, a queue for pulls."""
