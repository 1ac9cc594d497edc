"""What a Spark worker does: it reads the ranges of one task into Arrow record batches.

A task is its ranges and nothing else: reading it again, on any worker, yields the same rows.

The columns are typed exactly as Spark's own Kafka source types them. Columns of a reader that makes
Arrow arrays are taken as they are; the rest costs next to nothing: consecutive offsets are added up
by Arrow, and what is the same in all rows of a partition is a slice of one array that is made once.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, closing
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from consumer_sdk.errors import AdapterError, PositionOutOfRangeError
from consumer_sdk.range_reads import ArrowColumn, Columns, PartitionRange, RangeReader
from consumer_sdk.records import Partition, StartPoint
from consumer_sdk.spark_bridge.arrow import consecutive, header_lists, import_pyarrow, repeated
from consumer_sdk.spark_bridge.collector import begin_call
from consumer_sdk.spark_bridge.columns import arrow_schema, partition_number
from consumer_sdk.spark_bridge.errors import DataLossError
from consumer_sdk.spark_bridge.pull.connections import of_this_process
from consumer_sdk.spark_bridge.pull.options.options import PullOptions

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BATCH_BYTES", "BATCH_ROWS", "STALLED_SECONDS", "ArrowRows", "Ranges", "read_task"]

BATCH_ROWS = 50_000
"""Spark takes batches of 2 000 to 250 000 rows equally fast; this keeps a worker small."""

MOST_TIME = (2**63 - 1) // 1000
"""Milliseconds whose microseconds have 64 bits."""

BATCH_BYTES = 64 * 2**20
"""Far below the 2 GiB at which an Arrow binary column's 32-bit counts run over."""

STALLED_SECONDS = 90.0
"""A task whose broker sends nothing for this much longer than an outage may take fails."""

_log = logging.getLogger(__name__)


class Ranges(InputPartition):
    """What one Spark task reads."""

    def __init__(self, ranges: Sequence[PartitionRange]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)


def read_task(options: PullOptions, task: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of one task; the broker's next part is read while Spark takes the last one.

    Raises:
        TransientAdapterError: the broker has not answered for too long; the task can be retried.
        DataLossError: it has deleted records since, and ``failOnDataLoss`` is on.
        AdapterError: a record cannot be read.
    """
    begin_call()
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
    """Reads one range; records that the broker has deleted since the batch was planned are lost."""
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


# -- rows ----------------------------------------------------------------------------------


class ArrowRows:
    """Turns columns into record batches of chosen columns.

    Args:
        names: which of `consumer_sdk.spark_bridge.columns.COLUMNS`, in this order.
        reader: gives positions their text form.
        null_times: a time that Spark's microseconds cannot hold becomes null, instead of an error.
    """

    def __init__(
        self, names: Sequence[str], reader: RangeReader, *, null_times: bool = False
    ) -> None:
        self._pa = import_pyarrow()
        schema = arrow_schema()
        self.schema: pa.Schema = self._pa.schema([schema.field(name) for name in names])
        self._encode = reader.encode_position
        self._null_times = null_times

    def batches(self, partition: Partition, columns: Columns) -> Iterator[pa.RecordBatch]:
        """Record batches of at most `BATCH_ROWS` rows and, where a row is no more, `BATCH_BYTES`.

        Raises:
            AdapterError: a key, value or list of headers has 2 GiB or more, or a time is out of
                Spark's range; names the record.
        """
        if not len(columns):
            return
        arrays = [self._column(name, partition, columns) for name in self.schema.names]
        if any(isinstance(array, self._pa.ChunkedArray) for array in arrays):
            yield from self._halves(partition, columns)
        else:
            yield from _slices(self._pa.RecordBatch.from_arrays(arrays, schema=self.schema))

    def _halves(self, partition: Partition, columns: Columns) -> Iterator[pa.RecordBatch]:
        """Arrow answers a column of more than 2 GiB in chunks, which no record batch takes."""
        rows = len(columns)
        if rows == 1:
            raise AdapterError(
                f"the record at {self._encode(columns.positions[0])} of {partition} has 2 GiB "
                "or more, which Arrow cannot hold in one row: start behind it"
            )
        yield from self.batches(partition, columns.cut(0, rows // 2))
        yield from self.batches(partition, columns.cut(rows // 2, rows))

    def _column(self, name: str, partition: Partition, columns: Columns) -> Any:
        match name:
            case "key" | "value":
                values = columns.keys if name == "key" else columns.values
                return self._array(values, self._pa.binary())
            case "offset" | "position":
                make = self._offsets if name == "offset" else self._texts
                return make(columns.positions)
            case "timestamp":
                return self._times(partition, columns)
            case "headers":
                return self._headers(columns)
        return self._constant(name, partition, columns)

    def _array(self, values: Sequence[Any], kind: Any) -> Any:
        if isinstance(values, ArrowColumn):
            return values.array.cast(kind)
        return self._pa.array(values, kind)

    def _offsets(self, positions: Sequence[Any]) -> Any:
        if isinstance(positions, range) and positions.step == 1:
            return consecutive(positions.start, len(positions))
        if not isinstance(positions[0], int):
            return self._pa.nulls(len(positions), self._pa.int64())
        return self._pa.array(positions, self._pa.int64())

    def _texts(self, positions: Sequence[Any]) -> Any:
        if isinstance(positions[0], int):
            return self._offsets(positions).cast(self._pa.string())
        return self._pa.array([self._encode(each) for each in positions], self._pa.string())

    def _times(self, partition: Partition, columns: Columns) -> Any:
        from pyarrow import compute

        milliseconds = self._array(columns.timestamps, self._pa.timestamp("ms", tz="UTC"))
        kind = self._pa.timestamp("us", tz="UTC")
        try:
            return milliseconds.cast(kind)
        except self._pa.ArrowInvalid as error:
            far = self._too_far(milliseconds)
            if self._null_times:
                return compute.if_else(far, None, milliseconds).cast(kind)
            raise self._far(partition, columns, far.index(True).as_py()) from error

    def _too_far(self, milliseconds: Any) -> Any:
        from pyarrow import compute

        least, most = (self._pa.scalar(sign * MOST_TIME, milliseconds.type) for sign in (-1, 1))
        return compute.or_(
            compute.less(milliseconds, least), compute.greater(milliseconds, most)
        ).fill_null(fill_value=False)

    def _far(self, partition: Partition, columns: Columns, row: int) -> AdapterError:
        return AdapterError(
            f"the record at {self._encode(columns.positions[row])} of {partition} has the timestamp "
            f"{columns.timestamps[row]} ms, which Spark's microseconds cannot hold: set "
            f"timestampOverflow=null, or leave the column timestamp out (option columns)"
        )

    def _headers(self, columns: Columns) -> Any:
        kind = self.schema.field("headers").type
        if columns.headers is None:
            return self._pa.nulls(len(columns), kind)
        return header_lists(columns.headers, kind)

    def _constant(self, name: str, partition: Partition, columns: Columns) -> Any:
        value: str | int | None = {
            "topic": partition.stream,
            "partition": partition_number(partition.id),
            "partitionId": partition.id,
            "timestampType": columns.timestamp_type,
        }[name]
        return repeated(value, self.schema.field(name).type, len(columns))


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Parts of a batch that share its memory, within the limits."""
    for begin in range(0, batch.num_rows, BATCH_ROWS):
        yield from _light(batch.slice(begin, BATCH_ROWS))


def _light(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = batch.num_rows
    if rows == 1 or batch.nbytes <= BATCH_BYTES:
        yield batch
        return
    yield from _light(batch.slice(0, rows // 2))
    yield from _light(batch.slice(rows // 2))
