"""The model of the queue tracker: what was settled here is known by name, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from consumer_sdk.records import Checkpoint, Position
from tests.trackers.model import Model, Names, Record


class QueueModel(Model):
    """A queue tracker."""

    names: Names

    def __init__(self, *args: Any, flush_count: int, full: Callable[[], None]) -> None:
        super().__init__(*args)
        self.flush_count, self.full, self.is_full = flush_count, full, False

    def track(self, position: Position, native: Any, now: float, item: Any) -> str:
        """Tracks one record; says what became of it."""
        self.names.forget_old(now)
        for record in self.records:
            if record.is_live and record.position == position:
                record.native = native
                return "known"
        if self.names.knows(position):
            self.names.pending[position] = native
            self.touch()
            return "dropped"
        record = Record(position, "open", now, native, item=item)
        self.records.append(record)
        fate = self.resume(record, now)
        self.attempts.pop(position, None)
        return fate

    def name(self, record: Record) -> None:
        super().name(record)
        if len(self.names.pending) >= self.flush_count and not self.is_full:
            self.is_full = True
            self.full()

    def take(self) -> dict[Position, Any]:
        self.is_full = False
        return super().take()

    def checkpoint(self, now: float, wall: float) -> Checkpoint:
        """Attempts alone."""
        attempts = self.attempts_now(now, wall)
        return Checkpoint(attempts=attempts, written=self.written(attempts, wall))
