"""The trackers beside the structures that others use: no broker, no event loop."""
