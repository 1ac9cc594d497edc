"""What a flush makes durable, and the outcome of that."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

from consumer_sdk.records.checkpoint import Checkpoint
from consumer_sdk.records.partitions import Assignment, Position

__all__ = ["AckFlush", "Committed", "Explanation", "Outcome", "OutcomeKind", "SettledRecords"]


class SettledRecords(Sequence[tuple[Position, Any]]):
    """Positions and native handles, as two lists; a pair is made when it is read.

    Attributes:
        positions, natives: of each record.
    """

    __slots__ = ("natives", "positions")

    def __init__(self, positions: Sequence[Position], natives: Sequence[Any]) -> None:
        self.positions = positions
        self.natives = natives

    @classmethod
    def of(cls, pairs: Sequence[tuple[Position, Any]]) -> SettledRecords:
        """Makes them of pairs."""
        if isinstance(pairs, cls):
            return pairs
        return cls([position for position, _ in pairs], [native for _, native in pairs])

    def __len__(self) -> int:
        return len(self.positions)

    @overload
    def __getitem__(self, at: int) -> tuple[Position, Any]: ...
    @overload
    def __getitem__(self, at: slice) -> SettledRecords: ...
    def __getitem__(self, at: int | slice) -> tuple[Position, Any] | SettledRecords:
        if isinstance(at, slice):
            return SettledRecords(self.positions[at], self.natives[at])
        return self.positions[at], self.natives[at]

    def __iter__(self) -> Iterator[tuple[Position, Any]]:
        return zip(self.positions, self.natives, strict=True)


@dataclass(slots=True, eq=False)
class AckFlush:
    """What one flush makes durable for one assignment.

    Attributes:
        assignment: whose it is.
        number: its place among the flushes of this assignment, from 1.
        checkpoint: the state that it makes durable.
        settled: (position, native handle) of each newly settled record, if the adapter needs them.
        is_copy: a store holds the checkpoint; the broker gets the position for its lag tools.
        outputs: in a run with transactions, the `OutputBook` of the handlers' outputs; otherwise
            None.
        rejected: for a queue: the records in `settled` whose dead letters are durable.
        released: records that are given back to the broker, because they would wait too long for
            their next attempt.
    """

    assignment: Assignment
    number: int
    checkpoint: Checkpoint
    settled: Sequence[tuple[Position, Any]] = ()
    is_copy: bool = False
    outputs: Any = None
    rejected: Collection[Position] = ()
    released: Collection[Position] = ()


@dataclass(frozen=True, slots=True)
class Committed:
    """The position of a group, as the broker has it.

    Attributes:
        checkpoint: the position, and the rest of the commit.
        is_foreign: an operator's tool or another program wrote it, not this SDK. The consumer
            follows it, even if a store has another position.
        is_copy: it is the copy of a store's checkpoint (`AckFlush.is_copy`), so the store's
            position counts; True also if the adapter cannot tell. A commit of a consumer without a
            store is no copy, and is followed like a foreign one.
        is_partial: this SDK has written more than the position, and that part cannot be read.
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


_DONE = (OutcomeKind.DURABLE, OutcomeKind.SENT)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to one flush.

    Attributes:
        kind: DURABLE; SENT (all that Pulsar can show); RETRY (nothing is known to be
            written); FENCED (another owner has taken over); GONE (the topic or shard no
            longer exists).
        covered: the position up to which ranges were written when a size budget dropped the
            top ones; None for all of it.
        error: the reason, for RETRY, FENCED and GONE. With DURABLE: some of the records no longer
            belonged to this consumer, and are delivered again; waits for the flush raise this
            error.
        forgotten: failed records whose attempts a size budget dropped: they are counted anew after
            a restart.
    """

    kind: OutcomeKind
    covered: Position | None = None
    error: Exception | None = None
    forgotten: int = 0

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do for the flush: DURABLE, or SENT."""
        return self.kind in _DONE

    @classmethod
    def retry(cls, error: Exception) -> Outcome:
        """An outcome that asks for another try."""
        return cls(OutcomeKind.RETRY, error=error)

    @classmethod
    def durable(cls, covered: Position | None = None, forgotten: int = 0) -> Outcome:
        """An outcome that says what was asked for is durable."""
        if covered is None and not forgotten:
            return _DURABLE  # of most flushes, of which there may be thousands at a time
        return cls(OutcomeKind.DURABLE, covered, forgotten=forgotten)


_DURABLE = Outcome(OutcomeKind.DURABLE)


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
        state: what that record is doing. From a tracker: ``"open"``, ``"retrying"``,
            ``"dead-lettering"``. From `Consumer.explain`, instead of open: ``"queued"``, ``"behind a
            retry"`` of its key, ``"running"`` in a handler, ``"handed out"`` to whoever pulls, or
            ``"awaiting branches"`` of its tree.
        attempts: its failed deliveries.
        age: seconds since it was tracked.
        flush_number: the number of the next flush.
        durable_number: the last flush that is durable.
        key: that record's key, where it is known.
        running: seconds for which its handler has been running.
        held_back: why the partition is not fetched until somebody resumes it; None if it is
            fetched.
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
    key: bytes | None = None
    running: float | None = None

    def __str__(self) -> str:
        return self._progress() + (f"; {self.held_back}" if self.held_back else "")

    def _doing(self) -> str:
        since = "" if self.running is None else f" for {self.running:.1f} s"
        return f"{self.state}{since}" + ("" if self.key is None else f", key {self.key!r}")

    def _progress(self) -> str:
        if self.pinned_by is None:
            return f"settled up to {self.watermark!r}; nothing is unsettled"
        return (
            f"pinned by {self.pinned_by!r} ({self._doing()}, age {self.age:.1f} s, failed attempts "
            f"{self.attempts}); holes {self.holes}, unsettled {self.unsettled}, bytes "
            f"{self.unsettled_bytes}"
        )
