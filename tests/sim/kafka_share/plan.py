"""What a seed decides before anything runs."""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import inf

from consumer_sdk.adapters.kafka.share.messages import AcquireMode
from consumer_sdk.testing.kafka import Limits
from tests.sim.kafka_groups.plan import Life

__all__ = ["END", "Life", "SharePlan", "make_plan"]

END = 60.0
"""Virtual seconds in which there are faults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePlan:
    """A scenario; durations are in seconds, chances are those of one request or one delivery.

    Attributes:
        appends: when record batches are appended, to which partition, and how many records.
        nodes: brokers.
        slots: the processes, one after the other, of each member.
        renews: the broker and the group allow renewals.
        mode, max_held, workers: of each process: how it fetches, records that it fetches ahead, and handlers.
        service: mean time of a handler; some take ten times as long.
        flush: seconds between two flushes.
        rejects, retries, waits: chances that a handler rejects, gives back, or tries again after a while here.
        lost: chances that a request, or its answer, is lost.
        late: chance that a request or an answer takes seconds.
        repeated: chance that an answer is given to the session once more.
        breaks: chance that a connection ends under a request.
        stops: when a process stops, of which slot, and for how long.
        cuts: when a process is cut off, of which slot, and for how long.
        moves: when a partition's leader moves.
        restarts: when a broker starts again.
        failovers: when the coordinator moves, and how long the new one loads.
        outages: when the share coordinator answers nothing, and for how long.
        compactions: when a record batch is compacted away.
    """

    partitions: int
    nodes: int
    appends: tuple[tuple[float, int, int], ...]
    limits: Limits
    slots: tuple[tuple[Life, ...], ...]
    renews: bool
    mode: AcquireMode
    max_held: int
    workers: int
    service: float
    flush: float
    rejects: float
    retries: float
    waits: float
    session_timeout: float
    heartbeat_interval: float
    lost: float
    late: float
    repeated: float
    breaks: float
    latency: float
    request_timeout: float
    stops: tuple[tuple[float, int, float], ...]
    cuts: tuple[tuple[float, int, float], ...]
    moves: tuple[float, ...]
    restarts: tuple[float, ...]
    failovers: tuple[tuple[float, float], ...]
    outages: tuple[tuple[float, float], ...]
    compactions: tuple[float, ...]

    @property
    def records(self) -> int:
        """How many there are."""
        return sum(count for *_, count in self.appends)

    @property
    def keeps_locks(self) -> bool:
        """Nothing befalls anybody, and there is time enough to renew each lock."""
        befalls = (self.stops, self.cuts, self.moves, self.restarts, self.failovers, self.outages)
        is_calm = not any(befalls) and not (self.lost or self.late or self.breaks)
        is_whole = all(life.end == inf for lives in self.slots for life in lives)
        is_quick = 25 * self.latency <= self.limits.lock_duration
        return is_calm and is_whole and is_quick and self.renews

    @property
    def settling(self) -> float:
        """Seconds in which all records are settled once all works."""
        work = self.records * (self.service * 4 + self.flush / max(self.max_held, 1)) / self.workers
        rounds = self.limits.delivery_count_limit * (
            self.limits.lock_duration + 4 * self.service + 5
        )
        return 2 * self.session_timeout + 3 * work + 3 * rounds + 60


def make_plan(chance: random.Random) -> SharePlan:
    """Draws a scenario."""
    trouble = chance.choice((0.0, 0.02, 0.1, 0.3))
    slots = chance.randint(1, 5)
    partitions = chance.randint(1, 4)
    is_calm = chance.random() < 0.1
    if is_calm:
        trouble = 0.0
    none = (0,) if is_calm else ()
    lock = chance.choice((2.0, 5.0, 15.0))
    renews = chance.random() < 0.7
    return SharePlan(
        partitions=partitions,
        nodes=chance.randint(1, 3),
        appends=_appends(chance, partitions),
        limits=Limits(
            lock_duration=lock,
            delivery_count_limit=chance.choice((2, 3, 5, 10)),
            max_record_locks=chance.choice((10, 30, 200, 2000)),
            is_renewable=renews or chance.random() < 0.3,
        ),
        slots=tuple(_lives(chance, is_last=slot == 0, is_calm=is_calm) for slot in range(slots)),
        renews=renews,
        mode=chance.choice(list(AcquireMode)),
        max_held=chance.choice((1, 5, 20, 100)),
        workers=chance.choice((1, 4, 30)),
        service=chance.choice((0.0, 0.01, 0.1, lock / 3)),
        flush=chance.choice((0.05, 0.3, 1.0)),
        rejects=chance.choice((0.0, 0.05)),
        retries=chance.choice((0.0, 0.05, 0.2)),
        waits=chance.choice((0.0, 0.05)),
        session_timeout=(session := chance.choice((6.0, 10.0, 30.0))),
        heartbeat_interval=session / chance.choice((3, 6)),
        lost=trouble,
        late=chance.choice((0.0, trouble / 2)),
        repeated=chance.choice((0.0, 0.05)),
        breaks=chance.choice((0.0, trouble / 2)),
        latency=min(chance.choice((0.001, 0.02, 0.2)), lock / 50),
        request_timeout=chance.choice((2.0, 5.0)),
        stops=_spells(chance, slots, none or (0, 0, 1, 3)),
        cuts=_spells(chance, slots, none or (0, 0, 1, 3)),
        moves=_moments(chance, none or (0, 0, 1, 4)),
        restarts=_moments(chance, none or (0, 0, 0, 1, 2)),
        failovers=tuple(
            (at, chance.choice((0.0, 1.0, 5.0))) for at in _moments(chance, none or (0, 0, 1, 2))
        ),
        outages=tuple(
            (at, chance.choice((0.1, 1.0, 5.0))) for at in _moments(chance, none or (0, 0, 0, 1, 3))
        ),
        compactions=_moments(chance, (0, 0, 0, 2)),
    )


def _appends(chance: random.Random, partitions: int) -> tuple[tuple[float, int, int], ...]:
    most = chance.choice((1, 5, 30))
    count = chance.choice((3, 10, 30))
    return tuple(
        sorted(
            (
                chance.choice((0.0, chance.uniform(0.0, END))),
                chance.randrange(partitions),
                chance.randint(1, most),
            )
            for _ in range(count)
        )
    )


def _lives(chance: random.Random, *, is_last: bool, is_calm: bool) -> tuple[Life, ...]:
    """Of one slot; the last process of the first one lives on."""
    lives: list[Life] = []
    at = chance.choice((0.0, 0.0, chance.uniform(0.0, END)))
    mean = inf if is_calm else chance.choice((10.0, 30.0, 200.0))
    while at < END:
        end = inf if is_calm else at + chance.expovariate(1 / mean)
        lives.append(Life(at, end if end < END else inf, chance.choice(("kill", "leave"))))
        at = end + chance.choice((0.0, 0.1, 1.0, 10.0)) * chance.random()
        if chance.random() < 0.2:
            break
    if is_last and (not lives or lives[-1].end < inf):
        lives.append(Life(min(at, END - 1.0), inf, "leave"))
    return tuple(lives)


def _spells(
    chance: random.Random, slots: int, counts: tuple[int, ...]
) -> tuple[tuple[float, int, float], ...]:
    lengths = (0.5, 3.0, 8.0, 20.0, 40.0)
    return tuple(
        (at, chance.randrange(slots), chance.choice(lengths) * chance.random())
        for at in _moments(chance, counts)
    )


def _moments(chance: random.Random, counts: tuple[int, ...]) -> tuple[float, ...]:
    return tuple(sorted(chance.uniform(0.0, END) for _ in range(chance.choice(counts))))
