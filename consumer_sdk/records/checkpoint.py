"""How far a partition has been processed, and how two checkpoints compare."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from consumer_sdk.errors import CheckpointMismatchError
from consumer_sdk.records.partitions import Position
from consumer_sdk.records.ranges import (
    Gap,
    Interval,
    Span,
    common,
    gaps_above,
    holds,
    is_in,
    is_within,
    join,
    unite,
)

__all__ = ["Checkpoint", "Comparison", "Lost"]

NEVER = (0, float("-inf"))
"""The attempts of a record that has not failed, for comparing."""


class Comparison(enum.Enum):
    """How the settled records of one checkpoint compare with those of another."""

    EQUAL = "equal"
    AHEAD = "ahead"
    BEHIND = "behind"
    DIVERGED = "diverged"


@dataclass(frozen=True, slots=True)
class Lost:
    """What a checkpoint says of positions that the broker does not store.

    Attributes:
        below: ``(start, stop)``: where it would have read on, and the first position that is
            stored; None if that one is not above. The records between, without stop, are gone.
        settled: settled ranges that reach into ``below``; the other records there are lost.
        above: ``(end, last)``: where the log ends, and the last position from there on that was
            known; None if there was none. The log was cut, or is another one.
    """

    below: Span | None = None
    settled: tuple[Span, ...] = ()
    above: Span | None = None

    @property
    def count(self) -> int | None:
        """Unsettled positions in ``below``; None, unknown, where they are not whole numbers."""
        if self.below is None:
            return 0
        if not isinstance(self.below[0], int):
            return None
        start, stop = self.below
        settled = (min(last + 1, stop) - max(first, start) for first, last in self.settled)
        return int(stop - start - sum(settled))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a restart needs so that it redelivers only what was not settled.

    Comparing and merging treat positions as a dense order: ranges that share no position are not
    joined, because a record may lie between them.

    Attributes:
        watermark: the last position of the settled prefix, or None.
        resume: where to read from, inclusive: the first unsettled record seen, else the next
            position, else the last settled one. Everything at or below the watermark is
            suppressed after a restart.
        ranges: settled ``(first, last)`` above the watermark, ascending, inclusive.
        attempts: position → (failed deliveries, due as seconds since the epoch).
        ended: everything was settled and there is nothing more to read.
        identity: changes when a stream is deleted and made again; None where unknown.
        application: the id of the application that made it; None where it has none. Comparing
            takes no notice of it.
        unseen: open intervals of positions that were never delivered, ascending; the first may have
            no lower end. Records in them are not settled, even below the watermark and inside of
            ranges. Empty for brokers that deliver no record late.
        written: when the checkpoint was made, by the clock of the due times, in seconds since the
            epoch. It is set if a wait is longer than the retry policy's. It shows how much of the
            wait was left then, so that a long wait is not taken for a wrong clock.
    """

    watermark: Position | None = None
    resume: Position | None = None
    ranges: tuple[Span, ...] = ()
    attempts: Mapping[Position, tuple[int, float]] = field(default_factory=dict)
    ended: bool = False
    identity: str | None = None
    application: str | None = None
    written: float | None = None
    unseen: tuple[Interval, ...] = ()

    @property
    def start(self) -> Position | None:
        """Where to read from: ``resume``, else the watermark; None for unknown."""
        return self.watermark if self.resume is None else self.resume

    def at(self, position: Position | None) -> Checkpoint:
        """A checkpoint of the same stream and application that has settled nothing, and resumes at this position."""
        return Checkpoint(resume=position, identity=self.identity, application=self.application)

    def is_settled(self, position: Position) -> bool:
        """Whether a record at ``position`` is settled, and so is not delivered again."""
        is_seen = not any(is_in(position, each) for each in self.unseen)
        return is_seen and self._holds((position, position))

    def _holds(self, wanted: Span) -> bool:
        is_in_prefix = self.watermark is not None and bool(wanted[1] <= self.watermark)
        return self.ended or is_in_prefix or holds(self.ranges, wanted)

    def _unsettled(self) -> list[Gap]:
        """What is not settled here, in no order."""
        return [*self.unseen, *gaps_above(self.watermark, self.ranges)]

    def covers(self, other: Checkpoint) -> bool:
        """Whether everything that is settled in ``other`` is settled here.

        Raises:
            CheckpointMismatchError: they belong to different incarnations of the stream.
        """
        self._check_identity(other)
        if self.ended or other.ended:
            return self.ended
        is_ahead = _highest(self.watermark, other.watermark) == self.watermark
        open_there = other._unsettled()
        is_seen = all(any(is_within(each, gap) for gap in open_there) for each in self.unseen)
        return is_ahead and is_seen and all(map(self._holds, other.ranges))

    def compare(self, other: Checkpoint) -> Comparison:
        """Compares what is settled here with what is settled in ``other``.

        Raises:
            CheckpointMismatchError: they belong to different incarnations of the stream.
        """
        if self.covers(other):
            return Comparison.EQUAL if other.covers(self) else Comparison.AHEAD
        return Comparison.BEHIND if other.covers(self) else Comparison.DIVERGED

    def merge(self, other: Checkpoint) -> Checkpoint:
        """Returns a checkpoint that has settled what either of two checkpoints of one partition has settled.

        It resumes at the lower of both starts, or at the watermark if that is higher. So it skips
        no record that one of them knows to be unsettled. Of attempts it keeps the higher count,
        with its due time; of two applications the last in the alphabet; of two times of writing the
        earlier. Order and repetition of merges make no difference.

        Raises:
            CheckpointMismatchError: they belong to different incarnations of the stream.
        """
        self._check_identity(other)
        watermark, ranges = join(
            _highest(self.watermark, other.watermark), self.ranges + other.ranges
        )
        merged = Checkpoint(
            watermark=watermark,
            resume=_highest(watermark, min(_known(self.start, other.start), default=None)),
            ranges=ranges,
            ended=self.ended or other.ended,
            identity=other.identity if self.identity is None else self.identity,
            application=_highest(self.application, other.application),
            written=min(_known(self.written, other.written), default=None),
            unseen=unite(
                [
                    *common(self.unseen, other._unsettled()),
                    *common(other.unseen, self._unsettled()),
                ]
            ),
        )
        attempts = {
            position: max(self.attempts.get(position, NEVER), other.attempts.get(position, NEVER))
            for position in (*self.attempts, *other.attempts)
            if not merged.is_settled(position)
        }
        return replace(merged, attempts=attempts)

    def _check_identity(self, other: Checkpoint) -> None:
        if self.identity != other.identity and None not in (self.identity, other.identity):
            raise CheckpointMismatchError(
                f"checkpoints of identities {self.identity!r} and {other.identity!r}: the stream "
                f"was deleted and made again in between; delete the older checkpoint"
            )

    def clip(
        self, first: Position | None = None, end: Position | None = None
    ) -> tuple[Checkpoint, Lost]:
        """Returns what is left of the checkpoint if the broker stores ``first`` up to ``end``, exclusive.

        It resumes at ``first`` or later. It forgets what it knows of ``end`` and above, because
        other records will be written there: a watermark there, which would suppress them, and a
        range that reaches there, whose records are then delivered again.

        Args:
            first: the first position that is stored; None for no bound.
            end: the next position that will be written; None for no bound.

        Returns:
            the checkpoint, and what was lost. One that has ended stays as it is.
        """
        if self.ended:
            return self, Lost()
        below, above = self._below(first), self._above(end)
        lost = Lost(below, self._settled_in(below), above)
        if above is not None and self.watermark is not None and self.watermark >= end:
            return self.at(end), lost
        resume = first if below else self.resume
        if above is not None and resume is not None and resume > end:
            resume = end if self.watermark is None else _highest(self.watermark, first)
        ranges = tuple(each for each in self.ranges if _is_stored(each[1], first, end))
        attempts = {p: tried for p, tried in self.attempts.items() if _is_stored(p, first, end)}
        return replace(self, resume=resume, ranges=ranges, attempts=attempts), lost

    def _below(self, first: Position | None) -> Span | None:
        start = self.start
        is_below = start is not None and first is not None and start < first
        return (start, first) if is_below else None

    def _settled_in(self, below: Span | None) -> tuple[Span, ...]:
        if below is None:
            return ()
        prefix = () if self.watermark is None else ((below[0], self.watermark),)
        settled = (*prefix, *self.ranges)
        return tuple(each for each in settled if each[1] >= below[0] and each[0] < below[1])

    def _above(self, end: Position | None) -> Span | None:
        if end is None:
            return None
        seen = _known(self.watermark, *(last for _, last in self.ranges[-1:]), *self.attempts)
        known = [position for position in seen if position >= end]
        known += [position for position in _known(self.resume) if position > end]
        return (end, max(known)) if known else None


def _known(*positions: Position | None) -> list[Position]:
    return [position for position in positions if position is not None]


def _highest(*positions: Position | None) -> Position | None:
    return max(_known(*positions), default=None)


def _is_stored(position: Position, first: Position | None, end: Position | None) -> bool:
    return (first is None or position >= first) and (end is None or position < end)
