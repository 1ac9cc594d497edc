"""The shards of one consumer: found, leased, read."""
