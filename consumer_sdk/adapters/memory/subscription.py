"""A subscription of the in-memory broker: one cursor for each partition, all of one kind."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from consumer_sdk.adapters.memory.cursor import Cursor, CursorKind
from consumer_sdk.adapters.memory.log import PartitionLog
from consumer_sdk.records import Partition

__all__ = ["Subscription"]


class Subscription:
    """What a group has settled, record by record.

    Args:
        kind: who gets a record.
        keeps_indexes: see `Cursor`.

    Attributes:
        watchers: called with the partition and position of each ack that is applied.
    """

    def __init__(self, kind: CursorKind, keeps_indexes: bool) -> None:  # noqa: FBT001 - one call
        self.kind = kind
        self.keeps_indexes = keeps_indexes
        self.watchers: list[Callable[[Partition, int], None]] = []
        self._cursors: dict[Partition, Cursor] = {}

    def cursor(self, partition: Partition, log: PartitionLog) -> Cursor:
        """The place in a partition, from its earliest record if it is new."""
        if partition not in self._cursors:
            self._cursors[partition] = Cursor(
                log,
                self.kind,
                keeps_indexes=self.keeps_indexes,
                acked=partial(self._acked, partition),
            )
        return self._cursors[partition]

    def _acked(self, partition: Partition, position: int) -> None:
        for watcher in self.watchers:
            watcher(partition, position)

    def is_settled(self, partition: Partition, position: int) -> bool:
        """The record is not sent again."""
        cursor = self._cursors.get(partition)
        return cursor is not None and cursor.is_settled(position)

    def backlog(self, stream: str) -> int:
        """Records of a stream that are not settled, in partitions that were ever read."""
        return sum(c.backlog for p, c in self._cursors.items() if p.stream == stream)

    def forget_stream(self, stream: str) -> None:
        """The stream was deleted."""
        self._cursors = {p: c for p, c in self._cursors.items() if p.stream != stream}
