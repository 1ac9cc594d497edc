"""The native client and the broker's REST API."""
