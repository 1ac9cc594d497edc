"""Who is alive, as one observer sees it: by counters that move, never by a clock of others.

Each member counts its renewals. Whoever has seen a counter stand still for long enough, by its own
clock, takes the member for dead; the lease table of Amazon's Kinesis Client Library works like
this. Beyond that, no more than a third of the duration is counted between two observations: after
an outage of the store, in which nobody could renew, or a sleep of the observer, those who are
alive have the time to say so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

__all__ = ["Liveness"]


class Liveness:
    """What one observer knows of the others.

    Args:
        duration: seconds of silence after which a member is dead.
    """

    __slots__ = ("_counters", "_duration", "_last", "_silence")

    def __init__(self, duration: float) -> None:
        self._duration = duration
        self._last = math.inf
        self._counters: dict[str, int] = {}
        self._silence: dict[str, float] = {}

    def observe(self, counters: Mapping[str, int], asked: float, answered: float) -> frozenset[str]:
        """Who is alive.

        Args:
            counters: of all members that are there.
            asked: monotonic seconds, when the counters were asked for.
            answered: likewise, when they came.
        """
        elapsed = min(max(asked - self._last, 0.0), self._duration / 3)
        self._silence = {
            member: self._silence[member] + elapsed if self._counters.get(member) == count else 0.0
            for member, count in counters.items()
        }
        self._last, self._counters = answered, dict(counters)
        return frozenset(m for m, silence in self._silence.items() if silence < self._duration)
