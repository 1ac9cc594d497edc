"""Commits of a group: what they carry, who may make them, and what is read back."""
