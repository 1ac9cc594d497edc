"""What both kinds of tracker do, said without any cleverness: a list of records and plain loops."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
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
    native: Any = None
    failures: int = 0
    due: float | None = None
    item: Any = None
    is_unseen: bool = False  # a restored retry that nobody has been handed

    @property
    def is_live(self) -> bool:
        """It is not settled."""
        return self.state != "settled"


class Names:
    """What the broker is still to be told of, and what it was told of lately."""

    def __init__(self, count: int, age: float) -> None:
        self.count, self.age, self.since = count, age, -1e9
        self.pending: dict[Position, Any] = {}
        self.in_air: dict[Position, Any] = {}
        self.told: list[Position] = []
        self.older: list[Position] = []

    def knows(self, position: Position) -> bool:
        """A redelivery of it is to be suppressed."""
        known = (self.pending, self.in_air, self.told, self.older)
        return any(position in some for some in known)

    def forget_old(self, now: float) -> None:
        """A run has come: a generation that is old makes room, and one that is older has none."""
        if now - self.since >= self.age:
            self.older = self.told if now - self.since < 2 * self.age else []
            self.told, self.since = [], now

    def confirm(self, now: float) -> None:
        """A flush has reached the broker: a generation that is full or old makes room."""
        if len(set(self.told)) >= self.count or now - self.since >= self.age:
            self.older, self.told, self.since = self.told, [], now
        self.told += self.in_air


class Model(ABC):
    """A tracker; the attempts of ``restored`` have their due times on the monotonic clock."""

    def __init__(
        self,
        policy: RetryPolicy,
        timeout: float | None,
        restored: Checkpoint,
        wake: Callable[[], None],
        names: Names | None = None,
    ) -> None:
        self.policy, self.timeout, self.restored = policy, timeout, restored
        self.wake, self.names = wake, names
        self.attempts = dict(restored.attempts)
        self.records: list[Record] = []
        self.is_dirty = False
        self.ignored = 0

    @abstractmethod
    def checkpoint(self, now: float, wall: float) -> Checkpoint:
        """The state now."""

    def touch(self) -> None:
        """Something is to be flushed."""
        if not self.is_dirty:
            self.is_dirty = True
            self.wake()

    # -- tracking -------------------------------------------------------------------------

    def resume(self, record: Record, now: float) -> str:
        """What a checkpoint says of a new record."""
        record.failures, due = self.attempts.get(record.position, (0, 0.0))
        if not record.failures:
            return "new"
        if self.policy.is_exhausted(record.failures):
            record.state = "dead"
            return "exhausted"
        if due <= now:
            return "again"
        record.state, record.due, record.is_unseen = "retrying", due, True
        return "held"

    def written(self, attempts: Mapping[Position, tuple[int, float]], wall: float) -> float | None:
        """Now, where somebody asked for a longer wait than the policy's."""
        waits = [due - wall for _, due in attempts.values()]
        return wall if max(waits, default=0) > self.policy.maximum else None

    # -- settling and failing -------------------------------------------------------------

    def get(self, index: int) -> Record | None:
        """The record of an index."""
        return self.records[index] if 0 <= index < len(self.records) else None

    def find(self, index: int, *states: str) -> Record | None:
        """The record, if it is in one of ``states``."""
        record = self.get(index)
        if record and record.state in states:
            return record
        self.ignored += 1
        return None

    def delivery(self, index: int, attempt: int) -> Record | None:
        """The record, if it is in delivery for the ``attempt``-th time."""
        record = self.get(index)
        is_it = record is not None and record.failures == attempt - 1
        return self.find(index if is_it else -1, "open")

    def settle(self, index: int, *states: str) -> bool:
        """Settles a record in one of ``states``."""
        record = self.find(index, *states)
        if record is not None:
            record.state, record.due, record.is_unseen = "settled", None, False
            self.name(record)
            self.touch()
        return record is not None

    def name(self, record: Record) -> None:
        """The next flush names it."""
        if self.names:
            self.names.pending[record.position] = record.native

    def ack(self, index: int) -> bool:
        """An individual ack."""
        return self.settle(index, "open", "retrying")

    def ack_all(self, indices: list[int]) -> int:
        """One by one."""
        return sum([self.ack(index) for index in indices])

    def ack_cumulative(self, index: int) -> int:
        """Acks whatever can be acked up to an index, and was seen."""
        last = index if self.get(index) else -1
        wanted = [
            i
            for i in range(last + 1)
            if self.records[i].state in ("open", "retrying") and not self.records[i].is_unseen
        ]
        self.ignored += not wanted
        return self.ack_all(wanted)

    def nack(self, index: int, attempt: int, now: float, delay: float | None, item: Any) -> Any:
        """Counts a failure: the due time of the next delivery, or "dead" or "ignored"."""
        record = self.delivery(index, attempt)
        if record is None:
            return "ignored"
        record.failures, record.due = attempt, None
        self.touch()
        if self.policy.is_exhausted(attempt):
            record.state = "dead"
            return "dead"
        wait = self.policy.delay(attempt, lambda: 0.0) if delay is None else delay
        record.state, record.due, record.item = "retrying", now + wait, item
        return record.due

    def reject(self, index: int, attempt: int | None) -> bool:
        """Takes a record out of delivery; without an attempt also out of the schedule."""
        if attempt is None:
            record = self.find(index, "open", "retrying")
        else:
            record = self.delivery(index, attempt)
        if record:
            record.state, record.due, record.is_unseen = "dead", None, False
        return record is not None

    def dead_lettered(self, index: int) -> bool:
        """Its dead letter is durable."""
        return self.settle(index, "dead")

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

    def extend(self, index: int, attempt: int, now: float, seconds: float, item: Any) -> bool:
        """Moves an ack timeout, or begins one."""
        record = self.delivery(index, attempt)
        if record is None or (record.due is None and item is None):
            return False
        record.item = item if record.due is None else record.item
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

    # -- flushing -------------------------------------------------------------------------

    def take(self) -> dict[Position, Any]:
        """A flush is on its way; returns what it names."""
        self.is_dirty = False
        if self.names is None:
            return {}
        self.names.in_air, self.names.pending = self.names.pending, {}
        return self.names.in_air

    def confirm(self, taken_at: float) -> None:
        """It has arrived."""
        if self.names:
            self.names.confirm(taken_at)
            self.names.in_air = {}
        if self.is_dirty:
            self.wake()

    def put_back(self, *, is_refused: bool) -> None:
        """It has failed: the newer handle wins. What was refused is not tried again by itself."""
        if self.names:
            self.names.pending = {**self.names.in_air, **self.names.pending}
            self.names.in_air = {}
        self.is_dirty |= not is_refused
        if self.is_dirty:
            self.wake()

    def attempts_now(self, now: float, wall: float) -> dict[Position, tuple[int, float]]:
        """The attempts of records that are live, and of those that are still to come."""
        found = {
            position: (failures, wall + due - now)
            for position, (failures, due) in self.attempts.items()
        }
        most = (self.policy.max_attempts or 10**9) - 1
        for record in self.records:
            if record.is_live and min(record.failures, most):
                due = record.due if record.state == "retrying" else None
                found[record.position] = (
                    min(record.failures, most),
                    wall + max((now if due is None else due) - now, 0.0),
                )
        return found
