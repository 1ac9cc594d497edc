"""The tasks of one batch: planned where Spark plans, and read on its workers.

A task is its ranges and nothing else: reading it again, on any worker, yields the same rows.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from consumer_sdk.errors import ConfigurationError, PositionOutOfRangeError
from consumer_sdk.range_reads import Columns, PartitionRange, RangeReader
from consumer_sdk.records import Partition, StartPoint
from consumer_sdk.spark_bridge.errors import DataLossError
from consumer_sdk.spark_bridge.pull.connections import of_this_process
from consumer_sdk.spark_bridge.pull.options.options import PullOptions
from consumer_sdk.spark_bridge.pull.planning.planning import (
    Sizing,
    cut_sizes,
    pack,
    parts_wanted,
    sound,
)
from consumer_sdk.spark_bridge.pull.rows import ArrowRows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["STALLED_SECONDS", "Ranges", "plan_tasks", "read_task"]

STALLED_SECONDS = 90.0
"""A task whose broker sends nothing for this much longer than an outage may take fails."""

_log = logging.getLogger(__name__)


class Ranges(InputPartition):
    """What one Spark task reads."""

    def __init__(self, ranges: Sequence[PartitionRange]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)


async def plan_tasks(
    reader: RangeReader,
    ranges: Collection[PartitionRange],
    options: PullOptions,
    gone: Collection[Partition] = (),
) -> list[InputPartition]:
    """Divides what a batch reads into tasks.

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
    found = sound(ranges, earliest, gone, latest=latest, fail=options.fail_on_data_loss)
    for warning in found.warnings:
        _log.warning("%s", warning)
    records = await count_records(reader, found.ranges, options.sizing)
    parts = await _parts(reader, found.ranges, records, options.sizing)
    return [Ranges(task) for task in pack(parts, options.sizing)]


async def count_records(
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


def read_task(options: PullOptions, task: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of one task; the broker's next part is read while Spark takes the last one.

    Raises:
        TransientAdapterError: the broker has not answered for too long; the task can be retried.
        DataLossError: it has deleted records since, and ``failOnDataLoss`` is on.
        AdapterError: a record cannot be read.
    """
    # Spark calls read once, with None, when there was nothing to plan.
    ranges = task.ranges if isinstance(task, Ranges) else ()
    if not ranges:
        return
    loop = of_this_process().loop
    timeout = options.patience + STALLED_SECONDS
    with closing(loop.iterate(partial(_read, options, ranges), timeout=timeout)) as parts:
        rows = None
        for reader, partition, columns in parts:
            rows = rows or ArrowRows(options.column_names, reader, null_times=options.null_times)
            yield from rows.batches(partition, columns)


async def _read(
    options: PullOptions, ranges: Sequence[PartitionRange]
) -> AsyncIterator[tuple[RangeReader, Partition, Columns]]:
    async with of_this_process().connections.borrowed(options.for_tasks()) as reader:
        for each in ranges:
            async with aclosing(_read_range(reader, each, options)) as source:
                async for columns in source:
                    yield reader, each.partition, columns


async def _read_range(
    reader: RangeReader, wanted: PartitionRange, options: PullOptions
) -> AsyncGenerator[Columns, None]:
    """One range; what the broker has deleted since the batch was planned is a loss."""
    rest: PartitionRange | None = wanted
    while rest is not None:
        try:
            parts = reader.read_range(rest, with_headers=options.with_headers)
            async with aclosing(parts) as source:  # type: ignore[type-var]  # they are generators
                async for columns in source:
                    yield columns
        except PositionOutOfRangeError as error:
            rest = await _what_is_left(reader, rest, options, error)
        else:
            return


async def _what_is_left(
    reader: RangeReader, gone: PartitionRange, options: PullOptions, error: Exception
) -> PartitionRange | None:
    lost = f"records of {gone.partition} were deleted before the query read them: {error}"
    if options.fail_on_data_loss:
        raise DataLossError(f"{lost}; failOnDataLoss=false goes on with the rest") from error
    _log.warning("%s", lost)
    partition, start, stop = gone
    first = (await reader.positions([partition], StartPoint.EARLIEST))[partition]
    last = (await reader.positions([partition], StartPoint.LATEST))[partition]
    is_cut_short = isinstance(last, int) and last < stop
    stop = last if is_cut_short else stop
    # Cut short, with nothing deleted: what is out of range then lies at or after its end.
    if first is None or first >= stop or (is_cut_short and first <= start):
        return None
    if first <= start:
        raise error
    # It was read up to where the deleted ones began, if at all: all below is done with.
    return PartitionRange(partition, first, stop)
