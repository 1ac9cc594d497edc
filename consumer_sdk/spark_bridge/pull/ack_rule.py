"""When Spark has logged a batch as committed: judged from the order of its calls alone.

An ack that runs ahead of ``commits/N`` in Spark's checkpoint would tell the group of records that
a crash reads again; one that only follows ``commit(end)`` never tells of the last batch, since
Spark calls that when the *next* batch is planned. In between lies ``latestOffset(start)``: its
``start`` is the end of the last batch that ran. Whether that is logged too depends on the engine,
as seen on Spark 4.3 and in its sources:

- The usual engine logs a batch before it asks for the next end: ``start`` is done. For each batch
  it calls ``latestOffset(s)``, ``commit(s)``, ``partitions(s, e)``, in this order.
- With ``asyncProgressTrackingEnabled`` it logs in the background, and not each batch.
  ``commit(s)`` comes for logged batches only, some batches late: ``partitions(s, e)`` comes first.
- Either logs the first batch of a run. AvailableNow exists in the usual engine only.

Hence, in mode ``auto``, ``start`` is done
 1. when no batch was planned in this run: it is what the checkpoint ended with;
 2. in an AvailableNow run;
 3. when a ``commit(s)`` came before ``partitions(s, e)``, where ``s`` is the end of a batch of this
    run, and never after it. One ``partitions`` that came first rules it out for good;
 4. when it ends the only batch of this run, and was still the last one `FIRST_BATCH_SECONDS` later.

What this leaves open: a stream with asynchronous progress that falls idle after its second batch
shows the group as far as Spark has called ``commit``.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = ["FIRST_BATCH_SECONDS", "AckRule"]

FIRST_BATCH_SECONDS = 1.0
"""Far longer than Spark takes to write a file of its log in the background."""

Mode: TypeAlias = Literal["auto", "commit", "none"]


class AckRule:
    """The rule for one run of one query; offsets are JSON texts here.

    Args:
        mode: ``"commit"`` trusts ``commit(end)`` alone; ``"none"`` acks nothing.
    """

    def __init__(self, mode: Mode) -> None:
        self._mode = mode
        self._is_final = False
        self._ends: list[str] = []  # of this run's batches; the last two are enough
        self._batches = 0
        self._committed: str | None = None
        self._is_logged_first: bool | None = None
        self._first_seen: float | None = None

    @property
    def is_logged_first(self) -> bool | None:
        """Batches are logged before the next one is asked for; None: not known yet."""
        return self._is_logged_first

    def available_now(self) -> None:
        """This is an AvailableNow run."""
        self._is_final = True

    def asked(self, start: str, now: float) -> bool:
        """``latestOffset(start)`` was called; True: everything below ``start`` is done."""
        if self._mode != "auto":
            return False
        if self._is_final or not self._batches or self._is_logged_first:
            return True
        return self._batches == 1 and start == self._ends[-1] and self._has_settled(now)

    def committed(self, end: str) -> bool:
        """``commit(end)`` was called; True: everything below ``end`` is done."""
        self._committed = end
        return self._mode != "none"

    def planned(self, start: str, end: str) -> None:
        """``partitions(start, end)`` was called; Spark may repeat it."""
        if self._ends and end == self._ends[-1]:
            return
        if start in self._ends:
            is_first = self._committed == start
            self._is_logged_first = is_first and self._is_logged_first is not False
        self._ends = [*self._ends[-1:], end]
        self._batches += 1

    def _has_settled(self, now: float) -> bool:
        if self._first_seen is None:
            self._first_seen = now
        return now - self._first_seen >= FIRST_BATCH_SECONDS
