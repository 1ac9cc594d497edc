"""Keeps the limits of GetRecords: when a shard may be read again. Pure: ``now`` is an argument.

A shard answers five calls a second and gives 2 MiB a second, to all of its readers together; after
an answer of 10 MiB it refuses for five seconds, which is the same rate
(https://docs.aws.amazon.com/kinesis/latest/APIReference/API_GetRecords.html). So each byte costs
time, and a call waits until that time has passed.

Readers of different groups do not know of each other. They find their shares as TCP does: a reader
that is refused takes less, and one that is not takes a little more with time (additive increase,
multiplicative decrease; Chiu and Jain, 1989). That is fair only if refusals hit the readers that
take much. A reader that always took exactly the limit would never be refused, and the others
always. So each reader leaves a gap, in which another reader's call is answered and its own next
call is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from consumer_sdk.options import COUNT, SECONDS, check_fields, endless, option

__all__ = ["Limits", "ShardRates"]


BYTES_A_SECOND = replace(endless(SECONDS), wanted="bytes, above 0")


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one shard.

    Attributes:
        calls: in any one second.
        bytes: per second.

    Raises:
        ConfigurationError: the limits would allow no read at all.
    """

    calls: int = option(COUNT, default=5)
    bytes: float = option(BYTES_A_SECOND, default=2 * 1024 * 1024)

    def __post_init__(self) -> None:
        check_fields(self, "Limits")


SECOND = 1.02
"""The window in which calls are counted: a little longer, since clocks differ."""

FIRST_BACKOFF = 0.5
LONGEST_BACKOFF = 10.0

# What follows was tuned with `benchmarks.kinesis.sharing`: 1 to 8 groups, whether or not refused
# calls count against the limits, which AWS does not document.

AT_TIP = 0.8
"""How much of the calls a shard at its tip is asked for, evenly."""

OF_BYTES = 0.95
"""How much of the bytes is read, by one that drains."""

LESS = 0.8
"""What a refusal leaves of a reader's share."""

MORE = 0.003
"""What each second without one adds to it."""

SOON = 10.0
"""Seconds after which that has doubled: the other readers may have gone."""

LEAST = 0.1
"""The smallest share, that of ten readers."""

FIRST_AGAIN = 0.3
LONGEST_AGAIN = 1.0
"""Seconds to wait after refusals, if the pace is not quicker: who is refused asks more often."""


class Share:
    """The part of a shard's limits that one reader takes."""

    __slots__ = ("_at", "_refused_at", "value")

    def __init__(self) -> None:
        self.value = 1.0
        self._at = 0.0
        self._refused_at = -SECOND

    def answered(self, now: float) -> None:
        """It grows with the time, and with the time since a refusal."""
        before, after = self._at - self._refused_at, now - self._refused_at
        growth = MORE * (after - before + (after**2 - before**2) / (2 * SOON))
        self.value = min(self.value + growth, 1.0)
        self._at = now

    def refused(self, now: float) -> None:
        """Refusals of one second are one."""
        self._at = now
        if now - self._refused_at >= SECOND:
            self._refused_at = now
            self.value = max(self.value * LESS, LEAST)


class ShardRates:
    """The calls to one shard; survives a change of its grant.

    Args:
        longest_poll: seconds between two looks at a shard that has had nothing for a while; an
            attribute too.
        random: numbers in [0, 1): consumers that were throttled together come back apart.
    """

    __slots__ = (
        "_backoff",
        "_calls",
        "_limits",
        "_poll",
        "_random",
        "_ready",
        "_refusals",
        "_share",
        "longest_poll",
    )

    def __init__(self, limits: Limits, longest_poll: float, random: Callable[[], float]) -> None:
        self._limits = limits
        self.longest_poll = longest_poll
        self._random = random
        self._calls: deque[float] = deque(maxlen=limits.calls)
        self._ready = 0.0
        self._poll = 0.0
        self._backoff = 0.0
        self._refusals = 0
        self._share = Share()

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
        self.recovered()
        self._share.answered(now)
        self._ready = max(self._ready, now) + size / self._bytes()
        if size or not is_at_tip:
            self._poll = 0.0
        if is_at_tip:
            even = SECOND / (self._limits.calls * AT_TIP)
            self._poll = min(max(self._poll * 2, even), self.longest_poll)
        self._ready = max(self._ready, now + max(self._poll, self._pace()))

    def refused(self, now: float) -> None:
        """The shard's limits were used up, by others too; `failed` is to be called next."""
        self._share.refused(now)
        self._refusals += 1

    def failed(self, now: float) -> float:
        """It was refused, or lost; returns the seconds to wait."""
        self._has_arrived(now)
        if self._refusals:
            again = min(FIRST_AGAIN * self._refusals, LONGEST_AGAIN) * self._jitter()
            wait = min(again, self._pace())
        else:
            self._backoff = min(max(self._backoff * 2, FIRST_BACKOFF), LONGEST_BACKOFF)
            wait = self._backoff * self._jitter()
        self._ready = max(self._ready, now + wait)
        return wait

    def recovered(self) -> None:
        """The shard was read: the next failure is not one more in a row."""
        self._backoff = 0.0
        self._refusals = 0

    def _bytes(self) -> float:
        return self._limits.bytes * min(self._share.value, OF_BYTES)

    def _pace(self) -> float:
        """Seconds between two calls of one that shares; whoever is alone may ask at once."""
        if self._share.value == 1.0:
            return 0.0
        return SECOND / (self._limits.calls * self._share.value) * self._jitter()

    def _jitter(self) -> float:
        return 0.5 + self._random()

    def _has_arrived(self, now: float) -> None:
        """The server counts arrivals: the last call's was not later than its end.

        A call on a new connection arrives long after it was sent, and the sixth after it, on a
        warm one, at once: counted as they were sent, six arrive within one second.
        """
        if self._calls:
            self._calls[-1] = now
