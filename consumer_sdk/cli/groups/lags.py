"""``lag`` and ``explain``: how far a group is behind, and what pins its position, without joining it."""

from __future__ import annotations

import asyncio
import time
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from consumer_sdk.adapters.urls import share_group_of
from consumer_sdk.cli.groups.groups import Group, of_partitions, opened_group, opened_reader
from consumer_sdk.cli.groups.moves import Bounds, Span, open_below, settled_from
from consumer_sdk.cli.terminal import Rows
from consumer_sdk.errors import ConfigurationError, ConsumerSdkError
from consumer_sdk.range_reads import PartitionRange
from consumer_sdk.records import Checkpoint, Partition

__all__ = ["Lag", "explain", "group_lags", "lag", "opened_lags"]


class LaggingError(ConsumerSdkError):
    """The group is farther behind than it may be."""


@dataclass(frozen=True, slots=True)
class Lag:
    """The records of a partition that the group has not settled.

    Attributes:
        start: where the group reads on; None: it has no position.
        end: the next position that will be written.
        records: about how many are unsettled.
        seconds: age of the first of them; 0 where there is none. Of a share group, of the record at `start`, which the
            broker moves late: at most.
        holes: stretches of unsettled records below settled ones; None: the broker of a share group does not tell.
        settled_above: settled records above the first hole.
        attempts: failed deliveries by position.
        pinned_by: the position of the first unsettled record, where there are holes.
    """

    stream: str
    partition: str
    start: str | None
    end: str
    records: int
    seconds: float
    holes: int | None
    settled_above: int
    attempts: Mapping[str, int]
    pinned_by: str | None


async def lag(arguments: Namespace) -> None:
    """Writes a line for each partition, again and again with ``--watch``."""
    async with opened_lags(arguments.url, arguments.store) as lags:
        while True:
            rows = await lags(arguments.partition)
            with Rows(is_json=arguments.json) as shown:
                for row in rows:
                    shown.say(asdict(row), _lag_line(row))
            _check(rows, arguments)
            if arguments.watch is None:
                return
            await asyncio.sleep(arguments.watch)


async def explain(arguments: Namespace) -> None:
    """Writes for each partition which record pins its position."""
    async with opened_lags(arguments.url, arguments.store) as lags:
        rows = await lags(arguments.partition)
    with Rows(is_json=arguments.json) as shown:
        for row in rows:
            shown.say(asdict(row), _explain_line(row))


def _check(rows: Sequence[Lag], arguments: Namespace) -> None:
    if arguments.fail_above is None:
        return
    worst = max(rows, key=lambda row: getattr(row, arguments.by), default=None)
    found = 0 if worst is None else getattr(worst, arguments.by)
    if worst is not None and found > arguments.fail_above:
        raise LaggingError(
            f"{worst.stream}/{worst.partition} is {found:g} {arguments.by} behind, above "
            f"{arguments.fail_above:g}"
        )


# -- what is known ---------------------------------------------------------------------------------


@asynccontextmanager
async def opened_lags(
    url: str, store: str | None
) -> AsyncIterator[Callable[[Sequence[str] | None], Awaitable[list[Lag]]]]:
    """What tells how far the group or share group of a consumer's URL is behind, without joining it.

    It is given the ids of partitions; None for all.

    Raises:
        ConfigurationError: the URL names no group.
        ConsumerSdkError: it cannot be opened.
    """
    shared = share_group_of(url)
    if shared is None:
        async with opened_group(url, store) as group:
            yield partial(group_lags, group)
        return
    if store is not None:
        raise ConfigurationError(f"share group {shared!r} has no store: leave --store out")
    async with opened_reader(url) as (reader, _):
        yield partial(_share_lags, Group(reader, shared, None))


async def group_lags(group: Group, chosen: Sequence[str] | None) -> list[Lag]:
    """How far the partitions are behind: those with the given ids, or all."""
    partitions = of_partitions(await group.reader.partitions(), chosen)
    known = await group.checkpoints(partitions)  # before the end, which may only grow
    bounds = await group.bounds(partitions)
    return [await _lag_of(group, each, known[each], bounds[each]) for each in partitions]


async def _lag_of(
    group: Group, partition: Partition, checkpoint: Checkpoint | None, bounds: Bounds
) -> Lag:
    text = group.reader.encode_position
    spans = open_below(checkpoint, bounds.end, bounds)
    above = settled_from(checkpoint, spans[0][0], bounds) if spans else []
    start = None if checkpoint is None else checkpoint.start
    oldest = await _oldest(group, partition, spans)
    attempts = {} if checkpoint is None else checkpoint.attempts
    return Lag(
        stream=partition.stream,
        partition=partition.id,
        start=None if start is None else text(start),
        end=text(bounds.end),
        records=await _count(group, partition, spans),
        seconds=_age(oldest),
        holes=len(above),
        settled_above=await _count(group, partition, above),
        attempts={text(at): tried for at, (tried, _due) in attempts.items()},
        pinned_by=text(oldest[0]) if above and oldest is not None else None,
    )


async def _share_lags(group: Group, chosen: Sequence[str] | None) -> list[Lag]:
    partitions = of_partitions(await group.reader.partitions(), chosen)
    reader: Any = group.reader  # of Kafka, as no other broker has share groups
    known = await reader.shared(group.name, partitions)
    bounds = await group.bounds(partitions)
    return [await _share_lag_of(group, each, known[each], bounds[each]) for each in partitions]


async def _share_lag_of(
    group: Group, partition: Partition, stands: tuple[int | None, int | None], bounds: Bounds
) -> Lag:
    start, lag = stands
    text = group.reader.encode_position
    below = bounds.first if start is None else max(start, bounds.first)
    reach = max(bounds.end - below, 0)
    records = reach if lag is None else min(lag, reach)
    oldest = await _oldest(group, partition, [(below, bounds.end)] if records else [])
    return Lag(
        stream=partition.stream,
        partition=partition.id,
        start=None if start is None else text(start),
        end=text(bounds.end),
        records=records,
        seconds=_age(oldest),
        holes=None,
        settled_above=reach - records,
        attempts={},
        pinned_by=None,
    )


async def _count(group: Group, partition: Partition, spans: Sequence[Span]) -> int:
    ranges = [PartitionRange(partition, *span) for span in spans]
    return sum([(await group.reader.records([each]))[partition] for each in ranges])


async def _oldest(
    group: Group, partition: Partition, spans: Sequence[Span]
) -> tuple[Any, int] | None:
    """Position and time of the first unsettled record; a gap may hold none."""
    for span in spans:
        wanted = PartitionRange(partition, *span)
        parts: Any = group.reader.read_range(wanted, max_bytes=1)
        async with aclosing(parts):
            async for columns in parts:
                if len(columns):
                    return columns.positions[0], columns.timestamps[0] or 0
    return None


def _age(record: tuple[Any, int] | None) -> float:
    return 0.0 if record is None else max(round(time.time() - record[1] / 1000, 1), 0.0)


# -- what is shown ---------------------------------------------------------------------------------


def _lag_line(row: Lag) -> str:
    where = f"{row.stream}/{row.partition}\t{row.start or '-'} of {row.end}"
    return f"{where}\t{row.records} records\t{row.seconds:g} s"


def _explain_line(row: Lag) -> str:
    where = f"{row.stream}/{row.partition}\t"
    if not row.records:
        return f"{where}all is settled, up to {row.end}"
    if row.start is None:
        return f"{where}no position: nothing is settled, {row.records} records"
    tried = "".join(f"; {at} has failed {n} times" for at, n in row.attempts.items())
    if row.pinned_by is None:
        settled = f", {row.settled_above} above settled" if row.settled_above else ""
        behind = f"{row.records} records, {row.seconds:g} s"
        return f"{where}reads on at {row.start}, {behind}{settled}{tried}"
    return (
        f"{where}pinned by {row.pinned_by}, {row.seconds:g} s old; {row.holes} holes below "
        f"{row.settled_above} settled records; {row.records} unsettled{tried}"
    )
