"""What a consumer reports about itself: logs, events, health, counts, snapshots."""
