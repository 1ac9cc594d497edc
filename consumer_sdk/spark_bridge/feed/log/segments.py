"""Reading committed segments: shared by the batch and the streaming reader. Stateless."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from consumer_sdk.spark_bridge.arrow import import_pyarrow
from consumer_sdk.spark_bridge.columns import arrow_schema
from consumer_sdk.spark_bridge.errors import FeedFormatError
from consumer_sdk.spark_bridge.feed.log.files import Files
from consumer_sdk.spark_bridge.feed.log.manifest_log import SEGMENTS
from consumer_sdk.spark_bridge.feed.manifests import Manifest

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
