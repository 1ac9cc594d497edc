"""Segments: how messages become the rows of one, and how Spark reads it. Stateless.

A segment is an Arrow IPC file with the columns that Spark sees. Rows of one partition are together.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import Assignment, Message, Partition, Position
from consumer_sdk.spark_bridge.arrow import consecutive, header_lists, import_pyarrow, repeated
from consumer_sdk.spark_bridge.columns import arrow_schema, partition_number
from consumer_sdk.spark_bridge.errors import FeedFormatError, FeedRecordError
from consumer_sdk.spark_bridge.feed.files import Files
from consumer_sdk.spark_bridge.feed.manifest_log import SEGMENTS
from consumer_sdk.spark_bridge.feed.manifests import Manifest

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Place",
    "Rows",
    "SegmentFile",
    "are_numbers",
    "count_rows",
    "encode",
    "pack",
    "place_text",
    "read_segments",
    "rows_of",
]

Place: TypeAlias = int | str
"""A position as it is stored: an integer offset, or text."""

KEY, VALUE, TIMESTAMP, HEADERS = map(attrgetter, ("key", "value", "timestamp", "headers"))

_BATCH_ROWS = 16_384
# A record batch's binary column counts its bytes in 32 bits.
_BATCH_BYTES = 64 * 2**20
ASSIGNMENT, POSITION = map(attrgetter, ("assignment", "position"))
_INT64 = range(-(2**63), 2**63)
# A Spark task more costs some 20 ms on a small machine; reading this much costs about as long.
_TASK_BYTES = 8 * 2**20


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
    """No place is text. It is the usual case, and this finds out faster than a loop would."""
    return isinstance(places, range) or set(map(type, places)) <= {int}


def place_text(position: Position) -> str:
    """A position's text form where no other is asked for.

    Raises:
        ConfigurationError: it is neither an integer, nor text, nor a tuple of integers.
    """
    if isinstance(position, int | str):
        return str(position)
    if isinstance(position, tuple) and all(isinstance(part, int) for part in position):
        return ":".join(map(str, position))
    raise ConfigurationError(
        f"position {position!r} has no text form of its own: "
        "pass SparkFeed(..., encode_position=adapter.encode_position)"
    )


def rows_of(messages: Iterable[Message], encode_position: Callable[[Position], str]) -> list[Rows]:
    """The messages in order, each partition once.

    Raises:
        FeedRecordError: a position has no text form.
    """
    granted: defaultdict[Assignment, list[Message]] = defaultdict(list)
    for assignment, run in groupby(messages, ASSIGNMENT):
        granted[assignment] += run
    # A partition that was lost and granted again may be here under both assignments.
    parts: defaultdict[Partition, list[Message]] = defaultdict(list)
    for assignment, part in granted.items():
        parts[assignment.partition] += part
    return [Rows(key, part, _places(part, encode_position)) for key, part in parts.items()]


def count_rows(rows: Sequence[Rows]) -> int:
    """How many messages these are."""
    return sum(len(run.messages) for run in rows)


def _places(messages: Sequence[Message], encode: Callable[[Position], str]) -> Sequence[Place]:
    positions = [*map(POSITION, messages)]
    if (whole := _as_range(positions)) is not None:
        return whole
    if are_numbers(positions) and min(positions) in _INT64 and max(positions) in _INT64:
        return positions
    return [_place(position, encode) for position in positions]


def _as_range(positions: Sequence[Any]) -> range | None:
    """What most are: consecutive integers."""
    first, last = positions[0], positions[-1]
    if not type(first) is type(last) is int or last - first + 1 != len(positions):
        return None
    is_stored = first in _INT64 and last in _INT64
    whole = range(first, last + 1)
    return whole if is_stored and positions == [*whole] else None


def _place(position: Position, encode: Callable[[Position], str]) -> Place:
    if type(position) is int and position in _INT64:
        return position
    try:
        text = encode(position)
    except Exception as error:
        raise FeedRecordError(f"encode_position({position!r}) failed: {error!r}") from error
    if not isinstance(text, str):
        # Unlike text, nothing else would be recognised when it is put again.
        raise FeedRecordError(f"encode_position({position!r}) returned {text!r}, which is not text")
    return text


# -- rows as a file ------------------------------------------------------------------------


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
        yield from _fitting(pa, schema, _sliced(part, 0, count // 2))
        yield from _fitting(pa, schema, _sliced(part, count // 2, count))
    else:
        raise OverflowError("it has 2 GiB or more")


def _sliced(part: Sequence[Rows], begin: int, end: int) -> list[Rows]:
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


# -- reading -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A segment as its manifest describes it."""

    name: str
    size: int
    crc32: int

    @classmethod
    def of(cls, manifest: Manifest) -> SegmentFile:
        """The file that ``manifest`` commits."""
        return cls(manifest.segment, manifest.size, manifest.crc32)


def pack(files: Sequence[SegmentFile], most: int) -> list[list[SegmentFile]]:
    """``files``, in order, in at most ``most`` parts of about the same bytes; none is empty."""
    total = sum(file.size for file in files)
    count = min(most, -(-total // _TASK_BYTES))
    parts: list[list[SegmentFile]] = [[] for _ in range(count)]
    before = 0
    for file in files:
        middle = before + file.size // 2
        parts[min(middle * count // total, count - 1)].append(file)
        before += file.size
    return [part for part in parts if part]


def read_segments(files: Files, segments: Sequence[SegmentFile]) -> Iterator[pa.RecordBatch]:
    """The record batches of ``segments``, mapped into memory rather than copied, where it can be.

    Raises:
        FeedFormatError: a file is missing or is not what its manifest says.
    """
    pa = import_pyarrow()
    schema = arrow_schema()
    for segment in segments:
        path = f"{files.directory}/{SEGMENTS}/{segment.name}"
        try:
            data = files.buffer(f"{SEGMENTS}/{segment.name}")
            _verify(path, segment, data)
            yield from _batches(pa, schema, path, data)
        except FileNotFoundError as error:
            raise FeedFormatError(
                f"segment {path} is not there: it was deleted early, by hand, or because every "
                "reader that was known had committed it (a query without ?retention=committed "
                "holds nothing back); restore it, or start with a new checkpoint"
            ) from error
        except (OSError, pa.ArrowException) as error:
            raise FeedFormatError(f"segment {path} cannot be read: {error}") from error


def _batches(pa: Any, schema: pa.Schema, path: str, data: pa.Buffer) -> Iterator[pa.RecordBatch]:
    reader = pa.ipc.open_file(data)
    if not reader.schema.equals(schema):
        raise FeedFormatError(f"segment {path} has other columns: {reader.schema}")
    for number in range(reader.num_record_batches):
        yield reader.get_batch(number)


def _verify(path: str, file: SegmentFile, data: pa.Buffer) -> None:
    if data.size != file.size:
        raise FeedFormatError(
            f"segment {path} has {data.size} bytes, its manifest says {file.size}: "
            "restore it from a copy"
        )
    if zlib.crc32(data) != file.crc32:
        raise FeedFormatError(f"segment {path} is damaged: its checksum does not match")
