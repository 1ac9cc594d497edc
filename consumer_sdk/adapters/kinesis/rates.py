"""When a shard may be asked again: the limits of GetRecords. Pure: ``now`` is an argument.

A shard answers five calls a second and gives 2 MiB a second, to all of its readers together; after
an answer of 10 MiB it refuses for five seconds, which is the same rate
(https://docs.aws.amazon.com/kinesis/latest/APIReference/API_GetRecords.html). So each byte read is
owed as time, and a call waits until nothing is owed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from consumer_sdk.errors import ConfigurationError

__all__ = ["NO_LIMITS", "Limits", "ShardRates"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one shard may be asked for.

    Attributes:
        calls: in any one second.
        bytes: per second.

    Raises:
        ConfigurationError: nothing could be read at all.
    """

    calls: int = 5
    bytes: float = 2 * 1024 * 1024

    def __post_init__(self) -> None:
        if self.calls < 1 or not self.bytes > 0:
            raise ConfigurationError(f"{self}: give at least one call, and bytes above 0")


NO_LIMITS = Limits(calls=1_000, bytes=float("inf"))
"""For servers of tests, which have none."""

SECOND = 1.02
"""The window in which calls are counted: a little longer, since clocks differ."""

FIRST_BACKOFF = 0.5
LONGEST_BACKOFF = 10.0


class ShardRates:
    """The calls to one shard; survives a change of its grant.

    Args:
        longest_poll: seconds between two looks at a shard that has had nothing for a while.
        random: numbers in [0, 1): consumers that were throttled together come back apart.
    """

    __slots__ = ("_backoff", "_calls", "_limits", "_longest_poll", "_poll", "_random", "_ready")

    def __init__(self, limits: Limits, longest_poll: float, random: Callable[[], float]) -> None:
        self._limits = limits
        self._longest_poll = longest_poll
        self._random = random
        self._calls: deque[float] = deque(maxlen=limits.calls)
        self._ready = 0.0
        self._poll = 0.0
        self._backoff = 0.0

    def next_call(self) -> float:
        """The earliest moment for another call."""
        is_full = len(self._calls) == self._limits.calls
        return max(self._calls[0] + SECOND, self._ready) if is_full else self._ready

    def called(self, now: float) -> None:
        """A call is on its way."""
        self._calls.append(now)

    def answered(self, now: float, size: int, *, is_at_tip: bool) -> None:
        """It has brought ``size`` bytes; at the tip there was nothing more to read then."""
        self._has_arrived(now)
        self._backoff = 0.0
        self._ready = max(self._ready, now) + size / self._limits.bytes
        if size or not is_at_tip:
            self._poll = 0.0
        if is_at_tip:
            even = SECOND / self._limits.calls
            self._poll = min(max(self._poll * 2, even), self._longest_poll)
            self._ready = max(self._ready, now + self._poll)

    def failed(self, now: float) -> float:
        """It was refused, or lost; returns the seconds to wait."""
        self._has_arrived(now)
        self._backoff = min(max(self._backoff * 2, FIRST_BACKOFF), LONGEST_BACKOFF)
        wait = self._backoff * (0.5 + self._random())
        self._ready = max(self._ready, now + wait)
        return wait

    def recovered(self) -> None:
        """The shard was read: the next failure is not one more in a row."""
        self._backoff = 0.0

    def _has_arrived(self, now: float) -> None:
        """The server counts arrivals: the last call's was not later than its end.

        A call on a new connection arrives long after it was sent, and the sixth after it, on a
        warm one, at once: counted as they were sent, six arrive within one second.
        """
        if self._calls:
            self._calls[-1] = now
