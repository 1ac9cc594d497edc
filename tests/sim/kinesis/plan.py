"""What a seed decides before anything runs."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Literal

from consumer_sdk import RetryPolicy
from consumer_sdk.records import AtTime
from consumer_sdk.testing.kinesis import Quirks, ShardLimits
from tests.sim.plan import Life, Plan, make_rates, make_slot

__all__ = ["BACKLOG_AGE", "EPOCH", "KinesisPlan", "Reshard", "make_plan"]

Reshard = Literal["split", "merge", "chain"]
Trims = Literal["none", "settled", "any"]

EPOCH = 1_700_000_000.0
"""The wall clock when the simulation starts."""

BACKLOG_AGE = 60.0
"""Seconds before that at which the first record arrived."""

LIFE = 10.0
"""Mean seconds between the start and the end of a process."""

SHORT = 25.0
LONG = 800.0
"""Virtual seconds in which iterators expire, for five minutes are over."""

STOPS = (0.5, 3.0, 10.0)
LONG_STOPS = (10.0, 310.0)
"""Seconds for which processes stop."""

SEAMS = (
    *("describe", "shards", "iterator", "records", "consumer", "subscribe", "event", "time"),
    *("claim", "save", "read_back", "pin", "lease_read", "lease_write", "lease_renew"),
    *("dead_letters", "dead_letter"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KinesisPlan(Plan):
    """A scenario; ``partitions`` are the shards to begin with.

    Attributes:
        backlog: how many of the records are there before anybody reads.
        aggregates: how many of the bursts are stored as aggregates.
        lease: seconds without a sign of life after which a process is dead.
        handover: seconds to drain a shard that another one waits for.
        discovery: seconds between two looks at the list of shards.
        poll: seconds between two looks at an idle shard.
        buffer: bytes that one process may read ahead.
        limits: of each shard; the adapters know them.
        quirks: of the service.
        is_pushed: by enhanced fan-out.
        reshards_at: what is done to shards, and when.
        trims: what retention takes: only what is settled and durable, or whatever is old.
        trims_at: when.
        bursts_at: when the reads of all processes are refused, and how many of each.
        freezes_at: when a process stops, and for how long.
        pauses_at: when the host of all processes stops, and for how long.
        evicts_at: when an operator releases shards, whoever holds them.
        sizes: ``max_shards`` and ``weight`` of the processes, one after the other; but the last one,
            which has to finish alone, has no maximum.
    """

    backlog: int
    aggregates: float
    lease: float
    handover: float
    discovery: float
    poll: float
    buffer: int
    limits: ShardLimits
    quirks: Quirks
    is_pushed: bool
    reshards_at: tuple[tuple[float, Reshard], ...]
    trims: Trims
    trims_at: tuple[float, ...]
    bursts_at: tuple[tuple[float, int], ...]
    freezes_at: tuple[tuple[float, float], ...]
    pauses_at: tuple[tuple[float, float], ...]
    evicts_at: tuple[float, ...]
    sizes: tuple[tuple[int | None, int], ...]

    @property
    def is_long(self) -> bool:
        """Iterators and subscriptions expire."""
        return self.faults_end == LONG

    @property
    def is_calm(self) -> bool:
        """One process reads alone, the next one later, and no request fails or is slow."""
        lives = [life for lives in self.slots for life in lives]
        is_alone = len(lives) == 1 and lives[0].end < self.faults_end - 2
        return is_alone and not (self.rates or self.bursts_at or self.pauses_at)

    @property
    def is_on_time(self) -> bool:
        """Nothing delays what the members of the group say to one another."""
        return not self.rates and not self.pauses_at


def make_plan(chance: random.Random) -> KinesisPlan:
    """Draws a scenario: one in ten calm, one in twenty long."""
    draw = chance.random()
    is_long = 0.1 <= draw < 0.15
    plan = _make_plan(chance, LONG if is_long else SHORT)
    if draw < 0.1:
        return _calm(plan)
    return _slow(plan, chance) if is_long else plan


def _calm(plan: KinesisPlan) -> KinesisPlan:
    """The last process takes over from this one, long after it has gone."""
    life = replace(plan.slots[0][0], start=0.0, end=plan.faults_end - 5.0, ending="stop")
    return replace(plan, slots=((life,),), rates={}, bursts_at=(), freezes_at=(), evicts_at=())


def _slow(plan: KinesisPlan, chance: random.Random) -> KinesisPlan:
    """Handlers hang until iterators are too old, and shards are paused for them."""
    few = {"max_in_flight": 4, "max_holes": 3, "hole_policy": "pause"}
    slots = tuple(
        tuple(_patient(life, few if chance.random() < 0.5 else {}) for life in lives)
        for lives in plan.slots
    )
    stops = tuple((at, chance.choice(LONG_STOPS)) for at, _ in plan.freezes_at)
    return replace(
        plan, slots=slots, freezes_at=stops, lease=20.0, poll=10.0, discovery=60.0, ack_timeout=None
    )


def _patient(life: Life, options: dict[str, object]) -> Life:
    return replace(life, options={**life.options, **options})


ROOM = 1 << 20
"""Bytes for all records of a scene."""


def _make_plan(chance: random.Random, end: float) -> KinesisPlan:
    """A third of them have no fault at the seams, a ninth of them no delay either."""
    trouble = chance.choice((0.0, 0.05, 0.2))
    is_quick = trouble == 0 and chance.random() < 0.4
    trims: Trims = chance.choice(("none", "none", "settled", "any"))
    mean = LIFE * end / SHORT
    buffer = chance.choice((1, 200, ROOM))
    is_reread = trims == "settled" and buffer < ROOM
    return KinesisPlan(
        partitions=chance.randint(1, 4),
        records=chance.randint(10, 80),
        keys=chance.choice((1, 2, 5, 20)),
        burst=chance.choice((1, 5, 20)),
        has_gaps=False,
        has_store=True,
        metadata_size=0,
        start=chance.choice(("earliest", "earliest", "latest", AtTime(EPOCH - BACKLOG_AGE / 2))),
        grows_at=None,
        expires_at=(),
        truncates_at=(),
        ack_timeout=chance.choice((None, None, 1.0)),
        failure=chance.choice((0.0, 0.1, 0.4)),
        slowness=chance.choice((0.0, 0.05, 0.3)),
        poison=chance.choice((0.0, 0.05, 0.2)),
        rates={} if is_quick else make_rates(chance, trouble, SEAMS),
        retry=RetryPolicy(
            max_attempts=chance.choice((1, 2, 4)),
            initial=chance.choice((0.0, 0.1, 0.5)),
            maximum=2.0,
        ),
        slots=tuple(make_slot(chance, end, mean) for _ in range(chance.randint(1, 3))),
        faults_end=end,
        # Records that were read ahead and forgotten, for want of room, are read again. What
        # retention takes meanwhile may be settled above a hole, which the adapter does not know.
        out_of_range="earliest" if trims == "any" or is_reread else "fail",
        backlog=chance.choice((0, 0, 5, 20)),
        aggregates=chance.choice((0.0, 0.0, 0.5)),
        lease=chance.choice((1.5, 3.0, 6.0)),
        handover=chance.choice((1.0, 4.0)),
        discovery=chance.choice((2.0, 10.0, 60.0)),
        poll=chance.choice((1.0, 3.0)),
        buffer=buffer,
        limits=_limits(chance),
        quirks=_quirks(chance),
        is_pushed=chance.random() < 0.25,
        reshards_at=_reshards(chance, end),
        trims=trims,
        trims_at=_moments(chance, end, (1, 2, 4)) if trims != "none" else (),
        bursts_at=tuple(
            (moment, chance.choice((2, 8))) for moment in _moments(chance, end, (0, 0, 0, 2))
        ),
        freezes_at=_stops(chance, end, (0, 1, 1, 3)),
        pauses_at=_stops(chance, end, (0, 0, 0, 1)),
        evicts_at=_evicts(chance, end),
        sizes=_sizes(chance),
    )


def _evicts(chance: random.Random, end: float) -> tuple[float, ...]:
    """A quarter of the groups have an operator; drawn from a copy as the sizes are."""
    copy = random.Random()
    copy.setstate(chance.getstate())
    return _moments(copy, end, (1, 2, 4)) if copy.random() < 1 / 4 else ()


def _sizes(chance: random.Random) -> tuple[tuple[int | None, int], ...]:
    """A third of the groups have members of different size.

    Drawn from a copy, so that the seeds of groups without are what they were before there were sizes.
    """
    copy = random.Random()
    copy.setstate(chance.getstate())
    if copy.random() < 2 / 3:
        return ((None, 1),)
    return tuple((copy.choice((None, None, 1, 2, 4)), copy.choice((1, 1, 2, 3))) for _ in range(5))


def _limits(chance: random.Random) -> ShardLimits:
    """Those of AWS; few bytes, so that small records meet them; or none."""
    few = ShardLimits(bytes=200.0, answer=1_000)
    return chance.choice((ShardLimits(), ShardLimits(), few, ShardLimits.none()))


def _quirks(chance: random.Random) -> Quirks:
    return Quirks(
        null_with_last_records=chance.random() < 0.5,
        names_children=chance.random() < 0.7,
        empty_pages=chance.choice((0, 0, 1, 3)),
        list_lag=chance.choice((0.0, 0.0, 1.0, 5.0)),
        close_lag=chance.choice((0.0, 0.0, 2.0)),
        takeover_error=chance.random() < 0.5,
        false_ends=chance.choice((0, 0, 0, 7)),
    )


def _reshards(chance: random.Random, end: float) -> tuple[tuple[float, Reshard], ...]:
    kinds: tuple[Reshard, ...] = ("split", "merge", "chain")
    moments = _moments(chance, end, (0, 1, 2, 4, 6))
    return tuple((moment, chance.choice(kinds)) for moment in moments)


def _stops(
    chance: random.Random, end: float, counts: tuple[int, ...]
) -> tuple[tuple[float, float], ...]:
    moments = _moments(chance, end, counts)
    return tuple((moment, chance.choice(STOPS)) for moment in moments)


def _moments(chance: random.Random, end: float, counts: tuple[int, ...]) -> tuple[float, ...]:
    return tuple(sorted(chance.uniform(0.5, end) for _ in range(chance.choice(counts))))
