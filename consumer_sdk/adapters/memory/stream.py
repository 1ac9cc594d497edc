"""A stream of the in-memory broker."""

from __future__ import annotations

import zlib

from consumer_sdk.adapters.memory.log import PartitionLog
from consumer_sdk.records import Partition

__all__ = ["Stream"]


class Stream:
    """A named set of partitions; ``identity`` tells it from one of the same name made later."""

    def __init__(self, name: str, partitions: int, identity: str) -> None:
        self.name = name
        self.identity = identity
        self.logs = [PartitionLog() for _ in range(partitions)]
        self._next_unkeyed = 0

    def partitions(self) -> list[Partition]:
        """What a consumer can hold."""
        return [Partition(self.name, str(number)) for number in range(len(self.logs))]

    def choose(self, key: bytes | None) -> int:
        """The number of a record's partition; records without a key take turns."""
        if key is None:
            self._next_unkeyed += 1
            return (self._next_unkeyed - 1) % len(self.logs)
        return zlib.crc32(key) % len(self.logs)
