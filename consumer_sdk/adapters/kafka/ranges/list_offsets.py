"""What a start stands for, of partitions that may be gone."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from aiokafka import TopicPartition

from consumer_sdk.adapters.kafka.client import asking
from consumer_sdk.adapters.kafka.client.lookups import EARLIEST, LATEST
from consumer_sdk.adapters.kafka.ranges.connection import Connection

__all__ = ["bounds", "look_up"]


async def look_up(
    connection: Connection, tps: Iterable[TopicPartition], time: int
) -> dict[TopicPartition, int | None]:
    """The offset that a time stands for; None where no record is that new, or all are gone.

    Args:
        time: `EARLIEST`, `LATEST`, or milliseconds since the epoch.

    Raises:
        AdapterError: as `Connection.persist`.
    """
    options = connection.options

    async def gone(rest: Collection[TopicPartition]) -> Collection[TopicPartition]:
        found = {tp for tp in rest if connection.cluster.is_gone(tp)}
        if found:
            await connection.confirm_gone(found)
        return found

    return await asking.look_up(
        connection.cluster,
        list(tps),
        time,
        level=options.level,
        seconds=options.read_timeout,
        gone=gone,
    )


async def bounds(connection: Connection, tp: TopicPartition) -> tuple[Any, Any]:
    """The first position that is stored, and the one after the last."""
    first = await look_up(connection, [tp], EARLIEST)
    return first[tp], (await look_up(connection, [tp], LATEST))[tp]
