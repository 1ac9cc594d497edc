"""What a start stands for: one request for all partitions of a leader, until all have answered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiokafka import TopicPartition

from consumer_sdk.adapters.kafka.client.faults import names_of
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
    wanted = set(tps)
    cluster, level = connection.cluster, connection.options.level
    found: dict[TopicPartition, int | None] = {}

    async def ask() -> None:
        rest = wanted - found.keys()
        gone = {tp for tp in rest if cluster.is_gone(tp)}
        if gone:
            await connection.confirm_gone(gone)
        found.update(dict.fromkeys(gone))
        listed, failures = await cluster.list_offsets(dict.fromkeys(rest - gone, time), level=level)
        found.update({tp: None if at is None else at.offset for tp, at in listed.items()})
        for failure in failures.values():
            raise failure

    await connection.persist(f"looking up positions of {names_of(wanted)}", ask)
    return found


async def bounds(connection: Connection, tp: TopicPartition) -> tuple[Any, Any]:
    """The first position that is stored, and the one after the last."""
    first = await look_up(connection, [tp], EARLIEST)
    return first[tp], (await look_up(connection, [tp], LATEST))[tp]
