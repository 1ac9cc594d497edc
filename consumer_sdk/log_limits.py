"""Limits how often the same thing is logged: the first line at once, and then a count.

During an outage clients repeat themselves: aiokafka logs 25 to 50 lines a second while its broker is away. Whoever
reads that wants to know that the outage goes on, and not each line.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from weakref import WeakSet

__all__ = ["REPEATS", "LimitedLoggers", "LogLimit", "LoggerFilter"]

INTERVAL = 10.0
"""Seconds that have to pass before the same thing is logged again."""
REPEATS = {"repeats": True}
"""The ``extra`` of a line that one trouble causes again and again: with each try, or for each partition."""


@dataclass(slots=True)
class _Kind:
    since: float
    said: int = 0
    left_out: int = 0


class LogLimit:
    """Decides what is logged and what is only counted; reads no clock and logs nothing.

    Args:
        interval: seconds in which the same thing is said ``burst`` times at most.
    """

    def __init__(self, interval: float = INTERVAL) -> None:
        self._interval = interval
        self._kinds: dict[Hashable, _Kind] = {}

    def admit(self, key: Hashable, now: float, *, burst: int = 1, count: int = 1) -> int | None:
        """Whether something of this kind may be logged now.

        Args:
            key: at most ``burst`` lines of one key are logged in an interval.
            now: seconds, of any clock that does not go back.
            count: how many lines this one stands for, if it is left out.

        Returns:
            how many were left out since the last one that was logged; None: leave this one out.
        """
        kind = self._kinds.get(key)
        if kind is None or now - kind.since >= self._interval:
            self._kinds[key] = _Kind(now, said=1)
            return 0 if kind is None else kind.left_out
        if kind.said < burst:
            kind.said += 1
            return 0
        kind.left_out += count
        return None

    def overdue(self, now: float) -> list[tuple[Hashable, int]]:
        """What was left out in intervals that are over: to be said now, as a count.

        A kind of which nothing was left out is forgotten: the next one of it is admitted.
        """
        over = [(k, kind) for k, kind in self._kinds.items() if now - kind.since >= self._interval]
        counts = []
        for key, kind in over:
            if kind.left_out:
                counts.append((key, kind.left_out))
                kind.since, kind.left_out = now, 0
            else:
                del self._kinds[key]
        return counts


class LoggerFilter(logging.Filter):
    """Lets each place in the source log ``burst`` times in an interval, with a count of the rest.

    A logger whose level is DEBUG is not limited: somebody wants to see everything.

    Concurrency: records come from any thread. There is no lock, which a fork could leave held:
    two threads at the same moment may log one line too many, or count one too few.

    Args:
        repeats_alone: limits only lines that say so themselves, by `REPEATS`.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        *,
        burst: int = 1,
        repeats_alone: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._burst = burst
        self._repeats_alone = repeats_alone
        self._clock = clock
        self.forget()

    def forget(self) -> None:
        """Begins anew: the next line of each place is logged."""
        self._limit = LogLimit()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is logged; says in it how many like it were not."""
        is_limited = hasattr(record, "repeats") or not self._repeats_alone
        if not is_limited or logging.getLogger(record.name).isEnabledFor(logging.DEBUG):
            return True
        key = (record.pathname, record.lineno, record.levelno)
        left_out = self._limit.admit(key, self._clock(), burst=self._burst)
        if left_out:
            record.msg = f"{record.getMessage()} [{left_out} lines like this one were left out]"
            record.args = ()
        return left_out is not None


class LimitedLoggers:
    """The loggers of other packages, limited while somebody holds them.

    A filter of a logger does not see what its children log, so that each of them gets it; one
    that is made later is limited with the next holder.

    Args:
        names: of packages; every logger that has one of them, or is below it.
        burst, repeats_alone: see `LoggerFilter`.
    """

    def __init__(self, *names: str, burst: int = 1, repeats_alone: bool = False) -> None:
        self._names = names
        self._filter = LoggerFilter(burst=burst, repeats_alone=repeats_alone)
        self._holders: WeakSet[object] = WeakSet()
        self._limited: set[logging.Logger] = set()

    def hold(self, holder: object) -> None:
        """Limits them until `release`; idempotent."""
        self._holders.add(holder)
        for logger in self._find():
            logger.addFilter(self._filter)  # once, however often
            self._limited.add(logger)

    def release(self, holder: object) -> None:
        """Ends the limits when the last holder has released them; idempotent."""
        self._holders.discard(holder)
        if not self._holders:
            for logger in self._limited:
                logger.removeFilter(self._filter)
            self._limited.clear()
            self._filter.forget()

    def _find(self) -> list[logging.Logger]:
        below = tuple(f"{name}." for name in self._names)
        known = [n for n in list(logging.root.manager.loggerDict) if n.startswith(below)]
        return [logging.getLogger(name) for name in (*self._names, *known)]
