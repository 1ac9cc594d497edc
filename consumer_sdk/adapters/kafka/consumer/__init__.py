"""The partitions of one consumer: assigned, fetched, revoked."""
