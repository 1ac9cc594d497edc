"""Finds, leases and reads the shards of one consumer."""
