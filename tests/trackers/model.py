"""What a log tracker does, said without any cleverness: a list of records and plain loops."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from consumer_sdk.records import Checkpoint, Position
from consumer_sdk.trackers import RetryPolicy


@dataclass
class Record:
    """A tracked record; its place in `Model.records` is its index."""

    position: Position
    state: str  # open, retrying, dead, settled
    tracked_at: float
    failures: int = 0
    due: float | None = None
    item: Any = None
    is_unseen: bool = False  # a restored retry that nobody has been handed

    @property
    def is_live(self) -> bool:
        """It is not settled."""
        return self.state != "settled"


class Model:
    """A log tracker; the attempts of ``restored`` have their due times on the monotonic clock."""

    def __init__(
        self, policy: RetryPolicy, timeout: float | None, restored: Checkpoint, *, dirty: bool
    ) -> None:
        self.policy, self.timeout, self.restored, self.dirty = policy, timeout, restored, dirty
        self.records: list[Record] = []
        self.last_seen = restored.watermark
        self.span_end: Position | None = None
        self.floor: Position | None = None
        self.next_position: Position | None = None
        self.ended = False
        self.ignored = 0

    # -- tracking -------------------------------------------------------------------------

    def move(self, next_position: Position | None, *, ended: bool, is_empty: bool) -> None:
        """The part of tracking a run that does not look at its records."""
        before = self.next_position
        moved = next_position is not None and (before is None or next_position > before)
        self.next_position = next_position if moved else before
        self.dirty |= (moved and is_empty) or (ended and not self.ended)
        self.ended |= ended

    def track(self, position: Position, now: float, item: Any) -> str:
        """Tracks one record; says what became of it."""
        if self.last_seen is not None and position <= self.last_seen:
            self.dirty = True
            return "dropped"
        self.last_seen = position
        span_end = next((b for a, b in self.restored.ranges if a <= position <= b), None)
        if span_end != self.span_end and not any(record.is_live for record in self.records):
            self.floor = self.span_end or self.floor  # the range's last records are gone
        self.span_end = span_end
        record = Record(position, "open", now)
        self.records.append(record)
        if span_end is not None:
            self.dirty = True
            record.state = "settled"
            return "settled"
        record.failures, due = self.restored.attempts.get(position, (0, 0.0))
        if not record.failures:
            return "new"
        if self.policy.is_exhausted(record.failures):
            record.state = "dead"
            return "exhausted"
        if due <= now:
            return "again"
        record.state, record.due, record.item = "retrying", due, item
        record.is_unseen = True
        return "held"

    # -- settling and failing -------------------------------------------------------------

    def get(self, index: int) -> Record | None:
        """The record of an index."""
        return self.records[index] if 0 <= index < len(self.records) else None

    def delivery(self, index: int, attempt: int) -> Record | None:
        """The record, if it is in delivery for the ``attempt``-th time."""
        record = self.get(index)
        if record and record.state == "open" and record.failures == attempt - 1:
            return record
        self.ignored += 1
        return None

    def settle(self, index: int, *states: str) -> bool:
        """Settles a record in one of ``states``."""
        record = self.get(index)
        if record is None or record.state not in states:
            self.ignored += 1
            return False
        record.state, record.due, self.dirty = "settled", None, True
        return True

    def ack(self, index: int) -> bool:
        """An individual ack."""
        return self.settle(index, "open", "retrying")

    def ack_cumulative(self, index: int) -> int:
        """Acks whatever can be acked up to an index, and was seen."""
        last = index if self.get(index) else -1
        wanted = [
            i
            for i in range(last + 1)
            if self.records[i].state in ("open", "retrying") and not self.records[i].is_unseen
        ]
        self.ignored += not wanted
        return sum([self.ack(i) for i in wanted])

    def nack(self, index: int, attempt: int, now: float, delay: float | None, item: Any) -> Any:
        """Counts a failure: the due time of the next delivery, or "dead" or "ignored"."""
        record = self.delivery(index, attempt)
        if record is None:
            return "ignored"
        record.failures, record.due, self.dirty = attempt, None, True
        if self.policy.is_exhausted(attempt):
            record.state = "dead"
            return "dead"
        wait = self.policy.delay(attempt, lambda: 0.0) if delay is None else delay
        record.state, record.due, record.item = "retrying", now + wait, item
        return record.due

    def reject(self, index: int, attempt: int) -> bool:
        """Takes a record out of delivery."""
        record = self.delivery(index, attempt)
        if record:
            record.state, record.due = "dead", None
        return record is not None

    # -- time -----------------------------------------------------------------------------

    def hand_out(self, index: int, now: float, item: Any) -> bool:
        """A delivery begins."""
        record = self.get(index)
        if record is None or record.state != "open":
            return False
        record.is_unseen = False
        if self.timeout is not None:
            record.due, record.item = now + self.timeout, item
        return True

    def extend(self, index: int, attempt: int, now: float, seconds: float) -> bool:
        """Moves an ack timeout."""
        record = self.delivery(index, attempt)
        if record is None or record.due is None:
            return False
        record.due = now + seconds if seconds > 0 else None
        return True

    def next_due(self) -> tuple[float, int] | None:
        """The earliest due time, and whose it is."""
        return min(
            ((r.due, i) for i, r in enumerate(self.records) if r.due is not None), default=None
        )

    def due(self, now: float) -> tuple[list[tuple[int, int, Any]], list[tuple[int, Any, Any]]]:
        """Retries that are due, and deliveries whose timeout has passed."""
        ready, expired = [], []
        while (first := self.next_due()) is not None and first[0] <= now:
            index = first[1]
            record = self.records[index]
            if record.state == "retrying":
                record.state, record.due = "open", None
                ready.append((index, record.failures + 1, record.item))
            else:
                verdict = self.nack(index, record.failures + 1, now, None, record.item)
                expired.append((index, verdict, record.item))
        return sorted(ready, key=itemgetter(0)), sorted(expired, key=itemgetter(0))

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
        attempts = {
            position: (failures, wall + due - now)
            for position, (failures, due) in self.restored.attempts.items()
            if self._is_ahead(position)
        }
        most = (self.policy.max_attempts or 10**9) - 1
        for record in live:
            if min(record.failures, most):
                due = record.due if record.state == "retrying" else None
                attempts[record.position] = (
                    min(record.failures, most),
                    wall + max((now if due is None else due) - now, 0.0),
                )
        return Checkpoint(watermark, resume, tuple(ranges), attempts, self.ended and not live)
