"""What a tracker finds in a run when it has to look at each record."""

from __future__ import annotations

from dataclasses import dataclass, field

from consumer_sdk.records import Tracked

__all__ = ["TrackedLists"]


@dataclass(slots=True)
class TrackedLists:
    """The lists of a `Tracked`, while they grow."""

    dropped: list[int] = field(default_factory=list)
    settled: list[int] = field(default_factory=list)
    known: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    late: dict[int, int] = field(default_factory=dict)
    tries: dict[int, int] = field(default_factory=dict)
    exhausted: list[int] = field(default_factory=list)

    def tracked(self, first: int, end: int) -> Tracked:
        """The result, for the indices from ``first`` up to ``end``, and of what came late."""
        return Tracked(
            first,
            end - first + len(self.late),
            dropped=self.dropped,
            settled=self.settled,
            known=self.known,
            late=self.late,
            held=self.held,
            tries=self.tries,
            exhausted=self.exhausted,
        )
