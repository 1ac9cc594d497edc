"""A producer's batch, which is one entry of the ledger: one delivery of it, and ids that ack a part.

The broker hears of a part as a bit set of the whole batch, in one id. The client makes such ids of
its own messages, and sends one for each of them: of a thousand that are settled together, each says
what all of them say. The broker counts each, so that its number of unacked messages falls far below
zero and its limits for that never hold. Here a message of the batch is marked in the client's bit
set, and only the last one is sent (`Subscriber.ack`); the bit set is a new one for each flush, since
nobody can tell which messages of an entry that came twice share the client's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import _pulsar

__all__ = ["Entry"]

EMPTY = b"\x00\x00\x00\x02\x18\x00"
"""A message of a batch: the length of its metadata, and those: a payload of no bytes."""


class Entry:
    """One delivery of a producer's batch, for all of its messages.

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
        """With these, distinct ones, each message of the batch is settled."""
        if len(indexes) == self.size:
            return True
        if self._settled is None:
            self._settled = bytearray(self.size)
        for index in indexes:
            self._settled[index] = 1
        return self._settled.count(1) == self.size

    @property
    def whole(self) -> Any:
        """The id that acks all of it."""
        return _pulsar.MessageId(-1, self.ledger, self.entry, -1)

    def parts(self, indexes: Sequence[int]) -> list[Any]:
        """Messages of the client with these indexes; they share a bit set, in which none is acked."""
        batch = _pulsar.MessageBatch().with_message_id(self.whole)
        messages = batch.parse_from(EMPTY * self.size, self.size).messages()
        return [messages[index] for index in indexes]
