"""Checkpoints out of one store and into another, and from Storm and KCL."""
