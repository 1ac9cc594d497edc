"""The fetch path of groups: sessions with leaders, cursors, and what was fetched for them."""
