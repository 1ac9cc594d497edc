"""Drives the queue tracker: a broker that delivers again what it has not heard of, and more."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from consumer_sdk.records import AckFlush, Checkpoint, Outcome, OutcomeKind, Position
from consumer_sdk.trackers import QueueTracker
from tests.trackers.building import ASSIGNMENT
from tests.trackers.driver import INTERVAL, Driver, messages_at
from tests.trackers.model import Names
from tests.trackers.queue_model import QueueModel
from tests.trackers.shelf import Shelf

ATTEMPTS_AGE = 40.0
"""Seconds for which an attempt of a record that does not come is kept over restarts."""


@dataclass(frozen=True)
class Setup:
    """What is fixed for one run of the driver."""

    chunk_bits: int = 2
    max_attempts: int | None = 3
    timeout: float | None = None
    flush_count: int = 5
    proof_count: int = 8
    proof_age: float = 4.0
    words: bool = False

    def position(self, number: int) -> Position:
        """A batch entry's index; or a name whose order means nothing."""
        return f"{number * 2654435761 % 997}-{number}" if self.words else divmod(number, 4)


class QueueDriver(Driver):
    """One queue, of which one consumer after the other gets a share.

    Attributes:
        newest: the number of the newest record that the broker has.
        told: natives that the broker was told of, by position, in whatever epoch.
        shelf: the attempts that were stored last.
    """

    tracker: QueueTracker
    model: QueueModel

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup.max_attempts)
        self.setup = setup
        self.newest = 0
        self.told: dict[Position, int] = {}
        self.shelf = Shelf(words=setup.words)
        self._start(Checkpoint(), durable=True)

    def _start(self, checkpoint: Checkpoint, *, durable: bool) -> None:
        self._begin()
        self.fulls: list[str] = []
        setup = self.setup
        self.tracker = QueueTracker(
            ASSIGNMENT,
            self.wake_tracker,
            full=lambda: self.fulls.append("tracker"),
            flush_count=setup.flush_count,
            proof_count=setup.proof_count,
            proof_age=setup.proof_age,
            attempts_age=ATTEMPTS_AGE,
            policy=self.policy,
            flush_interval=INTERVAL,
            ack_timeout=setup.timeout,
            random=lambda: 0.0,
            chunk_bits=setup.chunk_bits,
        )
        self.tracker.restore(checkpoint, self.now, self.wall, durable=durable)
        attempts = {
            position: (failures, self.now + self.left_of(due, checkpoint.written))
            for position, (failures, due) in checkpoint.attempts.items()
            if self.wall - due <= ATTEMPTS_AGE
        }
        self.model = QueueModel(
            self.policy,
            setup.timeout,
            Checkpoint(attempts=attempts),
            self.wake_model,
            Names(setup.proof_count, setup.proof_age),
            flush_count=setup.flush_count,
            full=lambda: self.fulls.append("model"),
        )
        if not durable:
            self.model.touch()

    # -- steps ----------------------------------------------------------------------------

    def fetch(self, choices: Sequence[int]) -> None:
        """A run of new records, and of any that were delivered before, also twice."""
        numbers = []
        for choice in choices:
            if choice % 4 == 0 and self.newest:
                numbers.append(self.newest - (choice // 4) % self.newest)
            else:
                self.newest += 1 + choice % 3 // 2  # some go to another consumer
                numbers.append(self.newest)
        self.track(messages_at([self.setup.position(each) for each in numbers]), names=True)

    def reconnect(self) -> None:
        """The broker delivers all again that is in flight, and all that it was not told of."""
        names, records = self.model.names, self.model.records
        live = [record.position for record in records if record.is_live]
        self.track(messages_at([*live, *names.in_air, *names.pending]), names=True)

    def redeliver(self, most: int) -> None:
        """The broker delivers records again that have attempts in the store."""
        self.track(messages_at(list(self.shelf.load().attempts)[:most]), names=True)

    def restart(self, skew: float, *, durable: bool) -> None:
        """Another consumer begins, with the attempts that were stored."""
        self.now, self.wall = 512.0 - self.now % 256, self.wall + skew
        checkpoint = self.shelf.load()
        self.note_restart(checkpoint)
        self._start(checkpoint, durable=durable)
        self.check()

    # -- flushing -------------------------------------------------------------------------

    def flush_due(self) -> float | None:
        due = super().flush_due()
        return -math.inf if due is not None and self.model.is_full else due

    def stored(self, flush: AckFlush, size: int) -> Outcome:
        """The broker hears of all; what it can show is DURABLE or SENT."""
        self.shelf.save(flush.checkpoint)
        assert self.shelf.load() == flush.checkpoint
        settled = {record.position for record in self.model.records if not record.is_live}
        assert settled | self.told.keys() >= {position for position, _ in flush.settled}
        for position, native in flush.settled:
            assert native > self.told.get(position, 0)
            self.told[position] = native
        return Outcome(OutcomeKind.SENT if size else OutcomeKind.DURABLE)

    def check(self) -> None:
        """The call for a flush before its time came where it was due."""
        super().check()
        assert self.fulls.count("tracker") == self.fulls.count("model")
        live = {r.position: i for i, r in enumerate(self.model.records) if r.is_live}
        self._check_indices(live)
        self._check_names({record.position for record in self.model.records} - live.keys())
        explained = self.tracker.explain(self.now)
        assert (explained.watermark, explained.holes) == (None, 0)

    def _check_indices(self, live: Mapping[Position, int]) -> None:
        """Looked at as they are: to ask for one would have all of them hashed."""
        found = self.tracker._index_of
        self.reached["hashed indices"] += found is not None
        if found is not None:
            unsettled = {at: i for at, i in found.items() if not self.tracker.is_settled(i)}
            assert unsettled == live
            assert found.keys() - live.keys() <= self.model.names.pending.keys()

    def _check_names(self, settled: AbstractSet[Position]) -> None:
        """Likewise."""
        named = self.tracker._named
        lazily = [named._flying, named._told, named._older]
        self.reached["positions not hashed"] += any(known._listed for known in lazily)
        known = set(dict(named.pending)).union(*(each._hashed for each in lazily))
        known = known.union(*(part for each in lazily for part in each._listed))
        assert known & settled == {at for at in settled if self.model.names.knows(at)}
        assert len(named._told) == len(set(self.model.names.told))
