"""The topic partitions of one consumer: received, buffered, acked."""
