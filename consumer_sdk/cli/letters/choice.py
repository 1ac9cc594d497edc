"""Which dead letters an operator means. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from consumer_sdk.records import DeadLetter

__all__ = ["Choice", "Pace"]


@dataclass(frozen=True, slots=True)
class Choice:
    """A letter is chosen if it is all of what was asked for.

    Attributes:
        error_type: the error's whole name, or its last part: ``JSONDecodeError``.
        stream: where the record came from.
        since: seconds since the epoch at or after which it was given up.
        places: where the letters are; None for everywhere.
    """

    error_type: str | None = None
    stream: str | None = None
    since: float | None = None
    places: frozenset[str] | None = None

    def matches(self, place: str, letter: DeadLetter) -> bool:
        """Whether a letter is meant."""
        name = letter.error_type
        return (
            self.error_type in (None, name, name.rpartition(".")[2])
            and self.stream in (None, letter.partition.stream)
            and (self.since is None or letter.failed_at >= self.since)
            and (self.places is None or place in self.places)
        )


@dataclass(slots=True)
class Pace:
    """So many a second at most.

    Attributes:
        rate: letters a second; None for no limit.
        free_at: when the next one may go, on the clock of whoever asks.
    """

    rate: float | None
    free_at: float = 0.0

    @property
    def at_once(self) -> int:
        """Letters that may go in one step: a tenth of a second's, and one at least."""
        return MOST_AT_ONCE if self.rate is None else min(max(int(self.rate / 10), 1), MOST_AT_ONCE)

    def wait(self, count: int, now: float) -> float:
        """Seconds to wait before so many go."""
        if self.rate is None:
            return 0.0
        begin = max(self.free_at, now)
        self.free_at = begin + count / self.rate
        return begin - now


MOST_AT_ONCE = 100
