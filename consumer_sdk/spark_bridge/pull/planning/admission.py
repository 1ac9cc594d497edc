"""How far the next micro-batch goes: Spark's admission control.

Spark's own Kafka source is the model: the limit is shared out in proportion to what waits, and a
partition with little is not starved. A batch that Spark wants to read all there is
(``ReadAllAvailable``: ``Trigger.Once``) knows no limits of ours.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from consumer_sdk.records import Partition, Position

__all__ = ["Admitted", "Limit", "Limits", "Whole", "admit", "is_enough", "stops"]

RECORD_BYTES = 1024.0
"""Taken for the size of a record where no partition can tell."""


class Limit(NamedTuple):
    """Spark's ``ReadLimit``: ``ReadMaxRows(5)`` is ``Limit("max_rows", 5)``."""

    kind: Literal["all", "min_rows", "max_rows", "max_bytes", "max_files"]
    number: int = 0


class Whole(enum.Enum):
    """An answer that needs no numbers."""

    ALL = "all"
    """Everything that waits."""
    NOTHING = "nothing"
    """Too little waits: not yet."""


Admitted: TypeAlias = Mapping[Partition, int] | Whole


@dataclass(frozen=True, slots=True)
class Limits:
    """What the options say of one micro-batch.

    Attributes:
        max_records: the most records; each partition gives at least one.
        min_records: fewer wait for more, but
        max_delay: for this many seconds at most, since the last batch.
        max_bytes: as ``max_records``, in stored bytes.
    """

    max_records: int | None = None
    min_records: int | None = None
    max_delay: float = 900.0
    max_bytes: int | None = None

    @property
    def default_limit(self) -> Limit:
        """For ``getDefaultReadLimit``; Spark hands it back when our limits are to be kept."""
        if self.max_records is not None:
            return Limit("max_rows", self.max_records)
        if self.max_bytes is not None:
            return Limit("max_bytes", self.max_bytes)
        if self.min_records is not None:
            return Limit("min_rows", self.min_records)
        return Limit("all")


def admit(
    backlog: Mapping[Partition, int],
    limits: Limits,
    limit: Limit,
    *,
    waited: float,
    is_final: bool = False,
    sizes: Mapping[Partition, float] | None = None,
) -> Admitted:
    """How many records of each partition the next batch takes; those that give none are left out.

    Args:
        backlog: records that wait; about.
        limits: the options'.
        limit: Spark's: with ``"all"`` ours do not count.
        waited: seconds since the last batch was let go; infinite before the first.
        is_final: AvailableNow: nothing is waited for, since no more will come.
        sizes: bytes of a record, where ``max_bytes`` or Spark's ``"max_bytes"`` limits.
    """
    if limit.kind == "all":
        return Whole.ALL
    waiting = {partition: count for partition, count in backlog.items() if count > 0}
    total = sum(waiting.values())
    if not is_enough(waiting, limits, limit, waited=waited, is_final=is_final):
        return Whole.NOTHING
    most = _most(waiting, limits, limit, sizes or {})
    return Whole.ALL if most is None or total <= most else _share(waiting, most, total)


def is_enough(
    backlog: Mapping[Partition, int],
    limits: Limits,
    limit: Limit,
    *,
    waited: float,
    is_final: bool = False,
) -> bool:
    """Enough records wait, or they have for long enough; arguments as `admit`'s."""
    return is_final or waited >= limits.max_delay or sum(backlog.values()) >= _least(limits, limit)


def _least(limits: Limits, limit: Limit) -> int:
    return max(limits.min_records or 0, limit.number if limit.kind == "min_rows" else 0)


def _most(
    waiting: Mapping[Partition, int],
    limits: Limits,
    limit: Limit,
    sizes: Mapping[Partition, float],
) -> int | None:
    """The least of all upper limits, in records."""
    records = [limits.max_records, limit.number if limit.kind == "max_rows" else None]
    numbers = [limits.max_bytes, limit.number if limit.kind == "max_bytes" else None]
    if waiting:
        size = _mean_size(waiting, sizes)
        records += [None if number is None else max(1, int(number / size)) for number in numbers]
    return min((each for each in records if each is not None), default=None)


def _mean_size(waiting: Mapping[Partition, int], sizes: Mapping[Partition, float]) -> float:
    """Bytes of a record that waits; partitions that cannot tell are like the others."""
    known = {partition: count for partition, count in waiting.items() if sizes.get(partition)}
    if not known:
        return RECORD_BYTES
    size = sum(sizes[partition] * count for partition, count in known.items())
    return max(1.0, size / sum(known.values()))


def _share(waiting: Mapping[Partition, int], most: int, total: int) -> dict[Partition, int]:
    """In proportion, but at least one: else what has little would never be read.

    What rounding down leaves over goes to those that it took the most from. Else the last batch of
    a backlog would be a few records that cost as much as a batch.
    """
    shares = {p: most * count // total for p, count in waiting.items()}
    by_rest = sorted(waiting, key=lambda p: (-(most * waiting[p] % total), p))
    for partition in by_rest[: most - sum(shares.values())]:
        shares[partition] += 1
    return {p: max(1, share) for p, share in shares.items()}


def stops(
    starts: Mapping[Partition, Position],
    latest: Mapping[Partition, Position],
    targets: Mapping[Partition, Position] | None = None,
) -> dict[Partition, Position]:
    """Where each partition of ``starts`` may be read up to; those that are gone are left out.

    With ``targets`` (AvailableNow's, frozen when the run began) never beyond them; a partition
    that has none, or one below its start, is not read. A log that now ends below the start is not
    hidden: its end is returned, and `tasks.readable_ranges` reports the loss.
    """
    present = {p: start for p, start in starts.items() if p in latest}
    if targets is None:
        return {partition: latest[partition] for partition in present}
    return {p: _frozen(start, latest[p], targets.get(p, start)) for p, start in present.items()}


def _frozen(start: Position, latest: Position, target: Position) -> Position:
    return latest if latest < start else max(start, min(latest, target))
