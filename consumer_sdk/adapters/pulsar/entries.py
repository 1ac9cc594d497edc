"""Which ids to ack: one for each entry of which all messages are settled, else one for each message.

Acking a message of a batch costs microseconds in the client and a bit set of its whole batch on the
wire. An id that has no index in the batch acks the entry and is as short as an id can be; where
records are settled as they come, that is one ack for a producer's batch. It may be sent only once
each index of the entry is settled here: the size of the batch is in every native id, if only in its
serialized form. What else is settled of an entry, such as by two consumers, is acked message by
message with the ids of its delivery.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import _pulsar

from consumer_sdk.adapters.pulsar.contents import acked_by, batch_size, id_of
from consumer_sdk.adapters.pulsar.ids import Place, is_whole

__all__ = ["EntryAcks", "batch_size"]


class EntryAcks:
    """The acks of one assignment.

    What the last flush settled of an entry is remembered: the next one mostly has the rest.
    """

    def __init__(self) -> None:
        self._parts: dict[tuple[int, int], frozenset[int]] = {}

    def of(self, settled: Iterable[tuple[Place, Any]]) -> list[Any]:
        """What acks what is settled, and nothing else: ids, or the client's messages.

        The client acks a message as well as its id, which would be an object more to make.

        Args:
            settled: distinct places, each with the native of its latest delivery.
        """
        acks: list[Any] = []
        parts: dict[tuple[int, int], frozenset[int]] = {}
        for entry, pairs in _by_entry(settled).items():
            before = self._parts.get(entry, frozenset())
            if _is_settled(pairs, before):
                acks.append(_pulsar.MessageId(id_of(pairs[0][1]).partition(), *entry, -1))
                continue
            acks += [acked_by(native) for _, native in pairs]
            if not is_whole(pairs[0][0]):
                parts[entry] = before.union(index for (_, _, index), _ in pairs)
        self._parts = parts
        return acks


def _is_settled(pairs: list[tuple[Place, Any]], before: frozenset[int]) -> bool:
    """All of a producer's batch: these of it, and those of before."""
    count = len(before.union(index for (_, _, index), _ in pairs))
    return count > 1 and count == batch_size(id_of(pairs[0][1]))


def _by_entry(
    settled: Iterable[tuple[Place, Any]],
) -> dict[tuple[int, int], list[tuple[Place, Any]]]:
    entries: dict[tuple[int, int], list[tuple[Place, Any]]] = {}
    pairs: list[tuple[Place, Any]] = []
    last_ledger = last_entry = -1
    for pair in settled:
        ledger, entry, _ = pair[0]
        if entry != last_entry or ledger != last_ledger:
            pairs = entries.setdefault((ledger, entry), [])
            last_ledger, last_entry = ledger, entry
        pairs.append(pair)
    return entries
