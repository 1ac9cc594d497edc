"""Makes the acks of a flush: one id for each entry, settled as a whole or in part.

An id without an index in the batch acks the whole entry, and is the shortest there is. If records are settled
in the order in which they come, a producer's batch needs that one ack. It may be sent only when each index of
the entry is settled here. Of any other entry the settled indexes are acked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from consumer_sdk.adapters.pulsar.consumer.entries import Entry
from consumer_sdk.adapters.pulsar.consumer.messages import NativeMessage, acked_by
from consumer_sdk.records import Checkpoint, Position, SettledRecords
from consumer_sdk.trackers.unseen import MOST_STORED

__all__ = ["Acks", "acks_of", "seen_whole"]


class Acks(NamedTuple):
    """What the client is to ack.

    Attributes:
        alone: ids, or the client's messages; each acks a whole entry.
        parts: for each other entry, the client's messages that one id acks together.
    """

    alone: list[Any]
    parts: list[list[Any]]


def acks_of(settled: SettledRecords) -> Acks:
    """The acks of the settled records, and of no others.

    Args:
        settled: distinct places, each with the native of its latest delivery.
    """
    acks = Acks([], [])
    entries: dict[Entry, list[int]] = {}
    handles = [n.handle if type(n) is NativeMessage else n for n in settled.natives]
    at = 0
    while at < len(handles):
        handle = handles[at]
        if type(handle) is not Entry or not handle.size:  # of an unknown size: by its own message
            acked = acked_by(settled.natives[at])
            if type(acked) is not Entry:  # else it was let go: it comes again, and is acked then
                acks.alone.append(acked)
            at += 1
        elif handle not in entries and _is_all_of(handles[at : at + handle.size], handle):
            acks.alone.append(handle.whole)  # as most are: all of it, side by side
            at += handle.size
        else:
            entries.setdefault(handle, []).append(settled.positions[at][2])
            at += 1
    for entry, indexes in entries.items():
        if entry.is_settled_by(indexes):
            acks.alone.append(entry.whole)
        else:
            acks.parts.append(entry.parts(indexes))
    return acks


def _is_all_of(part: list[Any], entry: Entry) -> bool:
    """Whether each is this very entry. To count is 15 times as fast as ``is`` for each of them.

    An entry equals itself alone. The client's ids raise a TypeError for all but another id.
    """
    try:
        return part.count(entry) == entry.size
    except TypeError:
        return False


def seen_whole(checkpoint: Checkpoint) -> Position | None:
    """The position up to which all records are settled, and none can come late.

    None if so many unseen intervals are stored that the lowest may be several merged into one.
    """
    if len(checkpoint.unseen) >= MOST_STORED or checkpoint.watermark is None:
        return None
    found = [low for low, _ in checkpoint.unseen if low is not None]
    return min([*found[:1], checkpoint.watermark])
