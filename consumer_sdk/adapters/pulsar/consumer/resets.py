"""Distinguishes a cursor that was set back from redeliveries after a crash of the broker. Pure.

Both look alike: settled records come again. But a broker stores acks within some time, at the
latest by its timer (``managedLedgerCursorPositionFlushSeconds``, 60 by default). So a record that
was settled longer than ``persist_time`` ago comes again only if somebody has set the cursor back.

Rules:
 1. Seconds count while the connection is seen, and while nothing that was sent again may still
    be on its way: from a lost connection until a record comes that is newer than all before, or
    until nothing comes although everything would be taken. And where something did come again,
    until something newer was taken by the consumer, and acks were confirmed after that. Otherwise
    (1) the broker dies with its last acks; (2) what it sends again waits for minutes, in the client or
    here, since the handlers are slow; (3) it comes, or comes once more after another loss, and those acks
    look old. A frozen process counts none either.
 2. Only records below the watermark count. Above a hole the broker keeps a limited number of
    ranges, and sends the rest again, however old it is.
 3. Only entries that are settled as a whole count: of an entry that is settled in part, the broker
    forgets which records were acked.
 4. A record between seen records that was never delivered does not count: it comes late, and is not
    settled.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from consumer_sdk.adapters.pulsar.client.ids import Place
from consumer_sdk.records.ranges import Interval

__all__ = ["FIRST", "CursorResets"]

STEPS = 8
"""Parts of ``persist_time``: a watermark counts as written down after it, and one part more at most."""

BLIND = 3.0
"""Seconds between two looks after which a connection may have been lost and made again unseen."""

BACK = 1.0
"""Seconds after a reconnect in which messages of before may still come out of the client."""


FIRST = 2.0
"""Seconds after a reconnect in which the first record comes, if one is to come again."""


class CursorResets:
    """Watches one assignment.

    Attributes:
        is_awaited: the connection was lost, and what comes again, if anything, has not begun to. Acks of
            before would be acks of after a reset, and what they are for would not come again.
        is_behind: what comes is settled, and not known to have been so for long: of a broker that was
            killed, or after a reset that is not followed.

    Args:
        persist_time: seconds within which the broker has written acks down for sure.
        settled: what lies below it is settled, as a checkpoint says.
        written: what lies below it cannot come again after a crash.
    """

    __slots__ = (
        "_back_since",
        "_counted",
        "_has_arrived",
        "_highest",
        "_is_current",
        "_is_taken",
        "_looked",
        "_owed",
        "_settled",
        "_step",
        "_unseen",
        "_watermarks",
        "is_awaited",
        "is_behind",
    )

    def __init__(
        self, persist_time: float, *, settled: Place | None = None, written: Place | None = None
    ) -> None:
        self._step = persist_time / STEPS
        self._settled = written if settled is None else settled
        self._watermarks = deque([written], maxlen=STEPS + 1)
        self._counted = 0.0
        self._highest = settled
        self._unseen: Sequence[Interval] = ()
        # What comes up to here comes again, if it comes: its acks are not what a broker wrote down.
        self._owed = settled
        self._is_taken = False
        self._looked = -math.inf
        self._back_since: float | None = None
        self._is_current = self._has_arrived = False
        self.is_awaited = self.is_behind = False

    @property
    def written(self) -> Place | None:
        """The position whose entry, and all below, the broker has written down; None: nothing is known to be."""
        return self._watermarks[0]

    def is_late(self, place: Place) -> bool:
        """Records below and above it have come, and this one never."""
        return any(low is not None and low < place < high for low, high in self._unseen)

    def acked(self, watermark: Place | None, unseen: Sequence[Interval] = ()) -> None:
        """The broker has the acks of all up to ``watermark``, but for what was not seen."""
        self._unseen = unseen
        if self._is_taken:
            self._owed, self._is_taken = None, False
        if watermark is not None and (self._settled is None or watermark > self._settled):
            self._settled = watermark

    def taken(self, last: Place) -> None:
        """The consumer has got all up to ``last``, and acks what is settled of it once more."""
        self._is_taken = self._is_taken or (self._owed is not None and last > self._owed)

    def look(self, now: float, *, is_connected: bool, is_hungry: bool) -> None:
        """Time has passed.

        Args:
            is_hungry: whatever the client has is taken at once, and nothing waits.
        """
        gap, self._looked = now - self._looked, now
        is_idle = is_hungry and not self._has_arrived
        self._has_arrived = False
        if not is_connected or gap > BLIND:
            self._back_since, self._is_current = None, False
            self.is_awaited = self.is_awaited or not is_connected
        elif self._back_since is None:
            self._back_since = now
        else:
            self._is_current = self._is_current or is_idle
            self.is_awaited = self.is_awaited and now - self._back_since < FIRST
            if self._is_current and self._owed is None:
                self._count(gap)

    def _count(self, seconds: float) -> None:
        self._counted += seconds
        if self._counted >= self._step:
            self._counted = 0.0
            self._watermarks.append(self._settled)

    def arrived(self, first: Place, last: Place) -> bool:
        """Records came from the broker, in order. True: its cursor was set back to the first of them."""
        self._has_arrived = True
        if self.written is not None and first[:2] < self.written[:2]:
            return True
        if self._highest is not None and first <= self._highest:
            self._come_again(first)
        is_new = self._highest is None or last > self._highest
        if is_new:
            self._highest = last
        self._look_at(first, is_new=is_new)
        return False

    def _look_at(self, first: Place, *, is_new: bool) -> None:
        back_for = -1.0 if self._back_since is None else self._looked - self._back_since
        self.is_awaited = self.is_awaited and back_for < BACK
        self._is_current = is_new and back_for >= BACK
        is_settled = self._settled is not None and first[:2] < self._settled[:2]
        self.is_behind = is_settled or (self.is_behind and not is_new)

    def _come_again(self, first: Place) -> None:
        """Records come again, and their acks are made again: only then may the broker write them down."""
        self.is_awaited = self._is_taken = False
        self._owed = self._highest
        found = (mark and min(mark, first) for mark in self._watermarks)
        self._watermarks = deque(found, self._watermarks.maxlen)
