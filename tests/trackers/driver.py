"""Does the same to a tracker and to its model, and compares them at every step.

Times are multiples of a quarter of a second, so that float arithmetic is exact and results can
be compared with ``==``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count, pairwise
from typing import Any

from consumer_sdk.records import (
    AckFlush,
    Checkpoint,
    Message,
    Outcome,
    OutcomeKind,
    Run,
    Tracked,
    Verdict,
    VerdictKind,
)
from consumer_sdk.trackers import QueueTracker, RetryPolicy, WatermarkTracker
from tests.trackers.building import ASSIGNMENT, Native

STATES = {"open": "open", "retrying": "retrying", "dead": "dead-lettering"}
NO_INDEX = ("dropped", "known")
FAILURES = (None, OutcomeKind.RETRY, OutcomeKind.FENCED, OutcomeKind.GONE)
INTERVAL = 0.5
"""Seconds between flushes."""


class Driver(ABC):
    """The steps that both kinds of tracker can take.

    Attributes:
        flushes: all that were taken from this tracker.
        in_air: the one that was not answered yet.
        is_cut: it left out something that is settled, so that receipts stay open.
        reached: what came about in all epochs, and how often.
    """

    tracker: WatermarkTracker | QueueTracker
    model: Any  # a LogModel or a QueueModel

    def __init__(self, max_attempts: int | None) -> None:
        self.limit(max_attempts)
        self.now, self.wall = 64.0, 1_000_000.0
        self._natives = count(1)
        self.reached: Counter[str] = Counter()
        self._restored = Checkpoint()

    def limit(self, max_attempts: int | None) -> None:
        """How often the next epochs try."""
        self.policy = RetryPolicy(max_attempts=max_attempts, initial=0.5, maximum=4.0, jitter=0.5)

    def _begin(self) -> None:
        """A new epoch: what belongs to the tracker alone."""
        self.wakes: list[str] = []
        self.messages: list[Message] = []
        self.in_air: AckFlush | None = None
        self.flushes: list[AckFlush] = []
        self.flushed_at = -math.inf
        self.durable_number = 0
        self.is_cut = False

    def wake_tracker(self) -> None:
        """What the tracker calls."""
        self.wakes.append("tracker")

    def wake_model(self) -> None:
        """What the model calls."""
        self.wakes.append("model")

    def left_of(self, due: float, written: float | None) -> float:
        """Seconds that a restored retry waits: not longer than when it was stored, or the policy."""
        left = 0.0 if written is None else due - written
        return min(due - self.wall, max(left, self.policy.maximum))

    def taken(self) -> Checkpoint:
        """What a flush is to carry now."""
        checkpoint: Checkpoint = self.model.checkpoint(self.now, self.wall)
        return checkpoint

    @abstractmethod
    def stored(self, flush: AckFlush, size: int) -> Outcome:
        """Makes a flush durable; the answer."""

    # -- choosing -------------------------------------------------------------------------

    def live(self) -> list[int]:
        """Indices of the records that are not settled."""
        return [i for i, record in enumerate(self.model.records) if record.is_live]

    def pick(self, choice: int) -> int:
        """An index; mostly a live one, sometimes a settled or an unknown one."""
        live = self.live()
        if choice % 8 and live:
            return live[(choice // 8) % len(live)]
        return (choice // 8) % (len(self.model.records) + 3) - 1

    def attempt(self, index: int, choice: int) -> int:
        """The record's attempt, or sometimes another one."""
        record = self.model.get(index)
        return (record.failures + 1 if record else 1) + (choice % 7 == 0) - (choice % 7 == 1)

    # -- steps ----------------------------------------------------------------------------

    def step(self, name: str, *arguments: Any) -> Any:
        """Calls a method of both, and compares what they return."""
        expected = getattr(self.model, name)(*arguments)
        result = getattr(self.tracker, name)(*arguments)
        assert plain(result) == expected, (name, arguments)
        self.check()
        return result

    def track(self, run: Run, *, names: bool) -> list[str]:
        """Tracks a run; says what became of each message."""
        first = len(self.model.records)
        for message in run.messages:
            message.native = next(self._natives) if names else None
        fates = [self.model.track(m.position, m.native, self.now, m) for m in run.messages]
        tracked = self.tracker.track(run, self.now)
        self._compare(tracked, first, fates)
        self.reached.update(fates)
        pairs = zip(run.messages, fates, strict=True)
        kept = [message for message, fate in pairs if fate not in NO_INDEX]
        for index, message in enumerate(kept, first):
            message.index = index
        self.messages += kept
        self.check()
        return fates

    def _compare(self, tracked: Tracked, first: int, fates: list[str]) -> None:
        minted = [fate for fate in fates if fate not in NO_INDEX]

        def indices(wanted: str) -> list[int]:
            return [first + at for at, fate in enumerate(minted) if fate == wanted]

        assert (tracked.first, tracked.count) == (first, len(minted))
        for fate in NO_INDEX:
            offsets = [at for at, each in enumerate(fates) if each == fate]
            assert list(getattr(tracked, fate)) == offsets
        for fate in ("settled", "held", "exhausted"):
            assert list(getattr(tracked, fate)) == indices(fate)
        records = self.model.records
        assert tracked.tries == {i: records[i].failures + 1 for i in indices("again")}
        assert tracked.plain == (set(fates) <= {"new"})

    def ack(self, choice: int) -> None:
        """Acks one record."""
        self.step("ack", self.pick(choice))

    def ack_all(self, choices: Sequence[int], length: int) -> None:
        """Acks a list of records, or a range of them."""
        indices: Sequence[int] = [self.pick(choice) for choice in choices]
        if length and indices:
            indices = range(indices[0], indices[0] + length)
        self.step("ack_all", indices)

    def thin(self, choice: int) -> None:
        """Acks all but a few of the live records, so that chunks forget positions."""
        every = 9 + choice % 31
        self.step("ack_all", [i for at, i in enumerate(self.live()) if (at + choice) % every])

    def ack_cumulative(self, choice: int) -> None:
        """Acks up to a record."""
        self.step("ack_cumulative", self.pick(choice))

    def nack(self, choice: int, late: int, delay: float | None) -> None:
        """Nacks a delivery, or one that is over."""
        index = self.pick(choice)
        self.step("nack", index, self.attempt(index, late), self.now, delay, object())

    def reject(self, choice: int, late: int) -> None:
        """Rejects a delivery, one that is over, or whichever it is."""
        index = self.pick(choice)
        self.step("reject", index, None if late % 5 == 4 else self.attempt(index, late))

    def dead_lettered(self, choice: int) -> None:
        """Makes a dead letter durable, if there is one."""
        dead = [i for i, record in enumerate(self.model.records) if record.state == "dead"]
        index = dead[choice % len(dead)] if dead and choice % 5 else self.pick(choice)
        self.step("dead_lettered", index)

    def hand_out(self, choices: Sequence[int], length: int) -> None:
        """Hands messages out, some for a second time; a list of them, or a range."""
        places = [self.pick(choice) for choice in choices]
        if length and places:
            places = list(range(places[0], places[0] + length))
        self._hand_out([self.messages[i] for i in places if 0 <= i < len(self.messages)])

    def _hand_out(self, messages: Sequence[Message]) -> None:
        wanted = [m for m in messages if self.model.hand_out(m.index, self.now, m)]
        assert list(self.tracker.handed_out(messages, self.now)) == wanted
        self.reached["handed out late"] += bool(self.tracker._late)
        self.check()

    def extend(self, choice: int, late: int, seconds: float) -> None:
        """Gives a delivery more time, also where it had no limit."""
        index = self.pick(choice)
        item = object() if late % 2 else None
        self.step("extend", index, self.attempt(index, late), self.now, seconds, item)

    def wait(self, seconds: float, *, hands_out: bool) -> None:
        """Lets time pass, and maybe hands out the retries that have come due."""
        self.now += seconds
        self.wall += seconds
        due = self.step("due", self.now)
        if hands_out:
            self._hand_out([self.messages[index] for index, _, _ in due.ready])

    # -- flushing -------------------------------------------------------------------------

    def flush_due(self) -> float | None:
        """When a flush is to be had."""
        is_blocked = not self.model.is_dirty or self.in_air is not None
        return None if is_blocked else self.flushed_at + INTERVAL

    def flush(self, *, force: bool) -> None:
        """Takes a flush, if there is something to flush."""
        due = self.flush_due()
        flush = self.tracker.flush(self.now, self.wall, force=force)
        assert (flush is not None) == (due is not None and (force or due <= self.now))
        if flush is not None:
            assert flush.number == len(self.flushes) + 1
            assert flush.checkpoint == self.taken()
            assert len({position for position, _ in flush.settled}) == len(flush.settled)
            assert dict(flush.settled) == self.model.take()
            self.in_air, self.flushed_at = flush, self.now
            self.flushes.append(flush)
        self.check()

    def save(self, size: int) -> None:
        """Makes durable what there is now, or as much of it as fits."""
        self.flush(force=True)
        self.answer(1, size)

    def answer(self, kind: int, size: int) -> None:
        """The flush in the air is durable, durable in part, or failed, or an old one is heard of."""
        flush = self.in_air
        if flush is None or kind % 8 == 0:
            self._answer_old(kind)
        elif kind % 3 == 0:
            self._fail(flush, FAILURES[kind // 3 % len(FAILURES)])
        else:
            outcome = self.stored(flush, size if kind % 3 == 1 else 1_000_000)
            if outcome.covered is None and not self.is_cut:
                self.durable_number = flush.number
            self.in_air = None
            self.model.confirm(self.flushed_at)
            self.tracker.flushed(flush, outcome)
            self.reached["durable flush"] += 1
        self.check()

    def _fail(self, flush: AckFlush, kind: OutcomeKind | None) -> None:
        """It was answered with ``kind``, or not at all."""
        self.in_air = None
        self.model.put_back(is_refused=kind in (OutcomeKind.FENCED, OutcomeKind.GONE))
        if kind is None:
            self.tracker.flush_failed(flush)
        else:
            self.tracker.flushed(flush, Outcome(kind))

    def _answer_old(self, kind: int) -> None:
        if len(self.flushes) > 1:
            old = self.flushes[kind % (len(self.flushes) - 1)]
            self.tracker.flushed(old, Outcome(OutcomeKind.SENT))
            self.tracker.flush_failed(old)

    def note_restart(self, checkpoint: Checkpoint) -> None:
        """Counts what a restart has to restore."""
        self.reached["restart"] += 1
        self.reached["restart from the same"] += checkpoint == self._restored
        self.reached["restart with ranges"] += bool(checkpoint.ranges)
        self.reached["restart with attempts"] += bool(checkpoint.attempts)
        self._restored = checkpoint

    # -- comparing ------------------------------------------------------------------------

    def check(self) -> None:
        """Tracker and model are in the same state."""
        tracker, model = self.tracker, self.model
        states = [record.state for record in model.records]
        count = len(states) - states.count("settled")
        assert tracker.checkpoint(self.now, self.wall) == model.checkpoint(self.now, self.wall)
        assert (tracker.unsettled, tracker.unsettled_bytes) == (count, 8 * count)
        assert tracker.retrying == states.count("retrying")
        assert tracker.ignored == model.ignored
        assert tracker.is_dirty == model.is_dirty
        assert tracker.flush_due == self.flush_due()
        assert tracker.durable_number == self.durable_number
        assert tracker.flush_number == len(self.flushes) + 1
        assert self.wakes.count("tracker") == self.wakes.count("model")
        first_due = model.next_due()
        assert tracker.next_due() == (None if first_due is None else first_due[0])
        self._check_explanation(states)
        self._check_window(count)

    def _check_explanation(self, states: list[str]) -> None:
        explained = self.tracker.explain(self.now)
        live = self.live()
        pin = self.model.records[live[0]] if live else None
        assert (explained.unsettled, explained.unsettled_bytes) == (len(live), 8 * len(live))
        assert explained.retrying == states.count("retrying")
        assert explained.dead_lettering == states.count("dead")
        assert explained.index == (live[0] if live else None)
        assert explained.pinned_by == (pin.position if pin else None)
        assert explained.state == (STATES[pin.state] if pin else None)
        assert explained.attempts == (pin.failures if pin else 0)
        assert explained.age == (self.now - pin.tracked_at if pin else 0.0)
        assert explained.flush_number == self.tracker.flush_number
        assert explained.durable_number == self.durable_number

    def _check_window(self, live: int) -> None:
        """Nothing is kept of what is settled."""
        tracker, window = self.tracker, self.tracker._window
        chunks = list(window.live())
        assert chunks == sorted(window.chunks.values(), key=lambda chunk: chunk.number)
        assert all(chunk.left for chunk in chunks[:-1])
        assert (chunks[0].gap, chunks[-1]) == (None, window.tail)
        self.reached["two live chunks"] += sum(chunk.left > 0 for chunk in chunks) > 1
        self.reached["sparse chunk"] += any(isinstance(c.positions, dict) for c in chunks)
        records = [record for record in self.model.records if record.is_live]
        assert len(tracker._failures) == sum(record.failures > 0 for record in records)
        assert len(tracker._schedule.moment_of) == sum(r.due is not None for r in records)
        assert tracker._unseen == {i for i, r in enumerate(self.model.records) if r.is_unseen}
        natives = sum(native is not None for chunk in chunks for native in chunk.natives)
        assert natives == (live if self.model.names else 0)
        names = self.model.names
        unsent = tracker._settled
        assert (unsent is None) == (names is None)
        if unsent is not None and names is not None:
            assert (dict(unsent.pending), dict(unsent._in_air)) == (names.pending, names.in_air)
            assert len(unsent) == len(names.pending)


def plain(result: Any) -> Any:
    """A tracker's answer in the model's words."""
    if isinstance(result, Verdict):
        words = {VerdictKind.DEAD_LETTER: "dead", VerdictKind.IGNORED: "ignored"}
        return words.get(result.kind, result.due)
    if hasattr(result, "ready"):
        expired = [(index, plain(verdict), item) for index, verdict, item in result.expired]
        return list(result.ready), expired
    return result


def messages_at(positions: Sequence[Any]) -> Run:
    """A run of records of 8 bytes each, which can carry a native handle.

    Of those that ascend, every other one says so.
    """
    made = [Native.make(ASSIGNMENT, position, b"8 bytes.") for position in positions]
    ascends = len(positions) % 2 == 1 and all(one < other for one, other in pairwise(positions))
    return Run(ASSIGNMENT, made, size=8 * len(made), ascends=ascends)


Step = tuple[int, Callable[[], Any]]
"""How often a step is taken, and the step."""
