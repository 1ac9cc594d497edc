"""Does the same to a `WatermarkTracker` and to the `Model`, and compares them at every step.

Times are multiples of a quarter of a second, so that float arithmetic is exact and results can
be compared with ``==``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from consumer_sdk.records import (
    AckFlush,
    Checkpoint,
    Message,
    Outcome,
    Position,
    Verdict,
    VerdictKind,
)
from consumer_sdk.trackers import (
    RetryPolicy,
    WatermarkTracker,
    decode_checkpoint,
    encode_checkpoint,
)
from tests.trackers.building import ASSIGNMENT, make_run
from tests.trackers.model import Model

STATES = {"open": "open", "retrying": "retrying", "dead": "dead-lettering"}


@dataclass(frozen=True)
class Setup:
    """What is fixed for one run of the driver."""

    chunk_bits: int = 2
    max_attempts: int | None = 3
    timeout: float | None = None
    pairs: bool = False

    def position(self, number: int) -> Position:
        """The position of the record with this number."""
        return divmod(number, 7) if self.pairs else number

    def write(self, position: Position) -> str:
        """A position's text form."""
        return ".".join(map(str, position)) if self.pairs else str(position)

    def read(self, text: str) -> Position:
        """Reads `write` back."""
        return tuple(map(int, text.split("."))) if self.pairs else int(text)


class Driver:
    """One log, read by one tracker after the other.

    Attributes:
        log: numbers of the records that the broker has; ``newest`` is the last it ever had.
        done: numbers of those that were settled, in whatever epoch.
        durable: the last checkpoint that was stored, as text.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.policy = RetryPolicy(
            max_attempts=setup.max_attempts, initial=0.5, maximum=4.0, jitter=0.5
        )
        self.log: list[int] = []
        self.newest = 0
        self.done: set[int] = set()
        self.durable: str | None = None
        self.now, self.wall = 64.0, 1_000_000.0
        self._begin(Checkpoint(), at=0, durable=True)

    def _begin(self, checkpoint: Checkpoint, at: int, *, durable: bool) -> None:
        """A new epoch, which fetches from the log's ``at``-th record."""
        self.wakes = 0
        self.tracker = WatermarkTracker(
            ASSIGNMENT,
            self._wake,
            policy=self.policy,
            flush_interval=0.5,
            ack_timeout=self.setup.timeout,
            random=lambda: 0.0,
            chunk_bits=self.setup.chunk_bits,
        )
        self.tracker.restore(checkpoint, self.now, self.wall, durable=durable)
        attempts = {
            p: (n, self.now + min(max(due - self.wall, 0.0), self.policy.maximum))
            for p, (n, due) in checkpoint.attempts.items()
        }
        self.model = Model(
            self.policy,
            self.setup.timeout,
            replace(checkpoint, attempts=attempts),
            dirty=not durable,
        )
        self.at, self.start = at, at
        self.messages: list[Message] = []
        self.in_air: AckFlush | None = None
        self.flushes: list[AckFlush] = []
        self.durable_number = 0
        self.watermark = checkpoint.watermark

    def _wake(self) -> None:
        self.wakes += 1

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

    # -- steps ----------------------------------------------------------------------------

    def fetch(self, gaps: Sequence[int], move: int, *, ended: bool = False) -> None:
        """Fetches a run; where the log is at its end, records are added ``gaps`` apart."""
        for gap in gaps[len(self.log) - self.at :]:
            self._append(gap)
        part = self.log[self.at : self.at + len(gaps)]
        self.at += len(part)
        ended = ended and self.at == len(self.log)
        self._track(part, self._next(move), ended=ended)

    def refetch(self, back: int, count: int, move: int) -> None:
        """Fetches a run that begins with records fetched before."""
        begin = max(self.start, self.at - back)
        part = self.log[begin : begin + count]
        self.at = max(self.at, begin + len(part))
        self._track(part, self.setup.position(part[-1] + 1) if part and move % 2 else None)

    def _next(self, move: int) -> Position | None:
        """None; after the last record; or up to the next one, as after a transaction's marker."""
        if move % 3 == 0:
            return None
        if move % 3 == 2 and self.at == len(self.log):
            self._append(move)
        if move % 3 == 2 or self.at == self.start:
            number = self.log[self.at] if self.at < len(self.log) else self.newest + 1
        else:
            number = self.log[self.at - 1] + 1
        return self.setup.position(number)

    def _append(self, gap: int) -> None:
        """The broker stores a record; it never gives a position twice."""
        self.newest += gap
        self.log.append(self.newest)

    def _track(
        self, part: list[int], next_position: Position | None, *, ended: bool = False
    ) -> None:
        run = make_run(map(self.setup.position, part), next_position, ended=ended)
        first = len(self.model.records)
        self.model.move(next_position, ended=ended, is_empty=not part)
        fates = [self.model.track(m.position, self.now, m) for m in run.messages]
        tracked = self.tracker.track(run, self.now)
        kept = [m for m, fate in zip(run.messages, fates, strict=True) if fate != "dropped"]
        minted = [fate for fate in fates if fate != "dropped"]

        def indices(wanted: str) -> list[int]:
            return [first + i for i, fate in enumerate(minted) if fate == wanted]

        assert (tracked.first, tracked.count) == (first, len(kept))
        assert list(tracked.dropped) == [i for i, fate in enumerate(fates) if fate == "dropped"]
        assert list(tracked.settled) == indices("settled")
        assert list(tracked.held) == indices("held")
        assert list(tracked.exhausted) == indices("exhausted")
        records = self.model.records
        assert tracked.tries == {i: records[i].failures + 1 for i in indices("again")}
        assert tracked.plain == (set(fates) <= {"new"})
        for index, message in enumerate(kept, first):
            message.index = index
        self.messages += kept
        self.check()

    def step(self, name: str, *arguments: Any) -> Any:
        """Calls a method of both, and compares what they return."""
        was_due = self.tracker.flush_due
        wakes = self.wakes
        expected = getattr(self.model, name)(*arguments)
        result = getattr(self.tracker, name)(*arguments)
        assert plain(result) == expected, (name, arguments)
        assert self.wakes - wakes <= 1
        if was_due is None and self.tracker.flush_due is not None:
            assert self.wakes == wakes + 1
        self.check()
        return result

    def ack(self, choice: int) -> None:
        """Acks one record."""
        self.step("ack", self.pick(choice))

    def ack_all(self, choices: Sequence[int], length: int) -> None:
        """Acks a list of records, or a range of them."""
        indices: Sequence[int] = [self.pick(choice) for choice in choices]
        if length and indices:
            indices = range(indices[0], indices[0] + length)
        expected = sum([self.model.ack(index) for index in indices])
        assert self.tracker.ack_all(indices) == expected
        self.check()

    def ack_cumulative(self, choice: int) -> None:
        """Acks up to a record."""
        self.step("ack_cumulative", self.pick(choice))

    def attempt(self, index: int, choice: int) -> int:
        """The record's attempt, or sometimes another one."""
        record = self.model.get(index)
        return (record.failures + 1 if record else 1) + (choice % 7 == 0) - (choice % 7 == 1)

    def nack(self, choice: int, late: int, delay: float | None) -> None:
        """Nacks a delivery, or one that is over."""
        index = self.pick(choice)
        self.step("nack", index, self.attempt(index, late), self.now, delay, object())

    def reject(self, choice: int, late: int) -> None:
        """Rejects a delivery, or one that is over."""
        index = self.pick(choice)
        self.step("reject", index, self.attempt(index, late))

    def dead_lettered(self, choice: int) -> None:
        """Makes a dead letter durable, if there is one."""
        dead = [i for i, record in enumerate(self.model.records) if record.state == "dead"]
        index = dead[choice % len(dead)] if dead and choice % 5 else self.pick(choice)
        expected = self.model.settle(index, "dead")
        assert self.tracker.dead_lettered(index) == expected
        self.check()

    def hand_out(self, choices: Sequence[int]) -> None:
        """Hands messages out, some for a second time."""
        records = self.model.records
        messages = [self.messages[i] for i in map(self.pick, choices) if 0 <= i < len(records)]
        wanted = [m for m in messages if self.model.hand_out(m.index, self.now, m)]
        assert list(self.tracker.handed_out(messages, self.now)) == wanted
        self.check()

    def extend(self, choice: int, late: int, seconds: float) -> None:
        """Gives a delivery more time."""
        index = self.pick(choice)
        self.step("extend", index, self.attempt(index, late), self.now, seconds)

    def wait(self, seconds: float) -> None:
        """Lets time pass."""
        self.now += seconds
        self.wall += seconds
        self.step("due", self.now)

    # -- flushing -------------------------------------------------------------------------

    def flush(self, *, force: bool) -> None:
        """Takes a flush, if there is something to flush."""
        was_dirty, last = self.model.dirty, self.flushes[-1].number if self.flushes else 0
        flush = self.tracker.flush(self.now, self.wall, force=force)
        if flush is None:
            assert not was_dirty or self.in_air is not None or not force
        else:
            assert was_dirty
            assert self.in_air is None
            assert flush.number == last + 1
            assert flush.checkpoint == self.model.checkpoint(self.now, self.wall)
            self.model.dirty, self.in_air = False, flush
            self.flushes.append(flush)
        self.check()

    def answer(self, kind: int, size: int) -> None:
        """The flush in the air is durable, durable in part, or failed, or an old one is heard of."""
        flush = self.in_air
        if flush is None or kind % 8 == 0:
            self._answer_old(kind)
        elif kind % 3 == 0:
            self.in_air, self.model.dirty = None, True
            wakes = self.wakes
            self.tracker.flush_failed(flush)
            assert self.wakes == wakes + 1
        else:
            self._stored(flush, size if kind % 3 == 1 else 1_000_000)
        self.check()

    def _answer_old(self, kind: int) -> None:
        if len(self.flushes) > 1:
            old = self.flushes[kind % (len(self.flushes) - 1)]
            self.tracker.flushed(old, Outcome.durable())
            self.tracker.flush_failed(old)

    def _stored(self, flush: AckFlush, size: int) -> None:
        self.durable, covered = encode_checkpoint(
            flush.checkpoint,
            broker="test",
            partition=ASSIGNMENT.partition,
            encode_position=self.setup.write,
            max_size=size,
        )
        self.in_air = None
        if covered is None:
            self.durable_number = flush.number
            kept = self._decode()
            if size < 1_000_000:  # attempts may have been dropped
                kept = replace(kept, attempts=flush.checkpoint.attempts)
            assert kept == flush.checkpoint
        self.tracker.flushed(flush, Outcome.durable(covered))
        self._check_nothing_is_skipped()

    def _decode(self) -> Checkpoint:
        assert self.durable is not None
        return decode_checkpoint(
            self.durable,
            broker="test",
            partition=ASSIGNMENT.partition,
            identity=None,
            decode_position=self.setup.read,
        )

    def _check_nothing_is_skipped(self) -> None:
        """What the stored checkpoint covers, or starts behind, was settled once."""
        self._note_done()
        checkpoint = self._decode()
        for number in self.log:
            position = self.setup.position(number)
            if self._covers(checkpoint, position):
                assert number in self.done, number

    def _covers(self, checkpoint: Checkpoint, position: Position) -> bool:
        watermark, resume = checkpoint.watermark, checkpoint.resume
        return (
            (watermark is not None and position <= watermark)
            or (resume is not None and position < resume)
            or any(first <= position <= last for first, last in checkpoint.ranges)
        )

    def _note_done(self) -> None:
        settled = {r.position for r in self.model.records if not r.is_live}
        self.done |= {number for number in self.log if self.setup.position(number) in settled}

    def restart(self, skew: float, lost: Callable[[], bool], *, durable: bool) -> None:
        """Starts again from what is durable; meanwhile the broker compacts records away."""
        self._note_done()
        self.log = [number for number in self.log if not lost()]
        self.now, self.wall = 512.0 - self.now % 256, self.wall + skew
        checkpoint = self._decode() if self.durable else Checkpoint()
        resume = checkpoint.resume
        places = [
            i for i, n in enumerate(self.log) if resume is None or self.setup.position(n) >= resume
        ]
        self._begin(
            replace(checkpoint, ended=False), min(places, default=len(self.log)), durable=durable
        )
        self.check()

    # -- comparing ------------------------------------------------------------------------

    def check(self) -> None:
        """Tracker and model are in the same state, and the watermark has not gone back."""
        tracker, model, now = self.tracker, self.model, self.now
        checkpoint = tracker.checkpoint(now, self.wall)
        assert checkpoint == model.checkpoint(now, self.wall)
        if self.watermark is not None:
            assert checkpoint.watermark >= self.watermark
        self.watermark = checkpoint.watermark
        live = [record for record in model.records if record.is_live]
        states = [record.state for record in live]
        assert tracker.unsettled == len(live)
        assert tracker.unsettled_bytes == 8 * len(live)
        assert tracker.retrying == states.count("retrying")
        assert tracker.ignored == model.ignored
        assert tracker.is_dirty == model.dirty
        assert (tracker.flush_due is not None) == (model.dirty and self.in_air is None)
        assert tracker.durable_number == self.durable_number
        first_due = model.next_due()
        assert tracker.next_due() == (None if first_due is None else first_due[0])
        self._check_window()
        explained = tracker.explain(now)
        assert explained.watermark == checkpoint.watermark
        assert explained.holes == len(checkpoint.ranges)
        assert (explained.unsettled, explained.retrying) == (len(live), states.count("retrying"))
        assert explained.dead_lettering == states.count("dead")
        pin = live[0] if live else None
        assert explained.pinned_by == (pin.position if pin else None)
        assert explained.state == (STATES[pin.state] if pin else None)
        assert explained.attempts == (pin.failures if pin else 0)
        assert explained.age == (now - pin.tracked_at if pin else 0.0)

    def _check_window(self) -> None:
        """No chunk without an unsettled record is kept, but for the last."""
        window = self.tracker._window
        chunks = list(window.live())
        assert chunks == sorted(window.chunks.values(), key=lambda chunk: chunk.number)
        assert all(chunk.left for chunk in chunks[:-1])
        assert (chunks[0].gap, chunks[-1]) == (None, window.tail)


def plain(result: Any) -> Any:
    """A tracker's answer in the model's words."""
    if isinstance(result, Verdict):
        words = {VerdictKind.DEAD_LETTER: "dead", VerdictKind.IGNORED: "ignored"}
        return words.get(result.kind, result.due)
    if hasattr(result, "ready"):
        expired = [(index, plain(verdict), item) for index, verdict, item in result.expired]
        return list(result.ready), expired
    return result
