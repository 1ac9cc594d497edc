"""How far the next micro-batch goes: Spark's admission control.

Spark's own Kafka source is the model: the limit is shared out in proportion to what waits, and a
partition with little is not starved. A batch that reads all that there is to be
(``ReadAllAvailable``: ``Trigger.Once``, or no limits) knows no limits of ours.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from consumer_sdk.records import Partition, Position

__all__ = ["Admitted", "Limit", "Limits", "Whole", "admit", "stops"]


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
        max_records: about the most records.
        min_records: fewer wait for more, but
        max_delay: seconds since the last batch at most.
        max_bytes: about the most stored bytes.
    """

    max_records: int | None = None
    min_records: int | None = None
    max_delay: float = 900.0
    max_bytes: int | None = None

    @property
    def needs_records(self) -> bool:
        """`admit` has to know how many records wait."""
        return (self.max_records or self.min_records or self.max_bytes) is not None

    @property
    def default_limit(self) -> Limit:
        """For ``getDefaultReadLimit``: Spark hands it back when limits are to be kept."""
        raise NotImplementedError


def admit(
    backlog: Mapping[Partition, int],
    limits: Limits,
    limit: Limit,
    *,
    waited: float,
    is_final: bool = False,
    sizes: Mapping[Partition, float] | None = None,
) -> Admitted:
    """How many records of each partition the next batch takes.

    Args:
        backlog: records that wait; about.
        limits: the options'.
        limit: Spark's: with ``"all"`` ours do not count.
        waited: seconds since the last batch was let go; infinite before the first.
        is_final: AvailableNow: nothing is waited for, since nothing more will come.
        sizes: bytes of a record, where ``max_bytes`` or Spark's ``"max_bytes"`` limits.
    """
    raise NotImplementedError


def stops(
    starts: Mapping[Partition, Position],
    latest: Mapping[Partition, Position],
    targets: Mapping[Partition, Position] | None = None,
) -> dict[Partition, Position]:
    """Where each partition may be read up to, before `admit`.

    With ``targets`` (AvailableNow's, frozen when the run began) never beyond them, and partitions
    that have none are not read at all. A target below the start is the start. A log that now ends
    below the start is not hidden: its end is returned, and the plan reports the loss.
    """
    raise NotImplementedError
