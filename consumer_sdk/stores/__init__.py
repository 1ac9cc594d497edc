"""Where checkpoints live: durable, fenced, one contract (`consumer_sdk.abc.CheckpointStore`).

Importing this package imports no client: each store comes with its own module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer_sdk.lazy import lazy_names
from consumer_sdk.stores.memory import MemoryStore

if TYPE_CHECKING:
    from consumer_sdk.stores.local import LocalStore
    from consumer_sdk.stores.zookeeper import ZooKeeperStore

__all__ = ["LocalStore", "MemoryStore", "ZooKeeperStore"]

__getattr__ = lazy_names(
    __name__,
    {
        "LocalStore": "consumer_sdk.stores.local",
        "ZooKeeperStore": "consumer_sdk.stores.zookeeper",
    },
)
