"""``lag`` and ``explain``: how far a group is behind, and what pins its position, without joining it."""

from __future__ import annotations

import asyncio
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import Any

from consumer_sdk.cli.groups.groups import Group, of_partitions, opened_group
from consumer_sdk.cli.letters.moves import Bounds, Span, open_below, settled_from
from consumer_sdk.cli.terminal import Rows
from consumer_sdk.errors import ConsumerSdkError
from consumer_sdk.range_reads import PartitionRange
from consumer_sdk.records import Checkpoint, Partition

__all__ = ["Lag", "explain", "group_lags", "lag"]


class LaggingError(ConsumerSdkError):
    """The group is farther behind than it may be."""


@dataclass(frozen=True, slots=True)
class Lag:
    """The records of a partition that the group has not settled.

    Attributes:
        start: where the group reads on; None: it has no position.
        end: the next position that will be written.
        records: about how many are unsettled.
        seconds: age of the first of them; 0 where there is none.
        holes: stretches of unsettled records below settled ones.
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
    holes: int
    settled_above: int
    attempts: Mapping[str, int]
    pinned_by: str | None


async def lag(arguments: Namespace) -> None:
    """Writes a line for each partition, again and again with ``--watch``."""
    async with opened_group(arguments.url, arguments.store) as group:
        while True:
            rows = await group_lags(group, arguments.partition)
            with Rows(is_json=arguments.json) as shown:
                for row in rows:
                    shown.say(asdict(row), _lag_line(row))
            _check(rows, arguments)
            if arguments.watch is None:
                return
            await asyncio.sleep(arguments.watch)


async def explain(arguments: Namespace) -> None:
    """Writes for each partition which record pins its position."""
    async with opened_group(arguments.url, arguments.store) as group:
        rows = await group_lags(group, arguments.partition)
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
        seconds=0.0 if oldest is None else max(round(time.time() - oldest[1] / 1000, 1), 0.0),
        holes=len(above),
        settled_above=await _count(group, partition, above),
        attempts={text(at): tried for at, (tried, _due) in attempts.items()},
        pinned_by=text(oldest[0]) if above and oldest is not None else None,
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
        return f"{where}reads on at {row.start}, {row.records} records, {row.seconds:g} s{tried}"
    return (
        f"{where}pinned by {row.pinned_by}, {row.seconds:g} s old; {row.holes} holes below "
        f"{row.settled_above} settled records; {row.records} unsettled{tried}"
    )
