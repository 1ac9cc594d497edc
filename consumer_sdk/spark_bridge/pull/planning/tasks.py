"""Which Spark task reads what.

`plan_tasks` takes three steps, and asks the reader in between: `readable_ranges` drops empty ranges and judges
what is lost, `parts_wanted` says into how many parts each range is to be cut, `pack` puts the parts
into tasks. Each task costs about 20 ms, so small ranges share one; large ones are cut where asked for.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.range_reads import PartitionRange, RangeReader
from consumer_sdk.records import Partition, Position, StartPoint
from consumer_sdk.spark_bridge.errors import DataLossError

if TYPE_CHECKING:
    from consumer_sdk.spark_bridge.pull.options.options import PullOptions

__all__ = [
    "TASK_RECORDS",
    "ReadableRanges",
    "Sizing",
    "cut_sizes",
    "pack",
    "parts_wanted",
    "plan_tasks",
    "readable_ranges",
]


TASK_RECORDS = 50_000
"""Records that are worth a task of their own: reading them takes about as long as starting it."""

SHOWN = 10
"""Losses that an error names."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sizing:
    """What the options say of tasks.

    Attributes:
        min_tasks: at least this many, if there are as many records.
        max_records: of one task, about.
        tasks: at most this many, unless the other two ask for more.
    """

    min_tasks: int | None = None
    max_records: int | None = None
    tasks: int | None = None

    @property
    def needs_records(self) -> bool:
        """Ranges may have to be cut: their records have to be counted."""
        return self.min_tasks is not None or self.max_records is not None


async def plan_tasks(
    reader: RangeReader,
    ranges: Collection[PartitionRange],
    options: PullOptions,
    gone: Collection[Partition] = (),
) -> list[list[PartitionRange]]:
    """The ranges of each task of one batch.

    Args:
        reader: is asked what the broker still has, and where large ranges are cut.
        ranges: `Offsets.ranges_to`'s.
        options: how the tasks are sized, and whether a loss fails the query.
        gone: partitions that vanished since the last batch.

    Raises:
        DataLossError: the broker no longer has all of it.
        AdapterError: the broker did not answer.
    """
    ranges = [each for each in ranges if each.start != each.stop]
    earliest = await reader.positions([each.partition for each in ranges], StartPoint.EARLIEST)
    # Where positions are no numbers, an end says nothing, and may take long to find.
    counted = [each.partition for each in ranges if isinstance(each.stop, int)]
    latest = await reader.positions(counted, StartPoint.LATEST)
    found = readable_ranges(ranges, earliest, gone, latest=latest, fail=options.fail_on_data_loss)
    for warning in found.warnings:
        _log.warning("%s", warning)
    records = await _count_records(reader, found.ranges, options.sizing)
    parts = await _parts(reader, found.ranges, records, options.sizing)
    return pack(parts, options.sizing)


async def _count_records(
    reader: RangeReader, ranges: Collection[PartitionRange], sizing: Sizing
) -> Mapping[Partition, int]:
    """About how many records each range has; nothing where nobody can tell and nobody must."""
    try:
        return await reader.records(ranges)
    except ConfigurationError:
        if sizing.needs_records:
            raise
        return {}


async def _parts(
    reader: RangeReader,
    ranges: Sequence[PartitionRange],
    records: Mapping[Partition, int],
    sizing: Sizing,
) -> list[tuple[PartitionRange, int | None]]:
    wanted = parts_wanted(ranges, records, sizing)
    parts: list[tuple[PartitionRange, int | None]] = []
    for each, count in zip(ranges, wanted, strict=True):
        known = records.get(each.partition)
        parts += [(each, None)] if known is None else await _cut(reader, each, known, count)
    return parts


async def _cut(
    reader: RangeReader, whole: PartitionRange, records: int, count: int
) -> list[tuple[PartitionRange, int | None]]:
    """The parts, and about how many records each has."""
    parts: list[tuple[PartitionRange, int | None]] = []
    rest, left = whole, records
    for size in cut_sizes(records, count):
        stop = await reader.cut(rest, size)
        if stop == rest.stop:
            break
        parts.append((rest._replace(stop=stop), size))
        rest, left = rest._replace(start=stop), left - size
    return [*parts, (rest, max(1, left))]


@dataclass(frozen=True, slots=True)
class ReadableRanges:
    """What can be read.

    Attributes:
        ranges: sorted; none is empty.
        warnings: what is lost, or may be, for the log.
    """

    ranges: list[PartitionRange]
    warnings: list[str]


def readable_ranges(
    ranges: Collection[PartitionRange],
    earliest: Mapping[Partition, Position | None],
    gone: Collection[Partition] = (),
    *,
    latest: Mapping[Partition, Position | None] | None = None,
    fail: bool,
) -> ReadableRanges:
    """Judges the ranges of a batch.

    Where positions are integers, a start below the earliest record is a loss. Elsewhere it need
    not be one (a Pulsar ledger that was read to its end is deleted): that is a warning, and the
    range is left as it is for the reader to judge, unless losses are accepted.

    A log that ends below the start was made again or cut short. Which of the two, nobody can
    tell, so nothing of it is read twice: the next batch goes on from its end. One that ends below
    the stop is read to its end: where positions are integers, an end never goes back by itself,
    since transactions only begin above the last stable one.

    Args:
        ranges: `Offsets.ranges_to`'s.
        earliest: each partition's first position now; None or missing: it is gone.
        gone: `Offsets.gone_in`'s.
        latest: each partition's end now; None or missing: it is not known.
        fail: ``failOnDataLoss``.

    Raises:
        DataLossError: records that are still to be read are gone, and ``fail``.
    """
    kept: list[PartitionRange] = []
    losses = [f"{partition} is gone" for partition in sorted(gone)]
    doubts: list[str] = []
    for each in sorted(ranges):
        if each.start != each.stop:
            ends = earliest.get(each.partition), (latest or {}).get(each.partition)
            verdict = _judge(each, *ends, fail=fail)
            kept += verdict.kept
            losses += verdict.losses
            doubts += verdict.doubts
    if losses and fail:
        raise _lost(losses)
    return ReadableRanges(kept, losses + doubts)


class _Verdict(NamedTuple):
    kept: Sequence[PartitionRange] = ()
    losses: Sequence[str] = ()
    doubts: Sequence[str] = ()


def _judge(
    each: PartitionRange, first: Position | None, last: Position | None, *, fail: bool
) -> _Verdict:
    if first is None:
        return _Verdict(losses=[f"{each.partition} is gone"])
    if each.start > each.stop:
        why = f"{each.partition} ends at {each.stop}, below {each.start}, as if it was made again"
        return _Verdict(losses=[why])
    if isinstance(last, int) and last < each.stop:
        why = f"{each.partition} ends at {last}, below {each.stop}, as if it was cut short"
        return _Verdict(_from(each._replace(stop=last), max(first, each.start)), losses=[why])
    if first <= each.start:
        return _Verdict([each])
    why = f"{each.partition} begins at {first}, above {each.start}"
    if isinstance(first, int):
        return _Verdict(_from(each, first), losses=[why])
    return _Verdict([each] if fail else _from(each, first), doubts=[why])


def _from(each: PartitionRange, first: Position) -> list[PartitionRange]:
    """What the broker still has of a range."""
    return [each._replace(start=first)] if first < each.stop else []


def _lost(losses: Sequence[str]) -> DataLossError:
    more = f"; and {len(losses) - SHOWN} more" if len(losses) > SHOWN else ""
    return DataLossError(
        f"records that this query has yet to read are gone from the broker: "
        f"{'; '.join(losses[:SHOWN])}{more}. Keep records for longer, or set "
        f"failOnDataLoss=false to go on with what is left"
    )


def parts_wanted(
    ranges: Sequence[PartitionRange], records: Mapping[Partition, int], sizing: Sizing
) -> list[int]:
    """Into how many parts each range is to be cut; 1 for most.

    `cut_sizes` says where. A range whose records nobody can count stays whole.
    """
    counts = [max(1, records.get(each.partition, 1)) for each in ranges]
    most = sizing.max_records
    parts = [-(-count // most) if most else 1 for count in counts]
    missing = (sizing.min_tasks or 0) - sum(parts)
    # The largest parts are cut further, one by one: never more parts than records.
    heap = [(-count / parts[place], place) for place, count in enumerate(counts)]
    heapq.heapify(heap)
    while missing > 0 and heap:
        _, place = heapq.heappop(heap)
        if parts[place] < counts[place]:
            parts[place] += 1
            missing -= 1
            heapq.heappush(heap, (-counts[place] / parts[place], place))
    return parts


def cut_sizes(records: int, parts: int) -> list[int]:
    """Records of each part but the last, for ``reader.cut(rest, size)`` in turn.

    They differ by one at most, the last one included, so that none is above ``max_records``.
    """
    size, larger = divmod(max(records, parts), parts)
    return [size + (place < larger) for place in range(parts - 1)]


def pack(
    parts: Sequence[tuple[PartitionRange, int | None]], sizing: Sizing
) -> list[list[PartitionRange]]:
    """Tasks of about equal size: the largest part first, to the smallest task (Graham 1969).

    Equal arguments give equal tasks, in whichever order the parts come; a task's are sorted.

    Args:
        parts: ranges and about how many records each has; None where nobody can tell.
    """
    counted = [(TASK_RECORDS if count is None else count, each) for each, count in parts]
    counted.sort(key=lambda part: (-part[0], part[1]))
    tasks: list[list[PartitionRange]] = [[] for _ in range(_tasks(counted, sizing))]
    heap = [(0, place) for place in range(len(tasks))]
    for count, each in counted:
        size, place = heap[0]
        if size and sizing.max_records is not None and size + count > sizing.max_records:
            size, place = 0, len(tasks)  # the smallest has no room, so none has
            tasks.append([])
            heapq.heappush(heap, (0, place))
        heapq.heapreplace(heap, (size + count, place))
        tasks[place].append(each)
    return [sorted(task) for task in tasks if task]


def _tasks(counted: Sequence[tuple[int, PartitionRange]], sizing: Sizing) -> int:
    """How many tasks there are to be, before ``max_records`` asks for more."""
    worth = -(-sum(count for count, _ in counted) // TASK_RECORDS)
    most = len(counted) if sizing.tasks is None else min(len(counted), sizing.tasks)
    return max(1, min(worth, most), min(sizing.min_tasks or 1, len(counted)))
