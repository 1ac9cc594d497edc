"""Damaged input for every decoder: a value, or the typed error, and nothing else."""
