"""When a tracker's acks are flushed, and what becomes of a flush.

Acks are collected for an interval, as Pulsar's ack grouping does. A flush that was taken is later
confirmed, or put back.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from consumer_sdk.abc import AckTracker
from consumer_sdk.records import AckFlush, Outcome, OutcomeKind

__all__ = ["FlushState"]


class FlushState(AckTracker):
    """The part of a tracker that decides when there is something to flush.

    Clean: nothing happened since the last flush was taken. A flush in the air is confirmed or
    put back, and there is one at a time; whatever happens meanwhile goes into the next one.
    """

    __slots__ = (
        "_durable",
        "_in_air",
        "_interval",
        "_is_clean",
        "_is_closed",
        "_last_flush",
        "_number",
        "_wake",
        "ignored",
    )

    def __init__(self, wake: Callable[[], None], flush_interval: float) -> None:
        self._wake = wake
        self._interval = flush_interval
        self._is_clean = True
        self._is_closed = False
        self._in_air: AckFlush | None = None
        self._last_flush = float("-inf")
        self._number = 0
        self._durable = 0
        self.ignored = 0
        """Calls that changed nothing: late, twice, or for a stranger."""

    @abstractmethod
    def _take(self, number: int, now: float, wall: float) -> AckFlush:
        """What is to be made durable now."""

    @abstractmethod
    def _confirmed(self, outcome: Outcome, now: float) -> bool:
        """What was taken is durable; False if not all of it, so that receipts stay open."""

    @abstractmethod
    def _put_back(self) -> None:
        """What was taken is not known to be durable."""

    def _ignore(self) -> bool:
        self.ignored += 1
        return False

    def _dirty(self) -> None:
        if self._is_clean and not self._is_closed:
            self._is_clean = False
            self._wake()

    @property
    def is_dirty(self) -> bool:
        return not self._is_clean

    @property
    def flush_due(self) -> float | None:
        if self._is_clean or self._in_air is not None:
            return None
        return self._last_flush + self._interval

    @property
    def flush_number(self) -> int:
        return self._number + 1

    @property
    def durable_number(self) -> int:
        return self._durable

    def flush(self, now: float, wall: float, *, force: bool = False) -> AckFlush | None:
        due = self.flush_due
        if due is None or self._is_closed or (now < due and not force):
            return None
        self._number += 1
        self._last_flush = now
        self._is_clean = True
        self._in_air = self._take(self._number, now, wall)
        return self._in_air

    def flushed(self, flush: AckFlush, outcome: Outcome) -> None:
        if self._in_air is not flush:
            return
        self._in_air = None
        if not outcome.is_done:
            self._put_back()
            # What was refused would be refused again: only what comes later makes it dirty.
            self._is_clean = self._is_clean and outcome.kind is not OutcomeKind.RETRY
        elif self._confirmed(outcome, self._last_flush):
            self._durable = flush.number
        if not self._is_clean:
            self._wake()
