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
 3. when ``commit(s)`` came between the last ``latestOffset(s)`` and ``partitions(s, e)`` for at
    least `PROOFS` batches of this run, where ``s`` is the end of another, and always. One batch
    that was planned without rules it out for good;
 4. when it ends the only batch of this run that read from here, this was the first of all batches
    of the run, and it was still the last one `FIRST_BATCH_SECONDS` later. It was the first if it
    was planned before anything was asked (Spark repeats what was left undone before it asks), or
    if it begins at the initial offset: no end equals that, so that a query's very first batch reads
    from each of its sources. Any other may be a later one: those before it had news of another
    source alone, or repeated what had.

Soundness goes before promptness. A stream that falls idle before rule 3 holds, after one of its few
first batches, is given one empty batch (`wants_batch`): planning it, Spark says itself whether the
last one is done. What this leaves open: with ``Trigger.Once``, the last batch, until the next run;
with asynchronous progress, what Spark has not called ``commit`` for. Rule 3 is a judgement: an asynchronous query whose ``commit``
overtakes so often, and never fails to, would be mistaken for the usual engine until it fails to.
With ``asyncProgressTrackingEnabled`` use ``ackMode=commit``, which judges nothing.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Literal, TypeAlias

from consumer_sdk.spark_bridge.pull.planning.offsets import INITIAL

__all__ = ["FIRST_BATCH_SECONDS", "PROOFS", "AckRule"]


FIRST_BATCH_SECONDS = 1.0
"""Far longer than Spark takes to write a file of its log in the background."""

PROOFS = 3
"""Batches after which an engine counts as the usual one: asynchronous commits overtake by chance."""

_REMEMBERED = 1000

Mode: TypeAlias = Literal["auto", "commit", "none"]


class AckRule:
    """The rule for one run of one query; offsets are JSON texts here.

    Args:
        mode: ``"commit"`` trusts ``commit(end)`` alone; ``"none"`` acks nothing.
        initial: the offset that a new query begins at.
    """

    def __init__(self, mode: Mode, initial: str = json.dumps(INITIAL)) -> None:
        self._mode = mode
        self._initial = initial
        self._is_final = False
        self._ends: list[str] = []  # of this run's batches; the last two are enough
        self._batches = 0
        self._committed: str | None = None
        self._undone: deque[str] = deque(maxlen=_REMEMBERED)  # ends that are not known as done
        self._has_done = False
        self._proofs = 0
        self._is_refuted = False
        self._was_asked = False
        self._is_first = False  # the first batch that reads from here is the first of the run
        self._first_seen: float | None = None
        self._idle: tuple[str, float] | None = None  # the last start that was asked, since when

    @property
    def is_logged_first(self) -> bool | None:
        """Batches are logged before the next one is asked for; None: not known yet."""
        if self._is_refuted:
            return False
        return True if self._proofs >= PROOFS else None

    def available_now(self) -> None:
        """This is an AvailableNow run."""
        self._is_final = True

    def asked(self, start: str, now: float) -> bool:
        """``latestOffset(start)`` was called; True: everything below ``start`` is done."""
        self._was_asked = True
        self._committed = None
        if self._idle is None or self._idle[0] != start:
            self._idle = start, now
        is_done = self._is_done(start, now)
        if is_done:
            self._undone.clear()
            self._has_done = True
        return is_done

    def _is_done(self, start: str, now: float) -> bool:
        if self._mode != "auto":
            return False
        if self._is_final or not self._batches or self.is_logged_first:
            return True
        return (
            self._is_first
            and self._batches == 1
            and start == self._ends[-1]
            and self._has_settled(now)
        )

    def wants_batch(self, start: str, now: float) -> bool:
        """An empty batch after ``start``, which nothing follows, would tell that it is done."""
        if self._mode != "auto" or self._is_refuted or self._idle is None:
            return False
        is_open = bool(self._undone) and self._undone[-1] == start == self._idle[0]
        return is_open and now - self._idle[1] >= FIRST_BATCH_SECONDS

    def committed(self, end: str) -> bool:
        """``commit(end)`` was called; True: everything below ``end`` is done, and that is news.

        One that comes late, after that of a later batch, must not take the group back.
        """
        self._committed = end
        if self._mode == "none" or (self._has_done and end not in self._undone):
            return False
        while self._undone and self._undone.popleft() != end:
            pass
        self._has_done = True
        return True

    def planned(self, start: str, end: str) -> None:
        """``partitions(start, end)`` was called; Spark may repeat it."""
        if self._ends and end == self._ends[-1]:
            return
        if not self._batches:
            self._is_first = start == self._initial or not self._was_asked
        if start in self._ends:
            is_proof = self._committed == start
            self._proofs += is_proof
            self._is_refuted |= not is_proof
        self._ends = [*self._ends[-1:], end]
        self._batches += 1
        self._undone.append(end)

    def _has_settled(self, now: float) -> bool:
        if self._first_seen is None:
            self._first_seen = now
        return now - self._first_seen >= FIRST_BATCH_SECONDS
