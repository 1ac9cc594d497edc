"""What a start stands for: one request for all partitions of a leader."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka import TopicPartition
from aiokafka.protocol.offset import OffsetRequest

from consumer_sdk.adapters.kafka.ranges.connection import Connection, check_code, names_of

__all__ = ["EARLIEST", "LATEST", "bounds", "look_up"]

EARLIEST = -2
LATEST = -1
CONSUMER = -1


async def look_up(
    connection: Connection, tps: Iterable[TopicPartition], time: int
) -> dict[TopicPartition, int | None]:
    """The offset that a time stands for; None where no record is that new, or all are gone.

    Args:
        time: `EARLIEST`, `LATEST`, or milliseconds since the epoch.

    Raises:
        AdapterError: as `Connection.persist`.
    """
    wanted = set(tps)
    found: dict[TopicPartition, int | None] = {}

    async def ask() -> None:
        rest = wanted - found.keys()
        gone = {tp for tp in rest if connection.is_gone(tp)}
        if gone:
            await connection.confirm_gone(gone)
        found.update(dict.fromkeys(gone))
        await _ask(connection, rest - gone, time, found)

    await connection.persist(f"looking up positions of {names_of(wanted)}", ask)
    return {tp: None if at is None or at < 0 else at for tp, at in found.items()}


async def _ask(
    connection: Connection,
    tps: Iterable[TopicPartition],
    time: int,
    found: dict[TopicPartition, int | None],
) -> None:
    """Asks each leader; what one answers is kept even when another fails."""
    by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
    for tp in tps:
        by_leader[connection.leader(tp)].append(tp)
    asked = [_ask_leader(connection, *one, time, found) for one in by_leader.items()]
    failures = [e for e in await asyncio.gather(*asked, return_exceptions=True) if e is not None]
    for failure in failures:
        raise failure


async def _ask_leader(
    connection: Connection,
    node: int,
    tps: Iterable[TopicPartition],
    time: int,
    found: dict[TopicPartition, int | None],
) -> None:
    topics: Mapping[str, list[tuple[int, int]]] = defaultdict(list)
    for tp in tps:
        topics[tp.topic].append((tp.partition, time))
    request = OffsetRequest(CONSUMER, connection.options.level, list(topics.items()))
    response = await connection.send(node, request)
    failures = []
    for topic, partitions in response.topics:
        for partition, code, *_time, offset in partitions:
            if code:
                failures.append((code, TopicPartition(topic, partition)))
            else:
                found[TopicPartition(topic, partition)] = offset
    for code, tp in failures:
        check_code(code, tp)


async def bounds(connection: Connection, tp: TopicPartition) -> tuple[Any, Any]:
    """The first position that is stored, and the one after the last."""
    first = await look_up(connection, [tp], EARLIEST)
    return first[tp], (await look_up(connection, [tp], LATEST))[tp]
