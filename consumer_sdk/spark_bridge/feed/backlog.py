"""Which of the segments that wait go into the next micro-batch: Spark's admission control."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from consumer_sdk.spark_bridge.pull.planning.admission import Limit

__all__ = ["Backlog", "Waiting"]


class Waiting(NamedTuple):
    """A segment that Spark has not taken.

    Attributes:
        rows: in it.
        size: bytes of its file.
        at: when it was written, in milliseconds since the epoch.
    """

    rows: int
    size: int
    at: int


@dataclass(slots=True)
class Backlog:
    """Rows and bytes of the segments that Spark has not taken yet.

    Attributes:
        first: the number of the first one.
        segments: each of them, from ``first`` on.
    """

    first: int = 0
    segments: list[Waiting] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The number after the last one."""
        return self.first + len(self.segments)

    @property
    def rows(self) -> int:
        """Of all of them."""
        return sum(each.rows for each in self.segments)

    def behind(self, end: int) -> Sequence[Waiting]:
        """Those that wait behind ``end``."""
        return self.segments[max(0, end - self.first) :]

    def drop_below(self, number: int) -> None:
        """Spark has taken everything below ``number``."""
        del self.segments[: max(0, number - self.first)]
        self.first = max(self.first, number)

    def admit(self, start: int, end: int, limit: Limit) -> int:
        """Where a read that starts at ``start`` ends, at most ``end``; at least one segment."""
        waiting = self.segments[start - self.first : end - self.first]
        match limit.kind:
            case "max_files":
                return start + min(len(waiting), max(1, limit.number))
            case "max_rows":
                return start + _fitting([each.rows for each in waiting], limit.number)
            case "max_bytes":
                return start + _fitting([each.size for each in waiting], limit.number)
            case "min_rows" if sum(each.rows for each in waiting) < limit.number:
                return start
        return start + len(waiting)


def _fitting(costs: Sequence[int], budget: int) -> int:
    """How many of ``costs`` fit; one always does, else a large segment would block for ever."""
    for count, cost in enumerate(costs):
        budget -= cost
        if budget < 0:
            return max(1, count)
    return len(costs)
