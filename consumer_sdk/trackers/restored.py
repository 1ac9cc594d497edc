"""What a checkpoint knows of records that have not been fetched again yet."""

from __future__ import annotations

from consumer_sdk.records import Checkpoint, Position
from consumer_sdk.trackers.chunks import Span

__all__ = ["Restored"]


class Restored:
    """The settled ranges and attempts of a checkpoint, until fetching has passed them.

    A log asks in ascending order, so each range and attempt is looked at once and dropped.

    Args:
        checkpoint: what was restored.
        now: monotonic seconds.
        wall: seconds since the epoch.
        longest_wait: a restored delay is clamped to this, in case a clock was set.

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
            position: (failures, now + min(due - wall, longest_wait))
            for position, (failures, due) in checkpoint.attempts.items()
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

    def passed(self, position: Position) -> None:
        """Fetching has reached ``position``: what lies below is known, or does not exist."""
        while self._ranges and self._ranges[-1][1] <= position:
            self._ranges.pop()
        while self._coming and self._coming[-1] <= position:
            del self.attempts[self._coming.pop()]

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
