"""Columns of records as Arrow record batches, exactly as Spark's own Kafka source types them.

Columns of a reader that makes Arrow arrays are taken as they are; the rest costs next to nothing:
consecutive offsets are added up by Arrow, and what is the same in all rows of a partition is a
slice of one array that is made once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from consumer_sdk.errors import AdapterError
from consumer_sdk.range_reads import ArrowColumn, Columns, RangeReader
from consumer_sdk.records import Partition
from consumer_sdk.spark_bridge.arrow import consecutive, header_lists, import_pyarrow, repeated
from consumer_sdk.spark_bridge.columns import arrow_schema, partition_number

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BATCH_BYTES", "BATCH_ROWS", "ArrowRows"]

BATCH_ROWS = 50_000
"""Spark takes batches of 2 000 to 250 000 rows equally fast; this keeps a worker small."""

BATCH_BYTES = 64 * 2**20
"""Far below the 2 GiB at which an Arrow binary column's 32-bit counts run over."""


class ArrowRows:
    """Turns columns into record batches of chosen columns.

    Args:
        names: which of `consumer_sdk.spark_bridge.columns.COLUMNS`, in this order.
        reader: gives positions their text form.
    """

    def __init__(self, names: Sequence[str], reader: RangeReader) -> None:
        self._pa = import_pyarrow()
        schema = arrow_schema()
        self.schema: pa.Schema = self._pa.schema([schema.field(name) for name in names])
        self._encode = reader.encode_position

    def batches(self, partition: Partition, columns: Columns) -> Iterator[pa.RecordBatch]:
        """Record batches of at most `BATCH_ROWS` rows and, where a row is no more, `BATCH_BYTES`.

        Raises:
            AdapterError: a key, value or list of headers has 2 GiB or more.
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
                return self._times(columns.timestamps)
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

    def _times(self, times: Sequence[int | None]) -> Any:
        milliseconds = self._array(times, self._pa.timestamp("ms", tz="UTC"))
        return milliseconds.cast(self._pa.timestamp("us", tz="UTC"))

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
