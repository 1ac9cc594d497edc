"""What a consumer tells of itself: logs, events, health, counts, snapshots."""
