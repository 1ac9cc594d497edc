"""``top``: a running consumer in a terminal, as its admin server shows it."""
