"""Asks a cluster until it answers, within a bound."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol, TypeVar

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.client.faults import names_of, translate
from consumer_sdk.adapters.kafka.client.lookups import EARLIEST, LATEST
from consumer_sdk.errors import TransientAdapterError
from consumer_sdk.records import AtTime, Start, StartPoint

__all__ = ["FIRST_BACKOFF", "look_up", "persist", "time_of"]

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_BACKOFF = 0.05
LONGEST_BACKOFF = 0.5
"""Seconds between two tries."""

Gone = Callable[[Collection[TopicPartition]], Awaitable[Collection[TopicPartition]]]


class Refreshes(Protocol):
    """A cluster, or what stands on one."""

    async def refresh(self) -> None:
        """Fresh metadata.

        Raises:
            KafkaError: no broker gave any.
        """


async def persist(
    cluster: Refreshes, seconds: float, where: str, ask: Callable[[], Awaitable[T]]
) -> T:
    """Asks a question, again with fresh metadata after each failure that may pass; returns the answer.

    Args:
        seconds: for all tries.
        where: what is being done, for messages.

    Raises:
        TransientAdapterError: there was no answer in time.
        AdapterError: asking again would not help.
    """
    last, backoff = None, FIRST_BACKOFF
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    return await _attempt(where, ask)
                except TransientAdapterError as error:
                    last = error
                await _recover(cluster, last, backoff)
                backoff = min(backoff * 2, LONGEST_BACKOFF)
    except TimeoutError as error:
        why = last or f"{where}: the broker is silent"
        raise TransientAdapterError(f"{why}; given up after {seconds:g} s") from (last or error)


async def _attempt(where: str, ask: Callable[[], Awaitable[T]]) -> T:
    try:
        return await ask()
    except (KafkaError, OSError, TimeoutError) as error:
        raise translate(error, where) from error


async def _recover(cluster: Refreshes, error: TransientAdapterError, backoff: float) -> None:
    log.debug("asking again: %s", error)
    await asyncio.sleep(backoff)
    try:
        await cluster.refresh()
    except KafkaError as unknown:
        log.debug("%s", unknown)


async def _none_gone(_tps: Collection[TopicPartition]) -> Collection[TopicPartition]:
    return ()


async def look_up(
    cluster: Cluster,
    tps: Collection[TopicPartition],
    time: int,
    *,
    level: int,
    seconds: float,
    gone: Gone = _none_gone,
) -> dict[TopicPartition, int | None]:
    """The offset that a time stands for: one request to each leader, until all have answered.

    Args:
        time: `EARLIEST`, `LATEST`, or milliseconds since the epoch; see `time_of`.
        level: 1: what lies behind an open transaction does not count.
        gone: says which of them no longer exist.

    Returns:
        None where no record is that new, or the partition is gone.

    Raises:
        AdapterError: as `persist`.
    """
    wanted = set(tps)
    found: dict[TopicPartition, int | None] = {}

    async def ask() -> None:
        found.update(dict.fromkeys(await gone(wanted - found.keys())))
        rest = dict.fromkeys(wanted - found.keys(), time)
        listed, failures = await cluster.list_offsets(rest, level=level)
        found.update({tp: None if at is None else at.offset for tp, at in listed.items()})
        for failure in failures.values():
            raise failure

    if wanted:
        await persist(cluster, seconds, f"looking up positions of {names_of(wanted)}", ask)
    return found


def time_of(start: Start) -> int:
    """Returns a start as the time in Kafka's request: in milliseconds, rounded up."""
    if isinstance(start, AtTime):
        return max(-(-round(start.time * 1_000_000) // 1000), 0)
    return EARLIEST if start is StartPoint.EARLIEST else LATEST
