"""Checkpoints as text, as bytes and as rows; the positions in them."""
