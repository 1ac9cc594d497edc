"""Where an assignment starts."""
