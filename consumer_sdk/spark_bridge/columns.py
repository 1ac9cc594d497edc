"""The columns that Spark sees, and how messages become them.

The first seven are those of Spark's own Kafka source, with the same types, then its ``headers``
(null when there are none, as there). A broker without integer partitions or offsets leaves
``partition`` or ``offset`` null; ``partitionId`` and ``position`` are always filled, as text.
``timestampType`` is null: the SDK's messages do not carry it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from consumer_sdk.errors import MissingExtraError
from consumer_sdk.records import Message, Partition
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
    "import_pyarrow",
    "partition_number",
    "warm_up",
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
    return set(map(type, places)) <= {int}


def import_pyarrow() -> Any:
    """The pyarrow module, with its IPC part.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.ipc
    except ModuleNotFoundError as error:
        raise MissingExtraError("pyarrow", "spark") from error
    return pa


def warm_up() -> None:
    """Makes the first conversion as fast as the others: it imports pandas, if that is there."""
    import_pyarrow().array([b""])


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
            for part in _batches(rows):
                file.write_batch(_record_batch(pa, schema, part))
    except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
        raise FeedRecordError(f"a record does not fit the feed's columns: {error}") from error
    return memoryview(sink.getvalue())


def _batches(rows: Sequence[Rows]) -> Iterator[list[Rows]]:
    """``rows`` in parts that fit a record batch."""
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
                yield from _fitting(part)
                part, room = [], _BATCH_ROWS
    yield from _fitting(part)


def _fitting(part: list[Rows]) -> Iterator[list[Rows]]:
    """``part``, halved until the bytes fit."""
    count = sum(len(run.messages) for run in part)
    # Not Message.size: the property's call would cost a third of the whole encoding.
    size = sum([len(m.value or b"") + len(m.key or b"") for run in part for m in run.messages])
    if size <= _BATCH_BYTES or count == 1:
        yield from [part] if part else []
        return
    yield from _fitting(_slice(part, 0, count // 2))
    yield from _fitting(_slice(part, count // 2, count))


def _slice(part: Sequence[Rows], begin: int, end: int) -> list[Rows]:
    cuts = []
    for run in part:
        cuts.append(run.cut(max(begin, 0), max(end, 0)))
        begin -= len(run.messages)
        end -= len(run.messages)
    return [cut for cut in cuts if cut.messages]


def _record_batch(pa: Any, schema: pa.Schema, part: Sequence[Rows]) -> pa.RecordBatch:
    messages = [message for run in part for message in run.messages]
    times = [None if m.timestamp is None else m.timestamp * 1000 for m in messages]
    headers = [[*map(_header, m.headers)] if m.headers else None for m in messages]
    places = [place for run in part for place in run.places]
    offset, position = _place_columns(pa, places)
    columns = [
        pa.array([m.key for m in messages], pa.binary()),
        pa.array([m.value for m in messages], pa.binary()),
        _repeated(pa, part, [run.partition.stream for run in part], pa.string()),
        _repeated(pa, part, [partition_number(run.partition.id) for run in part], pa.int32()),
        offset,
        pa.array(times, pa.timestamp("us", tz="UTC")),
        pa.nulls(len(messages), pa.int32()),
        pa.array(headers, schema.field("headers").type),
        _repeated(pa, part, [run.partition.id for run in part], pa.string()),
        position,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _header(header: tuple[str, bytes | None]) -> dict[str, Any]:
    return {"key": header[0], "value": header[1]}


def _repeated(pa: Any, part: Sequence[Rows], values: Sequence[Any], kind: Any) -> pa.Array:
    runs = zip(values, part, strict=True)
    arrays = [pa.repeat(pa.scalar(value, kind), len(run.messages)) for value, run in runs]
    return pa.concat_arrays(arrays)


def _place_columns(pa: Any, places: Sequence[Place]) -> tuple[pa.Array, pa.Array]:
    if are_numbers(places):
        offsets = pa.array(places, pa.int64())
        return offsets, offsets.cast(pa.string())
    offsets = pa.array([p if isinstance(p, int) else None for p in places], pa.int64())
    return offsets, pa.array([str(place) for place in places], pa.string())


def partition_number(partition_id: str) -> int | None:
    """Kafka's partition number, where the id is one."""
    if partition_id.isascii() and partition_id.isdecimal() and int(partition_id) < _INT32:
        return int(partition_id)
    return None
