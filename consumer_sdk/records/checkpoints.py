"""What is made durable, and the answer to that."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from consumer_sdk.records.partitions import Assignment, Position
from consumer_sdk.records.progress import Checkpoint

__all__ = ["AckFlush", "Committed", "Explanation", "Outcome", "OutcomeKind"]


@dataclass(slots=True, eq=False)
class AckFlush:
    """What one flush makes durable for one assignment.

    Attributes:
        assignment: whose it is.
        number: its place among the flushes of this assignment, from 1.
        checkpoint: the state that it makes durable.
        settled: (position, native handle) of what was newly settled, where the adapter asks.
        is_copy: a store holds the checkpoint; the broker is told for its lag tools.
    """

    assignment: Assignment
    number: int
    checkpoint: Checkpoint
    settled: Sequence[tuple[Position, Any]] = ()
    is_copy: bool = False


@dataclass(frozen=True, slots=True)
class Committed:
    """Where a broker says that a group stands.

    Attributes:
        checkpoint: the position, and whatever else the commit carries.
        is_foreign: this SDK did not write it: an operator's tool or another program was there.
            It is honoured, also where a store knows of another position.
        is_copy: a store held the checkpoint (`AckFlush.is_copy`) and knows better, as it does where
            an adapter cannot tell. What a consumer without a store has committed is none, and is
            honoured like what is foreign.
        is_partial: this SDK has written more than the position, which cannot be read.
    """

    checkpoint: Checkpoint
    is_foreign: bool = False
    is_copy: bool = True
    is_partial: bool = False


class OutcomeKind(enum.Enum):
    """How an attempt to make a flush durable ended."""

    DURABLE = "durable"
    SENT = "sent"
    RETRY = "retry"
    FENCED = "fenced"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to one flush.

    Attributes:
        kind: DURABLE; SENT (all that Pulsar can show); RETRY (nothing is known to be
            written); FENCED (another owner has taken over); GONE (the topic or shard no
            longer exists).
        covered: the position up to which ranges were written when a size budget dropped the
            top ones; None for all of it.
        error: why, for RETRY, FENCED and GONE.
    """

    kind: OutcomeKind
    covered: Position | None = None
    error: Exception | None = None

    @classmethod
    def retry(cls, error: Exception) -> Outcome:
        """An outcome that asks for another try."""
        return cls(OutcomeKind.RETRY, error=error)

    @classmethod
    def durable(cls, covered: Position | None = None) -> Outcome:
        """An outcome that says what was asked for is durable."""
        return cls(OutcomeKind.DURABLE, covered)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a partition's watermark is where it is.

    Attributes:
        watermark: the last position of the settled prefix, or None.
        unsettled: records tracked and not settled.
        unsettled_bytes: their size, estimated.
        holes: unsettled stretches below the last settled record.
        retrying: records waiting for their next delivery.
        dead_lettering: records waiting for their dead letter to be durable.
        pinned_by: the first unsettled position, or None.
        index: that record's index, or None.
        state: what that record is doing: ``"open"``, ``"retrying"``, ``"dead-lettering"``.
        attempts: its failed deliveries.
        age: seconds since it was tracked.
        flush_number: the number of the next flush.
        durable_number: the last flush that is durable.
        held_back: why the partition is not fetched until somebody says so; None where it is.
    """

    watermark: Position | None
    unsettled: int
    unsettled_bytes: int
    holes: int
    retrying: int
    dead_lettering: int
    pinned_by: Position | None
    index: int | None
    state: str | None
    attempts: int
    age: float
    flush_number: int
    durable_number: int
    held_back: str | None = None

    def __str__(self) -> str:
        return self._progress() + (f"; {self.held_back}" if self.held_back else "")

    def _progress(self) -> str:
        if self.pinned_by is None:
            return f"settled up to {self.watermark!r}; nothing is unsettled"
        return (
            f"pinned by {self.pinned_by!r} ({self.state}, age {self.age:.1f} s, failed attempts "
            f"{self.attempts}); holes {self.holes}, unsettled {self.unsettled}, bytes "
            f"{self.unsettled_bytes}"
        )
