"""The columns that Spark sees, and how messages become them.

The first seven are those of Spark's own Kafka source, with the same types, then its ``headers``
(null when there are none, as there). A broker without integer partitions or offsets leaves
``partition`` or ``offset`` null; ``partitionId`` and ``position`` are always filled, as text.
``timestampType`` is Kafka's, 0 or 1, where Spark pulls from Kafka; of a feed it is null: the SDK's
messages do not carry it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from consumer_sdk.records import Message, Partition
from consumer_sdk.spark_bridge.arrow import consecutive, header_lists, import_pyarrow, repeated
from consumer_sdk.spark_bridge.errors import FeedRecordError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "COLUMNS",
    "Place",
    "Rows",
    "are_numbers",
    "arrow_schema",
    "encode",
    "partition_number",
]

COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
    "partitionId": "string",
    "position": "string",
}
"""Names and Spark SQL types."""

Place: TypeAlias = int | str
"""A position as it is stored: an integer offset, or text."""

KEY, VALUE, TIMESTAMP, HEADERS = map(attrgetter, ("key", "value", "timestamp", "headers"))

_BATCH_ROWS = 16_384
# A record batch's binary column counts its bytes in 32 bits.
_BATCH_BYTES = 64 * 2**20
_INT32 = 2**31


@dataclass(slots=True)
class Rows:
    """Messages of one partition and their places, in step."""

    partition: Partition
    messages: Sequence[Message]
    places: Sequence[Place]

    def cut(self, begin: int, end: int) -> Rows:
        """The rows ``begin:end``."""
        return Rows(self.partition, self.messages[begin:end], self.places[begin:end])


def are_numbers(places: Sequence[Place]) -> bool:
    """No place is text: the usual case, told apart at a fraction of the cost of a loop."""
    return isinstance(places, range) or set(map(type, places)) <= {int}


def arrow_schema() -> pa.Schema:
    """Exactly what Spark expects for `COLUMNS`: it compares names, order, types and time zone."""
    pa = import_pyarrow()
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("timestampType", pa.int32()),
            ("headers", pa.list_(pa.field("element", header))),
            ("partitionId", pa.string()),
            ("position", pa.string()),
        ]
    )


def encode(rows: Sequence[Rows]) -> memoryview:
    """An Arrow IPC file with all of them.

    Raises:
        FeedRecordError: one of them does not fit the columns.
    """
    pa = import_pyarrow()
    schema = arrow_schema()
    sink = pa.BufferOutputStream()
    try:
        with pa.ipc.new_file(sink, schema) as file:
            for part in _parts(rows):
                for batch in _fitting(pa, schema, part):
                    file.write_batch(batch)
    except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
        raise FeedRecordError(f"a record does not fit the feed's columns: {error}") from error
    return memoryview(sink.getvalue())


def _parts(rows: Sequence[Rows]) -> Iterator[list[Rows]]:
    """``rows`` in parts of at most `_BATCH_ROWS`."""
    part: list[Rows] = []
    room = _BATCH_ROWS
    for run in rows:
        begin = 0
        while begin < len(run.messages):
            cut = run.cut(begin, begin + room)
            part.append(cut)
            begin += len(cut.messages)
            room -= len(cut.messages)
            if not room:
                yield part
                part, room = [], _BATCH_ROWS
    if part:
        yield part


def _fitting(pa: Any, schema: pa.Schema, part: list[Rows]) -> Iterator[pa.RecordBatch]:
    """One record batch, or more where it has too many bytes."""
    count = sum(len(run.messages) for run in part)
    batch = _record_batch(pa, schema, part)
    if batch is not None and (batch.nbytes <= _BATCH_BYTES or count == 1):
        yield batch
    elif count > 1:
        yield from _fitting(pa, schema, _slice(part, 0, count // 2))
        yield from _fitting(pa, schema, _slice(part, count // 2, count))
    else:
        raise OverflowError("it has 2 GiB or more")


def _slice(part: Sequence[Rows], begin: int, end: int) -> list[Rows]:
    cuts = []
    for run in part:
        cuts.append(run.cut(max(begin, 0), max(end, 0)))
        begin -= len(run.messages)
        end -= len(run.messages)
    return [cut for cut in cuts if cut.messages]


def _record_batch(pa: Any, schema: pa.Schema, part: Sequence[Rows]) -> pa.RecordBatch | None:
    """None: a column has more than 2 GiB, which Arrow answers with an array of several chunks."""
    messages = [*chain.from_iterable(run.messages for run in part)]
    milliseconds = pa.array([*map(TIMESTAMP, messages)], pa.timestamp("ms", tz="UTC"))
    offset, position = _place_columns(pa, part)
    columns = [
        pa.array([*map(KEY, messages)], pa.binary()),
        pa.array([*map(VALUE, messages)], pa.binary()),
        _repeated(pa, part, [run.partition.stream for run in part], pa.string()),
        _repeated(pa, part, [partition_number(run.partition.id) for run in part], pa.int32()),
        offset,
        milliseconds.cast(pa.timestamp("us", tz="UTC")),
        pa.nulls(len(messages), pa.int32()),
        header_lists([*map(HEADERS, messages)], schema.field("headers").type),
        _repeated(pa, part, [run.partition.id for run in part], pa.string()),
        position,
    ]
    if any(isinstance(column, pa.ChunkedArray) for column in columns):
        return None
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _repeated(pa: Any, part: Sequence[Rows], values: Sequence[Any], kind: Any) -> pa.Array:
    runs = zip(values, part, strict=True)
    return pa.concat_arrays([repeated(value, kind, len(run.messages)) for value, run in runs])


def _place_columns(pa: Any, part: Sequence[Rows]) -> tuple[pa.Array, pa.Array]:
    ranges = [run.places for run in part if isinstance(run.places, range)]
    places = [] if len(ranges) == len(part) else [*chain.from_iterable(r.places for r in part)]
    if not are_numbers(places):
        offsets = pa.array([p if isinstance(p, int) else None for p in places], pa.int64())
        return offsets, pa.array([str(place) for place in places], pa.string())
    if places:
        offsets = pa.array(places, pa.int64())
    else:
        offsets = pa.concat_arrays([consecutive(each.start, len(each)) for each in ranges])
    return offsets, offsets.cast(pa.string())


def partition_number(partition_id: str) -> int | None:
    """Kafka's partition number, where the id is one."""
    if partition_id.isascii() and partition_id.isdecimal() and int(partition_id) < _INT32:
        return int(partition_id)
    return None
