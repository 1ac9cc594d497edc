"""The in-memory broker and its adapter: groups, subscriptions, queues and faults, no server."""

from consumer_sdk.adapters.memory.adapter import MemoryAdapter
from consumer_sdk.adapters.memory.broker import MemoryBroker
from consumer_sdk.adapters.memory.calls import Seam
from consumer_sdk.adapters.memory.log import StoredRecord

__all__ = ["MemoryAdapter", "MemoryBroker", "Seam", "StoredRecord"]
