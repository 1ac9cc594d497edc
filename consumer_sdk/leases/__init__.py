"""Leases: who may read which partition, agreed on through a store."""
