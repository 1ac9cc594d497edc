"""What tests ask of a range reader again and again."""

from __future__ import annotations

from typing import Any

from consumer_sdk.range_reads import Columns, PartitionRange, RangeReader
from consumer_sdk.records import Partition, StartPoint

__all__ = ["all_of", "offsets", "read", "span", "values"]


def span(topic: str, start: int, stop: int, partition: int = 0) -> PartitionRange:
    """The range of a topic's partition."""
    return PartitionRange(Partition(topic, str(partition)), start, stop)


async def read(reader: RangeReader, wanted: PartitionRange, **options: Any) -> list[Columns]:
    """All parts of a range."""
    return [columns async for columns in reader.read_range(wanted, **options)]


async def all_of(reader: RangeReader, topic: str) -> PartitionRange:
    """What the first partition of a topic holds now."""
    partition = Partition(topic, "0")
    first = await reader.positions([partition], StartPoint.EARLIEST)
    end = await reader.positions([partition], StartPoint.LATEST)
    return PartitionRange(partition, first[partition], end[partition])


def offsets(parts: list[Columns]) -> list[Any]:
    """The positions of all parts."""
    return [position for part in parts for position in part.positions]


def values(parts: list[Columns]) -> list[bytes | None]:
    """The values of all parts."""
    return [value for part in parts for value in part.values]
