"""Reading committed segments: shared by the batch and the streaming reader. Stateless."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consumer_sdk.spark_bridge.columns import arrow_schema, import_pyarrow
from consumer_sdk.spark_bridge.errors import FeedFormatError
from consumer_sdk.spark_bridge.manifest import Manifest
from consumer_sdk.spark_bridge.manifest_log import SEGMENTS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SegmentFile", "pack", "read_segments"]

# A Spark task more costs some 20 ms on a small machine; reading this much costs about as long.
_TASK_BYTES = 8 * 2**20


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


def read_segments(directory: str, files: Sequence[SegmentFile]) -> Iterator[pa.RecordBatch]:
    """The record batches of ``files``, mapped into memory rather than copied.

    Raises:
        FeedFormatError: a file is missing or is not what its manifest says.
    """
    pa = import_pyarrow()
    schema = arrow_schema()
    for file in files:
        yield from _read(pa, schema, Path(directory, SEGMENTS, file.name), file)


def _read(pa: Any, schema: pa.Schema, path: Path, file: SegmentFile) -> Iterator[pa.RecordBatch]:
    try:
        with pa.memory_map(str(path)) as source:
            _verify(path, file, source.read_buffer())
            source.seek(0)
            reader = pa.ipc.open_file(source)
            if not reader.schema.equals(schema):
                raise FeedFormatError(f"segment {path} has other columns: {reader.schema}")
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)
    except (OSError, pa.ArrowException) as error:
        raise FeedFormatError(f"segment {path} cannot be read: {error}") from error


def _verify(path: Path, file: SegmentFile, data: pa.Buffer) -> None:
    if data.size != file.size:
        raise FeedFormatError(
            f"segment {path} has {data.size} bytes, its manifest says {file.size}: "
            "restore it from a copy"
        )
    if zlib.crc32(data) != file.crc32:
        raise FeedFormatError(f"segment {path} is damaged: its checksum does not match")
