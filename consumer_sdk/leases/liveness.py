"""Which members are alive, as one observer sees it: by counters that move, never by another host's clock.

Each member counts its renewals. An observer that has seen a counter stand still for long enough, by its
own clock, takes the member for dead; the lease table of Amazon's Kinesis Client Library works like
this. In addition, the observer counts no more than a third of the duration between two observations.
So after an outage of the store, in which nobody could renew, or after a sleep of the observer, the
living have time to renew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

__all__ = ["Liveness"]


class Liveness:
    """What one observer knows of the others.

    Args:
        duration: seconds of silence after which a member is dead.
    """

    __slots__ = ("_began", "_counters", "_duration", "_heard", "_last", "_silence")

    def __init__(self, duration: float) -> None:
        self._duration = duration
        self._began = math.inf
        self._last = math.inf
        self._counters: dict[str, int] = {}
        self._silence: dict[str, float] = {}
        self._heard: set[str] = set()

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
        self._began = min(self._began, answered)
        self._heard &= counters.keys()
        self._heard |= {m for m, count in counters.items() if self._is_heard(m, count, answered)}
        self._last, self._counters = answered, dict(counters)
        return frozenset(m for m, silence in self._silence.items() if silence < self._duration)

    def _is_heard(self, member: str, count: int, now: float) -> bool:
        """It has gone on, or has come while the observer is new itself: a group that starts together.

        Later, who has just come is not counted: it may be a process that dies each time it starts.
        """
        if member in self._counters:
            return count != self._counters[member]
        return 0 < now - self._began <= self._duration / 2

    def silent(self, alive: AbstractSet[str]) -> frozenset[str]:
        """Those of ``alive`` that may be dead: not seen to renew for half of the duration, or yet.

        Whoever lives renews each third of it.
        """
        limit = self._duration / 2
        return frozenset(
            m for m in alive if m not in self._heard or self._silence.get(m, 0.0) >= limit
        )
