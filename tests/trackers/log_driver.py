"""Drives the log tracker: a broker's log, restarts from what is durable, compaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from consumer_sdk.records import AckFlush, Checkpoint, Outcome, Position
from consumer_sdk.trackers import WatermarkTracker
from tests.trackers.building import ASSIGNMENT
from tests.trackers.driver import INTERVAL, Driver, messages_at
from tests.trackers.log_model import LogModel
from tests.trackers.model import Names
from tests.trackers.shelf import Shelf


@dataclass(frozen=True)
class Setup:
    """What is fixed for one run of the driver."""

    chunk_bits: int = 2
    max_attempts: int | None = 3
    timeout: float | None = None
    pairs: bool = False
    names: bool = False
    keeps_ranges: bool = True

    def position(self, number: int) -> Position:
        """The position of the record with this number."""
        return divmod(number, 7) if self.pairs else number

    def gaps(self, positions: Sequence[Position]) -> list[int]:
        """Where a number lies between two of them."""
        numbers = [p[0] * 7 + p[1] for p in positions] if self.pairs else positions
        return [at for at in range(1, len(numbers)) if numbers[at] > numbers[at - 1] + 1]


class LogDriver(Driver):
    """One log, read by one tracker after the other.

    Attributes:
        log: numbers of the records that the broker has; ``newest`` is the last it ever had.
        done: numbers of those that were settled, in whatever epoch.
        shelf: the last checkpoint that was stored.
    """

    tracker: WatermarkTracker
    model: LogModel

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup.max_attempts)
        self.setup = setup
        self.log: list[int] = []
        self.newest = 0
        self.done: set[int] = set()
        self.shelf = Shelf()
        self._start(Checkpoint(), at=0, durable=True)

    def _start(self, checkpoint: Checkpoint, at: int, *, durable: bool) -> None:
        """A new epoch, which fetches from the log's ``at``-th record."""
        self._begin()
        self.tracker = WatermarkTracker(
            ASSIGNMENT,
            self.wake_tracker,
            policy=self.policy,
            flush_interval=INTERVAL,
            ack_timeout=self.setup.timeout,
            names_settled=self.setup.names,
            gaps=self.setup.gaps,
            keeps_ranges=self.setup.keeps_ranges,
            random=lambda: 0.0,
            chunk_bits=self.setup.chunk_bits,
        )
        self.tracker.restore(checkpoint, self.now, self.wall, durable=durable)
        attempts = {
            p: (n, self.now + self.left_of(due, checkpoint.written))
            for p, (n, due) in checkpoint.attempts.items()
        }
        self.model = LogModel(
            self.policy,
            self.setup.timeout,
            replace(checkpoint, attempts=attempts),
            self.wake_model,
            Names(0, 0.0) if self.setup.names else None,
            self.setup.gaps,
        )
        if not durable:
            self.model.touch()
        self.at, self.start = at, at
        self.watermark = checkpoint.watermark

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
        """Fetches a run that begins with records fetched before, as after a reconnect."""
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
        run = messages_at([self.setup.position(number) for number in part])
        run.next_position, run.ended = next_position, ended
        self.model.move(next_position, ended=ended, is_empty=not part)
        self.track(run, names=self.setup.names)

    def restart(self, skew: float, lost: Callable[[], bool], *, durable: bool) -> None:
        """Starts again from what is durable; meanwhile the broker compacts records away."""
        self._note_done()
        self.log = [number for number in self.log if not lost()]
        self.now, self.wall = 512.0 - self.now % 256, self.wall + skew
        checkpoint = self.shelf.load()
        resume = checkpoint.resume
        places = [
            i for i, n in enumerate(self.log) if resume is None or self.setup.position(n) >= resume
        ]
        at = min(places, default=len(self.log))
        self.note_restart(checkpoint)
        self._start(replace(checkpoint, ended=False), at, durable=durable)
        self.check()

    # -- what is durable ------------------------------------------------------------------

    def taken(self) -> Checkpoint:
        """All of the state, or the position alone."""
        checkpoint = super().taken()
        if self.setup.keeps_ranges:
            return checkpoint
        self.is_cut = bool(checkpoint.ranges)
        return replace(checkpoint, ranges=(), attempts={}, written=None)

    def stored(self, flush: AckFlush, size: int) -> Outcome:
        """Writes the checkpoint; where ``size`` is too small, without its top ranges."""
        if self.setup.names:  # in less, it gives up what is settled, and delivers that once more
            size = 1_000_000
        covered = self.shelf.save(flush.checkpoint, size)
        if covered is None:
            kept = self.shelf.load()
            if size < 1_000_000:  # attempts may have been dropped
                kept = replace(kept, attempts=flush.checkpoint.attempts)
            assert kept == flush.checkpoint
        self._check_nothing_is_skipped()
        return Outcome.durable(covered)

    def _check_nothing_is_skipped(self) -> None:
        """What the stored checkpoint covers, or starts behind, was settled once."""
        self._note_done()
        checkpoint = self.shelf.load()
        for number in self.log:
            if self._covers(checkpoint, self.setup.position(number)):
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

    def check(self) -> None:
        """The watermark has not gone back either."""
        super().check()
        checkpoint = self.tracker.checkpoint(self.now, self.wall)
        if self.watermark is not None:
            assert checkpoint.watermark >= self.watermark
        self.watermark = checkpoint.watermark
        explained = self.tracker.explain(self.now)
        assert explained.watermark == checkpoint.watermark
        assert explained.holes == len(checkpoint.ranges)
