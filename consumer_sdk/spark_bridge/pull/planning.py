"""Which Spark task reads what.

Three steps, with the reader asked in between: `sound` drops empty ranges and judges what is lost,
`parts_wanted` says into how many parts each range is to be cut, `pack` puts the parts into tasks.
Each task costs about 20 ms, so small ranges share one; large ones are cut where asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from consumer_sdk.range_reads import PartitionRange
from consumer_sdk.records import Partition, Position
from consumer_sdk.spark_bridge.errors import DataLossError

__all__ = ["TASK_RECORDS", "Loss", "Sizing", "Sound", "pack", "parts_wanted", "plan", "sound"]

TASK_RECORDS = 50_000
"""Records that are worth a task of their own, about 20 ms of work."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Records of ``partition`` that the query has yet to read are gone, or may be.

    Attributes:
        reason: a text for people.
    """

    partition: Partition
    reason: str


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


@dataclass(frozen=True, slots=True)
class Sound:
    """What can be read.

    Attributes:
        ranges: none is empty; sorted; each begins at or above the earliest record.
        losses: what cannot be read any more.
    """

    ranges: list[PartitionRange]
    losses: list[Loss]

    def check(self, *, fail: bool) -> list[str]:
        """What is to be logged as a warning.

        Raises:
            DataLossError: something is lost, and ``fail``.
        """
        raise NotImplementedError


def sound(
    ranges: Collection[PartitionRange],
    earliest: Mapping[Partition, Position | None],
    gone: Collection[Partition] = (),
) -> Sound:
    """Judges the ranges of a batch.

    Args:
        ranges: `Offsets.ranges_to`'s.
        earliest: each partition's first position now; None or missing: it is gone.
        gone: `Offsets.gone_in`'s.
    """
    raise NotImplementedError


def parts_wanted(
    ranges: Sequence[PartitionRange], records: Mapping[Partition, int], sizing: Sizing
) -> list[int]:
    """Into how many parts each range is to be cut; 1 for most.

    The I/O half asks ``reader.cut(rest, records / parts)`` for each inner bound.
    """
    raise NotImplementedError


def pack(
    parts: Sequence[tuple[PartitionRange, int | None]], sizing: Sizing
) -> list[list[PartitionRange]]:
    """Tasks, the largest first, about equally large: longest processing time first (Graham 1969).

    Args:
        parts: ranges and about how many records each has; None where nobody can tell.
    """
    raise NotImplementedError


def plan(
    ranges: Sequence[PartitionRange], records: Mapping[Partition, int], sizing: Sizing
) -> list[list[PartitionRange]]:
    """`pack` for ranges that need no cutting."""
    return pack([(each, records.get(each.partition)) for each in ranges], sizing)
