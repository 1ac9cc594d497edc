"""The in-memory broker and its adapter: partitions, groups, rebalances and faults, no server."""

from consumer_sdk.adapters.memory.adapter import MemoryAdapter
from consumer_sdk.adapters.memory.broker import MemoryBroker, Seam
from consumer_sdk.adapters.memory.log import StoredRecord

__all__ = ["MemoryAdapter", "MemoryBroker", "Seam", "StoredRecord"]
