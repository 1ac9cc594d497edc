"""A delivery of a producer's batch, which is one entry of the ledger, and ids that ack a part of it.

An id that acks a part has a bit set of the whole batch. The client makes such an id for each of its messages,
and sends each: if a thousand messages of a batch are settled together, a thousand ids with the same bit set go
to the broker. It counts each of them, so that its number of unacked messages falls far below zero, and its limits
for that never hold. Here all messages but the last are only marked in the client's bit set, and the last is
sent (`Subscriber.ack`).

The bit set is a new one for each flush. An entry may come again while its first delivery is acked:
1. messages of the first delivery share one bit set of the client, those of the second another one;
2. a flush settles some of both, and nobody can tell which message has which bit set;
3. what is marked in one of them would not be in the id that is sent, which has the other one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import _pulsar

__all__ = ["Entry"]

EMPTY = b"\x00\x00\x00\x02\x18\x00"
"""A message of a batch: the length of its metadata, and those: a payload of no bytes."""


class Entry:
    """One delivery of a producer's batch; all of its messages have it as their handle.

    Attributes:
        ledger, entry: where it is.
        size: messages in the batch, whether they were delivered or not.
    """

    __slots__ = ("_settled", "entry", "ledger", "size")

    def __init__(self, ledger: int, entry: int, size: int) -> None:
        self.ledger = ledger
        self.entry = entry
        self.size = size
        self._settled: bytearray | None = None

    def is_settled_by(self, indexes: Sequence[int]) -> bool:
        """Whether each message of the batch is settled, with these indexes, which are distinct."""
        if len(indexes) == self.size:
            return True
        if self._settled is None:
            self._settled = bytearray(self.size)
        for index in indexes:
            self._settled[index] = 1
        return self._settled.count(1) == self.size

    @property
    def whole(self) -> Any:
        """The id that acks the whole entry."""
        return _pulsar.MessageId(-1, self.ledger, self.entry, -1)

    def parts(self, indexes: Sequence[int]) -> list[Any]:
        """The client's messages with these indexes. They share a new bit set, in which none is acked yet."""
        batch = _pulsar.MessageBatch().with_message_id(self.whole)
        messages = batch.parse_from(EMPTY * self.size, self.size).messages()
        return [messages[index] for index in indexes]
