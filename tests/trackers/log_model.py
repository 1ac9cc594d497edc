"""The model of the log tracker: neighbours in arrival order join."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from consumer_sdk.records import Checkpoint, Position
from consumer_sdk.records.ranges import Interval, is_in
from consumer_sdk.trackers.unseen import MOST_STORED, trusted
from tests.trackers.model import Model, Record


class LogModel(Model):
    """A log tracker that keeps ranges; with `Names` where each settled record is named."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args[:-1])
        self.gaps = args[-1]
        self.last_seen = self.restored.watermark
        self.unseen: list[Interval] = []
        if self.names:
            self.restored, self.unseen = trusted(self.restored)
        self.has_begun = False
        self.span_end: Position | None = None
        self.floor: Position | None = None
        self.next_position: Position | None = None
        self.ended = False

    # -- tracking -------------------------------------------------------------------------

    def move(self, next_position: Position | None, *, ended: bool, is_empty: bool) -> None:
        """The part of tracking a run that does not look at its records."""
        before = self.next_position
        moved = next_position is not None and (before is None or next_position > before)
        self.next_position = next_position if moved else before
        if (moved and is_empty) or (ended and not self.ended):
            self.touch()
        self.ended |= ended

    def track(self, position: Position, native: Any, now: float, item: Any) -> str:
        """Tracks one record; says what became of it."""
        if self.last_seen is not None and position <= self.last_seen:
            self._name_again(position, native)
            self.touch()
            return "dropped"
        if self.names:
            self._note_gaps(position)
        self.last_seen = position
        self.attempts = {
            p: a for p, a in self.attempts.items() if p >= position or self._may_come_late(p)
        }
        span_end = next((b for a, b in self.restored.ranges if a <= position <= b), None)
        if span_end != self.span_end and not any(record.is_live for record in self.records):
            self.floor = self.span_end or self.floor  # the range's last records are gone
        self.span_end = span_end
        record = Record(position, "open", now, native, item=item)
        self.records.append(record)
        if span_end is not None:
            record.state = "settled"
            self.name(record)
            self.touch()
            return "settled"
        fate = self.resume(record, now)
        self.attempts.pop(position, None)
        return fate

    def _note_gaps(self, position: Position) -> None:
        """Between what was seen, and what the checkpoint has as settled, everything is missing.

        What the checkpoint knows may end within an entry.
        """
        last = self.last_seen
        seen = last if self.has_begun else None
        ranges = self.restored.ranges
        known = [(a, b) for a, b in ranges if a < position and (last is None or b > last)]
        for first, end in known:
            if last is None or first > last:
                self.unseen.append((last, first))
            last = end if last is None else max(last, end)
        is_room = last is None or last != seen or bool(self.gaps([last, position]))
        if is_room and (last is None or position > last):
            self.unseen.append((last, position))
        self.has_begun = True
        self.unseen.sort(key=itemgetter(1))

    def _may_come_late(self, position: Position) -> bool:
        return any(is_in(position, each) for each in self.unseen)

    def unseen_now(self) -> tuple[Interval, ...]:
        """The highest; all below them in one."""
        kept = self.unseen[-MOST_STORED:]
        return ((None, kept[0][1]), *kept[1:]) if kept != self.unseen else tuple(kept)

    def _name_again(self, position: Position, native: Any) -> None:
        for record in self.records:
            if record.is_live and record.position == position:
                record.native = native
                return
        if self.names:
            self.names.pending[position] = native

    # -- checkpoint -----------------------------------------------------------------------

    def spans(self) -> tuple[Position | None, list[tuple[Position, Position]]]:
        """Watermark and ranges: neighbours in arrival order join, and restored ranges remain."""
        spans: list[list[Position]] = [[None, self.restored.watermark]]
        is_joined = True
        for record in self.records:
            if record.is_live:
                is_joined = False
            elif is_joined:
                spans[-1][1] = record.position
            else:
                spans.append([record.position, record.position])
                is_joined = True
        if self.floor is not None and spans[0][1] < self.floor:
            spans[0][1] = self.floor
        if self.records and self.span_end is not None:
            spans[-1][1] = self.span_end
        spans += [[a, b] for a, b in self.restored.ranges if self._is_ahead(a)]
        return spans[0][1], [(first, last) for first, last in spans[1:]]

    def _is_ahead(self, position: Position) -> bool:
        return self.last_seen is None or bool(position > self.last_seen)

    def checkpoint(self, now: float, wall: float) -> Checkpoint:
        """The state now."""
        watermark, ranges = self.spans()
        live = [record for record in self.records if record.is_live]
        resume = self.next_position
        if live:
            resume = live[0].position
        elif resume is None:
            resume = watermark if self.records else self.restored.resume
        attempts = self.attempts_now(now, wall)
        return Checkpoint(
            watermark,
            resume,
            tuple(ranges),
            attempts,
            self.ended and not live,
            written=self.written(attempts, wall),
            unseen=self.unseen_now(),
        )
