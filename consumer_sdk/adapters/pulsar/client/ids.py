"""Message ids as positions: ``(ledger, entry, index in the batch)``. Pure but for the client's type.

A record that was not sent in a batch has the largest index, so that it stands for its whole entry.
Acks use the client's own ids. Ids are rebuilt only to seek, because a rebuilt id acks the whole
entry, or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import _pulsar

from consumer_sdk.checkpoints.positions import LAST_BATCH_INDEX

__all__ = ["Place", "batch_size", "gaps", "id_at", "is_whole", "next_place", "place_of"]

Place = tuple[int, int, int]
"""A position."""

BATCH_SIZE = 6
"""The number of the batch's size in ``MessageIdData`` of ``PulsarApi.proto``."""


# Unbound: looking a method up on each id costs as much as calling it.
_ledger_of = _pulsar.MessageId.ledger_id
_entry_of = _pulsar.MessageId.entry_id
_index_of = _pulsar.MessageId.batch_index


def place_of(message_id: Any) -> Place:
    """The position of a message."""
    index = _index_of(message_id)
    return _ledger_of(message_id), _entry_of(message_id), LAST_BATCH_INDEX if index < 0 else index


def is_whole(place: Place) -> bool:
    """Whether a message was not sent in a batch, so that it is a whole entry."""
    return place[2] == LAST_BATCH_INDEX


def gaps(places: Sequence[Place]) -> list[int]:
    """The offsets of the positions before which an entry may be missing.

    All messages of an entry come that were not acked. Nothing tells which entry is the last one of
    a ledger.
    """
    if not places or _are_entries_complete(places):
        return []
    pairs = enumerate(pairwise(places), 1)
    return [at for at, (one, other) in pairs if not _is_next(one, other)]


def _are_entries_complete(places: Sequence[Place]) -> bool:
    (ledger, first, _), (last_ledger, last, _) = places[0], places[-1]
    return ledger == last_ledger and len({entry for _, entry, _ in places}) == last - first + 1


def _is_next(one: Place, other: Place) -> bool:
    return one[0] == other[0] and other[1] - one[1] <= 1


def next_place(last: Place) -> Place:
    """Where the next message will be at the earliest, after the last one."""
    return last[0], last[1] + 1, 0


def id_at(place: Place) -> Any:
    """The id to seek to, so that the whole entry of a position comes first."""
    return _pulsar.MessageId(-1, place[0], place[1], -1)


def batch_size(message_id: Any) -> int:
    """How many messages the producer's batch had; 0 for a message that was sent by itself."""
    data = message_id.serialize()
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag & 7:  # not a number: the first id of a message in chunks, which is in no batch
            return 0
        value, at = _varint(data, at)
        if tag >> 3 == BATCH_SIZE:
            return value
    return 0


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of Protocol Buffers, and where it ends."""
    value = shift = 0
    while data[at] & 0x80:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
    return value | data[at] << shift, at + 1
