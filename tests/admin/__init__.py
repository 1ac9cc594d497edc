"""Admin servers, and the page in a browser."""
