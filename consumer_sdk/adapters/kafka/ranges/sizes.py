"""Estimates the size of stored records by the newest batches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from aiokafka import TopicPartition
from aiokafka.protocol.fetch import FetchRequest

from consumer_sdk.adapters.kafka.client.faults import check_code, names_of
from consumer_sdk.adapters.kafka.client.lookups import EARLIEST, LATEST
from consumer_sdk.adapters.kafka.decoding.record_batches import FORMAT_OF_BATCHES, batch_headers
from consumer_sdk.adapters.kafka.ranges.connection import Connection

__all__ = ["stored_sizes"]

PROBE_BYTES = 2**16
PROBED_TOGETHER = 128
"""Partitions in one request: the answer has at most 8 MiB."""
RECENT = 1000
"""Records before the end at which a probe starts."""
COUNT = slice(57, 61)
"""Where a batch has the number of its records (KIP-98)."""


async def stored_sizes(
    connection: Connection, tps: Iterable[TopicPartition]
) -> dict[TopicPartition, float]:
    """Bytes of a record as it is stored, compressed or not; partitions without any are left out.

    Raises:
        AdapterError: as `Connection.persist`.
    """
    wanted = list(tps)
    firsts = await connection.look_up(wanted, EARLIEST)
    ends = await connection.look_up(wanted, LATEST)
    starts: dict[TopicPartition, int] = {}
    for tp in wanted:
        first, end = firsts[tp], ends[tp]
        if first is not None and end is not None and first < end:
            starts[tp] = max(first, end - RECENT)
    sizes: dict[TopicPartition, float] = {}

    async def ask() -> None:
        for node, some in _by_leader(connection, starts.keys() - sizes.keys()):
            response = await connection.send(node, _request(connection, some, starts))
            sizes.update(_sizes(response))

    await connection.persist(f"probing {names_of(wanted)}", ask)
    return {tp: size for tp, size in sizes.items() if size > 0}


def _by_leader(
    connection: Connection, tps: Iterable[TopicPartition]
) -> list[tuple[int, Sequence[TopicPartition]]]:
    leaders: dict[int, list[TopicPartition]] = defaultdict(list)
    for tp in tps:
        leaders[connection.leader(tp)].append(tp)
    return [
        (node, theirs[at : at + PROBED_TOGETHER])
        for node, theirs in leaders.items()
        for at in range(0, len(theirs), PROBED_TOGETHER)
    ]


def _request(
    connection: Connection, tps: Iterable[TopicPartition], starts: dict[TopicPartition, int]
) -> FetchRequest:
    topics: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for tp in tps:
        topics[tp.topic].append((tp.partition, starts[tp], PROBE_BYTES))
    most = PROBE_BYTES * PROBED_TOGETHER
    return FetchRequest(0, 0, most, connection.options.level, list(topics.items()))


def _sizes(response: Any) -> dict[TopicPartition, float]:
    sizes = {}
    for topic, partitions in response.topics:
        for number, code, *_bounds, data in partitions:
            tp = TopicPartition(topic, number)
            check_code(code, tp)
            sizes[tp] = _mean_size(data or b"")
    return sizes


def _mean_size(data: bytes) -> float:
    """Over all batches of which the count is there; older formats have single records."""
    size = records = 0
    for at, end, magic in batch_headers(data):
        if magic < FORMAT_OF_BATCHES:
            records += 1
        elif len(count := data[at:end][COUNT]) == COUNT.stop - COUNT.start:
            records += int.from_bytes(count)
        else:
            break  # the answer ends within its head
        size += end - at
    return size / records if records else 0.0
