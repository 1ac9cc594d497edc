"""What a checkpoint knows of records that have not been fetched again yet."""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter

from consumer_sdk.records import Checkpoint, Position
from consumer_sdk.trackers.chunks import Span

__all__ = ["Restored"]


class Restored:
    """The settled ranges and attempts of a checkpoint, until fetching has passed them.

    Args:
        checkpoint: what was restored.
        now: monotonic seconds.
        wall: seconds since the epoch.
        longest_wait: a restored delay is clamped to this, in case a clock was set.
    """

    __slots__ = ("attempts", "ranges", "resume", "top")

    def __init__(
        self, checkpoint: Checkpoint, now: float, wall: float, longest_wait: float
    ) -> None:
        self.resume = checkpoint.resume
        self.ranges: list[Span] = list(checkpoint.ranges)
        self.attempts: dict[Position, tuple[int, float]] = {
            position: (failures, now + min(max(due - wall, 0.0), longest_wait))
            for position, (failures, due) in checkpoint.attempts.items()
        }
        tops = [*self.attempts, *(last for _, last in self.ranges[-1:])]
        self.top: Position | None = max(tops, default=None)

    def end_of(self, position: Position) -> Position | None:
        """The end of the settled range that ``position`` lies in; None if it was not settled."""
        at = bisect_right(self.ranges, position, key=itemgetter(0)) - 1
        return self.ranges[at][1] if at >= 0 and position <= self.ranges[at][1] else None

    def passed(self, position: Position) -> None:
        """Fetching has reached ``position``: what lies below is known, or does not exist."""
        if self.top is None:
            return
        if position >= self.top:
            self.ranges, self.attempts, self.top = [], {}, None
            return
        del self.ranges[: bisect_right(self.ranges, position, key=itemgetter(1))]
        self.attempts = {p: a for p, a in self.attempts.items() if p > position}

    def append_to(
        self, watermark: Position | None, spans: list[Span]
    ) -> tuple[Position | None, list[Span]]:
        """Adds the ranges still to come to those that were found."""
        for first, last in self.ranges:
            if spans and first <= spans[-1][1]:
                spans[-1] = (spans[-1][0], last)
            elif not spans and watermark is not None and first <= watermark:
                watermark = last
            else:
                spans.append((first, last))
        return watermark, spans
