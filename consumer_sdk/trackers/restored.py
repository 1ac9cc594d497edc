"""What a restored checkpoint tells of records that have not been fetched again yet."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from operator import itemgetter

from consumer_sdk.records import Checkpoint, Position
from consumer_sdk.records.ranges import Span

__all__ = ["Restored", "believed", "written_at"]

_DUE = itemgetter(1)
GRAIN = 0.001
"""Seconds: by less, a due time is another through rounding alone."""


def believed(
    checkpoint: Checkpoint, wall: float, longest_wait: float
) -> dict[Position, tuple[int, float]]:
    """The attempts of a checkpoint, without due times that only a clock's mistake can have made.

    A clock that was set, or another host's that is wrong, moves all due times of a checkpoint
    alike, and the time when it was written with them. So nothing waits longer than was left of its
    wait then, or than ``longest_wait`` if that is more.

    Args:
        wall: seconds since the epoch.
        longest_wait: the retry policy's.
    """
    written = checkpoint.written

    def latest(due: float) -> float:
        left = longest_wait if written is None else max(longest_wait, due - written)
        return min(due, wall + left)

    tried = checkpoint.attempts.items()
    return {position: (failures, latest(due)) for position, (failures, due) in tried}


def written_at(
    attempts: Mapping[Position, tuple[int, float]], wall: float, longest_wait: float
) -> float | None:
    """`Checkpoint.written` of one with these attempts: now, if one of them needs it."""
    latest = max(map(_DUE, attempts.values()), default=wall)
    return wall if latest > wall + longest_wait + GRAIN else None


class Restored:
    """The settled ranges and attempts of a checkpoint, until fetching has passed them.

    A log asks in ascending order, so each range and attempt is looked at once and dropped.

    Args:
        checkpoint: what was restored.
        now: monotonic seconds.
        wall: seconds since the epoch.
        longest_wait: the retry policy's; see `believed`.

    Attributes:
        attempts: position → (failures, monotonic seconds). A time that is over is kept as it is,
            so that attempts age while restarts go on.
    """

    __slots__ = ("_coming", "_ranges", "attempts", "resume")

    def __init__(
        self, checkpoint: Checkpoint, now: float, wall: float, longest_wait: float
    ) -> None:
        self.resume = checkpoint.resume
        self.attempts: dict[Position, tuple[int, float]] = {
            position: (failures, now + (due - wall))
            for position, (failures, due) in believed(checkpoint, wall, longest_wait).items()
        }
        # What comes next is last, where it is popped in O(1).
        self._ranges: list[Span] = list(reversed(checkpoint.ranges))
        self._coming: list[Position] = sorted(self.attempts, reverse=True)

    @property
    def is_over(self) -> bool:
        """Fetching has passed all of it."""
        return not self._ranges and not self._coming

    def end_of(self, position: Position) -> Position | None:
        """The end of the settled range that ``position`` lies in; None if it was not settled."""
        while self._ranges and self._ranges[-1][1] < position:
            self._ranges.pop()
        is_settled = self._ranges and self._ranges[-1][0] <= position
        return self._ranges[-1][1] if is_settled else None

    def ranges_below(self, position: Position) -> Iterator[Span]:
        """Settled ranges that fetching has not passed and that begin below ``position``."""
        for span in reversed(self._ranges):
            if span[0] >= position:
                return
            yield span

    def reopen(self, first: Position, last: Position) -> bool:
        """Forgets that ``first`` was settled, if what was settled with it ends before ``last``.

        Returns:
            whether it was.
        """
        end = self.end_of(first)
        is_settled_in_part = end is not None and bool(end < last)
        if is_settled_in_part:
            self._ranges.pop()
        return is_settled_in_part

    def passed(self, position: Position, unseen: Container[Position] = ()) -> None:
        """Fetching has reached ``position``: what lies below is known, or does not exist.

        Args:
            unseen: what may come late; its attempts stay, until they are taken out.
        """
        while self._ranges and self._ranges[-1][1] <= position:
            self._ranges.pop()
        while self._coming and self._coming[-1] <= position:
            passed = self._coming.pop()
            if passed not in unseen:
                del self.attempts[passed]

    def append_to(
        self, watermark: Position | None, spans: list[Span]
    ) -> tuple[Position | None, list[Span]]:
        """Adds the ranges still to come to those that were found."""
        for first, last in reversed(self._ranges):
            if spans and first <= spans[-1][1]:
                spans[-1] = (spans[-1][0], last)
            elif not spans and watermark is not None and first <= watermark:
                watermark = last
            else:
                spans.append((first, last))
        return watermark, spans
