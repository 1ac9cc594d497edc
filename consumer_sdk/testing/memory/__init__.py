"""Fakes in this process's memory, with faults at every seam: a broker, a store, dead letters.

The broker has groups, subscriptions and queues, so that a consumer meets what Kafka and Pulsar do to
it. ``memory://`` opens its adapter. The rest of the package imports nothing from here: the packages
of adapters, stores and dead letters get these classes by name when they are asked for.
"""

from consumer_sdk.testing.memory.adapter import MemoryAdapter
from consumer_sdk.testing.memory.broker import MemoryBroker
from consumer_sdk.testing.memory.dead_letters import MemoryDeadLetters
from consumer_sdk.testing.memory.log import StoredRecord
from consumer_sdk.testing.memory.store import MemoryStore
from consumer_sdk.testing.memory.transactions import MemoryTransactions

__all__ = [
    "MemoryAdapter",
    "MemoryBroker",
    "MemoryDeadLetters",
    "MemoryStore",
    "MemoryTransactions",
    "StoredRecord",
]
