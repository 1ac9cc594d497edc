"""Checkpoint stores. All implement one contract, `consumer_sdk.abc.CheckpointStore`: durable and fenced.

Importing this package imports no client: each store comes with its own module. The store in memory
is in `consumer_sdk.testing.memory`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer_sdk.lazy import lazy_names

if TYPE_CHECKING:
    from consumer_sdk.stores.exchange.exchange import (
        Imported,
        ImportRefusedError,
        export_checkpoints,
        import_checkpoints,
    )
    from consumer_sdk.stores.exchange.kcl import read_kcl_leases
    from consumer_sdk.stores.exchange.legacy import read_kinesis_spout, read_storm_kafka
    from consumer_sdk.stores.exchange.lines import CheckpointFile, Entry, Found
    from consumer_sdk.stores.sqlite.store import LocalStore
    from consumer_sdk.stores.urls import store_from_url
    from consumer_sdk.stores.zookeeper.store import ZooKeeperStore
    from consumer_sdk.testing.memory import MemoryStore

__all__ = [
    "CheckpointFile",
    "Entry",
    "Found",
    "ImportRefusedError",
    "Imported",
    "LocalStore",
    "MemoryStore",
    "ZooKeeperStore",
    "export_checkpoints",
    "import_checkpoints",
    "read_kcl_leases",
    "read_kinesis_spout",
    "read_storm_kafka",
    "store_from_url",
]

__getattr__ = lazy_names(
    __name__,
    {
        "CheckpointFile": "consumer_sdk.stores.exchange.lines",
        "Entry": "consumer_sdk.stores.exchange.lines",
        "Found": "consumer_sdk.stores.exchange.lines",
        "ImportRefusedError": "consumer_sdk.stores.exchange.exchange",
        "Imported": "consumer_sdk.stores.exchange.exchange",
        "LocalStore": "consumer_sdk.stores.sqlite.store",
        "MemoryStore": "consumer_sdk.testing.memory",
        "ZooKeeperStore": "consumer_sdk.stores.zookeeper.store",
        "export_checkpoints": "consumer_sdk.stores.exchange.exchange",
        "import_checkpoints": "consumer_sdk.stores.exchange.exchange",
        "read_kcl_leases": "consumer_sdk.stores.exchange.kcl",
        "read_kinesis_spout": "consumer_sdk.stores.exchange.legacy",
        "read_storm_kafka": "consumer_sdk.stores.exchange.legacy",
        "store_from_url": "consumer_sdk.stores.urls",
    },
)
