"""Which ids to ack: one for each entry of which all messages are settled, else one for each message.

Acking a message of a batch costs microseconds in the client and a bit set of its whole batch on the
wire. An id that has no index in the batch acks the entry and is as short as an id can be; where
records are settled as they come, that is one ack for a producer's batch. It may be sent only once
each index of the entry is settled here: the size of the batch is in every native id, if only in its
serialized form. An entry that is settled in parts, over two flushes or by two consumers, is acked
message by message with the ids of its delivery.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import _pulsar

from consumer_sdk.adapters.pulsar.contents import acked_by, batch_size, id_of
from consumer_sdk.adapters.pulsar.ids import Place

__all__ = ["acks_of", "batch_size"]


def acks_of(settled: Iterable[tuple[Place, Any]]) -> list[Any]:
    """What acks what is settled, and nothing else: ids, or the client's messages.

    The client acks a message as well as its id, which would be an object more to make.

    Args:
        settled: distinct places, each with the native of its latest delivery.
    """
    acks: list[Any] = []
    for (ledger, entry), natives in _by_entry(settled).items():
        if len(natives) > 1 and len(natives) == batch_size(first := id_of(natives[0])):
            acks.append(_pulsar.MessageId(first.partition(), ledger, entry, -1))
        else:
            acks += map(acked_by, natives)
    return acks


def _by_entry(settled: Iterable[tuple[Place, Any]]) -> dict[tuple[int, int], list[Any]]:
    entries: dict[tuple[int, int], list[Any]] = {}
    natives: list[Any] = []
    last_ledger = last_entry = -1
    for (ledger, entry, _), native in settled:
        if entry != last_entry or ledger != last_ledger:
            natives = entries.setdefault((ledger, entry), [])
            last_ledger, last_entry = ledger, entry
        natives.append(native)
    return entries
