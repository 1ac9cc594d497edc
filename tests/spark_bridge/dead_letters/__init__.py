"""Rows as dead letters."""
