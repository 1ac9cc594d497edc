"""What a seed decides before anything runs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from consumer_sdk import Ordering, RetryPolicy
from consumer_sdk.records import Start
from consumer_sdk.runtime.options import OutOfRange, StartName
from consumer_sdk.testing import FaultRates
from consumer_sdk.testing.memory.subscription import CursorKind

Style = Literal["run", "run_batches", "messages", "batches"]
Ending = Literal["stop", "cancel", "close", "crash"]
Again = Literal["reset", "from_start"]

FAULTS_END = 20.0
"""Virtual seconds after which nothing fails any more and nobody is killed."""


SEAMS = (
    "fetch",
    "fetch.partition",
    "commit",
    "commit.partition",
    "acks",
    "committed",
    "positions",
    "lag",
    "claim",
    "save",
    "save.partition",
    "dead_letters",
    "dead_letter",
)


@dataclass(frozen=True, slots=True)
class Life:
    """One process of a consumer, from its start to its end."""

    start: float
    end: float
    ending: Ending
    style: Style
    ordering: Ordering
    concurrency: int
    batch: int
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Subscribing:
    """How records come, where the broker redelivers what it has not heard of.

    Attributes:
        kind: who gets a record.
        keeps_indexes: acks of a part of an entry outlive its delivery.
        prefetch: what the broker sends ahead.
        entries: how many of the bursts are stored as one entry.
        cuts_at: when connections break.
    """

    kind: CursorKind
    keeps_indexes: bool
    prefetch: int
    entries: float
    cuts_at: tuple[float, ...]

    @property
    def is_queue(self) -> bool:
        """Consumers share each partition."""
        return self.kind != "failover"

    @property
    def orderings(self) -> tuple[Ordering, ...]:
        """Those that can be asked for."""
        kept = {"shared": (Ordering.NONE,), "key_shared": (Ordering.NONE, Ordering.KEY)}
        return kept.get(self.kind, tuple(Ordering))


@dataclass(frozen=True, slots=True)
class Plan:
    """A scenario.

    Attributes:
        again: how the last process comes to read elsewhere than where the others had got to.
        subscribing: None for a group that reads by position.
        faults_end: virtual seconds after which nothing fails any more and nobody is killed.
    """

    partitions: int
    records: int
    keys: int
    burst: int
    has_gaps: bool
    has_store: bool
    metadata_size: int
    start: Start | StartName
    grows_at: float | None
    expires_at: tuple[float, ...]
    truncates_at: tuple[float, ...]
    ack_timeout: float | None
    failure: float
    slowness: float
    poison: float
    rates: dict[str, FaultRates]
    retry: RetryPolicy
    slots: tuple[tuple[Life, ...], ...]
    again: Again | None = None
    subscribing: Subscribing | None = None
    faults_end: float = FAULTS_END
    out_of_range: OutOfRange = "earliest"

    @property
    def keeps_checkpoints(self) -> bool:
        """An application's id outlives its process."""
        return self.has_store or self.metadata_size >= 1000

    @property
    def orderings(self) -> tuple[Ordering, ...]:
        """Those that can be asked for."""
        return tuple(Ordering) if self.subscribing is None else self.subscribing.orderings


def make_plan(chance: random.Random) -> Plan:
    """Draws a scenario; half of them with a subscription."""
    plan = _make_plan(chance)
    if chance.random() < 0.5:
        return _subscribe(plan, chance)
    choices: tuple[Again | None, ...] = (None, None, "reset", "from_start")
    again = chance.choice(choices)
    if again == "from_start" and not plan.keeps_checkpoints:
        again = None
    return replace(plan, again=again)


def _subscribe(plan: Plan, chance: random.Random) -> Plan:
    many = chance.choice((0, 0, 3, 20))
    subscribing = Subscribing(
        kind=chance.choice(("failover", "shared", "key_shared")),
        keeps_indexes=chance.random() < 0.5,
        prefetch=chance.choice((1, 10, 1000)),
        entries=chance.choice((0.0, 0.3)),
        cuts_at=tuple(chance.uniform(1, FAULTS_END) for _ in range(many)),
    )
    if subscribing.is_queue:
        plan = replace(plan, has_store=False, start="earliest")
    kept = subscribing.orderings
    slots = tuple(
        tuple(replace(life, ordering=chance.choice(kept)) for life in lives) for lives in plan.slots
    )
    return replace(plan, slots=slots, subscribing=subscribing)


def _make_plan(chance: random.Random) -> Plan:
    """About a third of them have no fault at the seams."""
    trouble = chance.choice((0.0, 0.05, 0.25))
    return Plan(
        partitions=chance.randint(1, 6),
        records=chance.randint(10, 120),
        keys=chance.choice((1, 2, 5, 20)),
        burst=chance.choice((1, 5, 30)),
        has_gaps=chance.random() < 0.4,
        has_store=chance.random() < 0.5,
        metadata_size=chance.choice((0, 300, 4096)),
        start=chance.choice(("earliest", "earliest", "latest")),
        grows_at=chance.uniform(1, FAULTS_END) if chance.random() < 0.2 else None,
        expires_at=tuple(chance.uniform(1, FAULTS_END) for _ in range(chance.choice((0, 0, 1, 2)))),
        truncates_at=tuple(
            chance.uniform(1, FAULTS_END) for _ in range(chance.choice((0, 0, 0, 2)))
        ),
        ack_timeout=chance.choice((None, None, 1.0)),
        failure=chance.choice((0.0, 0.1, 0.4)),
        slowness=chance.choice((0.0, 0.05, 0.5)),
        poison=chance.choice((0.0, 0.05, 0.2)),
        rates=make_rates(chance, trouble, SEAMS),
        retry=RetryPolicy(
            max_attempts=chance.choice((1, 2, 4)),
            initial=chance.choice((0.0, 0.1, 0.5)),
            maximum=2.0,
        ),
        slots=tuple(make_slot(chance, FAULTS_END, 8.0) for _ in range(chance.randint(1, 3))),
    )


def make_rates(
    chance: random.Random, trouble: float, seams: Sequence[str]
) -> dict[str, FaultRates]:
    """Draws how often each seam fails, none more often than twice ``trouble``, and how slow it is."""
    return {
        seam: FaultRates(
            before=trouble * chance.random(),
            after=trouble * chance.random(),
            delay=chance.random() * 0.5,
            max_delay=chance.choice((0.01, 0.2, 3.0)),
        )
        for seam in seams
        if chance.random() < 0.7
    }


def make_slot(chance: random.Random, faults_end: float, mean: float) -> tuple[Life, ...]:
    """Draws the processes that follow one another in one place; ``mean`` seconds each."""
    lives: list[Life] = []
    start = chance.choice((0.0, 0.0, chance.uniform(0, 10)))
    while start < faults_end and len(lives) < 4:
        end = start + chance.expovariate(1 / mean)
        lives.append(_life(chance, start, end))
        start = end + chance.choice((0.0, 0.5, 4.0))
    return tuple(lives)


def _life(chance: random.Random, start: float, end: float) -> Life:
    return Life(
        start=start,
        end=end,
        ending=chance.choice(("stop", "cancel", "close", "crash", "crash")),
        style=chance.choice(("run", "run", "run_batches", "messages", "batches")),
        ordering=chance.choice(tuple(Ordering)),
        concurrency=chance.choice((1, 3, 50)),
        batch=chance.choice((1, 3, 20)),
        options=_options(chance),
    )


def _options(chance: random.Random) -> dict[str, Any]:
    return {
        "flush_interval": chance.choice((0.0, 0.05, 1.0)),
        "flush_count": chance.choice((1, 5, 1000)),
        "drain_timeout": chance.choice((0.2, 2.0, 5.0)),
        "max_in_flight": chance.choice((4, 20, 1000)),
        "max_retrying": chance.choice((3, 1000)),
        "fetch_records": chance.choice((1, 4, 50)),
        "fetch_wait": 0.5,
        "max_in_flight_per_partition": chance.choice((None, None, 3)),
        "max_holes": chance.choice((1, 3, 10_000)),
        "max_hole_age": chance.choice((None, None, 2.0)),
        "hole_policy": chance.choice(("pause", "pause", "warn", "dead_letter")),
    }
