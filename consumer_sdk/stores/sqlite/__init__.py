"""Checkpoints and leases in a SQLite file."""
