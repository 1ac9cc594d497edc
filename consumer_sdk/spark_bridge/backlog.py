"""Which of the segments that wait go into the next micro-batch: Spark's admission control."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from consumer_sdk.spark_bridge.pull.admission import Limit

__all__ = ["Backlog"]


@dataclass(slots=True)
class Backlog:
    """Rows and bytes of the segments that Spark has not taken yet.

    Attributes:
        first: the number of the first one.
        sizes: rows and bytes of each, from ``first`` on.
    """

    first: int = 0
    sizes: list[tuple[int, int]] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The number after the last one."""
        return self.first + len(self.sizes)

    @property
    def rows(self) -> int:
        """Of all of them."""
        return sum(rows for rows, _ in self.sizes)

    def drop_below(self, number: int) -> None:
        """Spark has taken everything below ``number``."""
        del self.sizes[: max(0, number - self.first)]
        self.first = max(self.first, number)

    def admit(self, start: int, end: int, limit: Limit) -> int:
        """Where a read that starts at ``start`` ends, at most ``end``; at least one segment."""
        sizes = self.sizes[start - self.first : end - self.first]
        match limit.kind:
            case "max_files":
                return start + min(len(sizes), max(1, limit.number))
            case "max_rows":
                return start + _fitting([rows for rows, _ in sizes], limit.number)
            case "max_bytes":
                return start + _fitting([size for _, size in sizes], limit.number)
            case "min_rows" if sum(rows for rows, _ in sizes) < limit.number:
                return start
        return start + len(sizes)


def _fitting(costs: Sequence[int], budget: int) -> int:
    """How many of ``costs`` fit; one always does, else a large segment would block for ever."""
    for count, cost in enumerate(costs):
        budget -= cost
        if budget < 0:
            return max(1, count)
    return len(costs)
