"""What a seed decides before anything runs."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

__all__ = ["GroupPlan", "Life", "Protocol", "make_plan"]

Protocol = Literal["consumer", "eager", "cooperative"]
PROTOCOLS: tuple[Protocol, ...] = ("consumer", "eager", "cooperative")
ASSIGNORS: Mapping[Protocol, Sequence[tuple[str, ...]]] = {
    "consumer": [("uniform",), ("uniform",), ("range",)],
    "eager": [("range",), ("roundrobin",), ("sticky",), ("cooperative-sticky", "range")],
    "cooperative": [("cooperative-sticky",)],
}
Ending = Literal["kill", "leave"]
Change = Literal["grow", "create", "delete", "again"]

END = 60.0
"""Virtual seconds in which there are faults."""


@dataclass(frozen=True, slots=True)
class Life:
    """One process.

    Attributes:
        end: ``inf`` for one that lives until the group has settled.
    """

    start: float
    end: float
    ending: Ending


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """A scenario; durations are in seconds, chances are those of one request.

    Attributes:
        assignors: of classic members, or of the server.
        topics: how many partitions each has.
        is_pattern: the members subscribe by a pattern.
        slots: the processes, one after the other, of each member.
        is_static: the processes of a slot have one instance id.
        max_size: members that the group takes.
        lost: chances that a request, or its answer, is lost.
        late: chance that a request or an answer takes seconds.
        repeated: chance that an answer is given to the member once more.
        latency: mean one.
        request_timeout: after which a member's process gives up an answer.
        drain: mean time that a process takes for what was revoked; a few take ten times as long.
        stops: when a process stops, of which slot, and for how long.
        cuts: when a process is cut off, of which slot, and for how long.
        failovers: when, and how long the new coordinator loads.
        changes: when topics change, and how.
        is_upgraded: from eager to cooperative, one process after the other: every second slot knows both ways still.
    """

    protocol: Protocol
    assignors: tuple[str, ...]
    topics: tuple[int, ...]
    is_pattern: bool
    session_timeout: float
    rebalance_timeout: float
    heartbeat_interval: float
    assignment_interval: float
    slots: tuple[tuple[Life, ...], ...]
    is_static: bool
    max_size: int
    lost: float
    late: float
    repeated: float
    latency: float
    request_timeout: float
    drain: float
    stops: tuple[tuple[float, int, float], ...]
    cuts: tuple[tuple[float, int, float], ...]
    failovers: tuple[tuple[float, float], ...]
    changes: tuple[tuple[float, Change], ...]
    is_upgraded: bool

    def assignors_of(self, slot: int) -> tuple[str, ...]:
        """Those that its processes know; whoever knows one that is not cooperative is eager."""
        return (*self.assignors, "range") if self.is_upgraded and slot % 2 else self.assignors

    def instance_id(self, slot: int) -> str | None:
        """Of its processes; None for dynamic members."""
        return f"i{slot}" if self.is_static else None

    @property
    def subscription(self) -> tuple[tuple[str, ...], str]:
        """The names that all members subscribe to, or the pattern; some of the names have no topic at first."""
        if self.is_pattern:
            return (), "t[0-7]"
        return tuple(f"t{number}" for number in range(len(self.topics) + 2)), ""

    @property
    def settling(self) -> float:
        """Seconds in which the group settles once all works."""
        return 3 * self.session_timeout + 3 * self.rebalance_timeout + 2 * self.request_timeout + 30


def make_plan(seed: int, chance: random.Random) -> GroupPlan:
    """Draws a scenario; each third seed has the same protocol."""
    trouble = chance.choice((0.0, 0.02, 0.1, 0.3))
    slots = chance.randint(1, 5)
    return GroupPlan(
        protocol=(protocol := PROTOCOLS[seed % len(PROTOCOLS)]),
        assignors=chance.choice(ASSIGNORS[protocol]),
        topics=tuple(chance.randint(1, 5) for _ in range(chance.randint(1, 3))),
        is_pattern=chance.random() < 0.3,
        session_timeout=(session := chance.choice((6.0, 10.0, 30.0))),
        heartbeat_interval=(heartbeat := session / chance.choice((3, 6))),
        # Who has a shorter one is out before it has heard of a rebalance, and has answered it.
        rebalance_timeout=2 * heartbeat + chance.choice((4.0, 10.0, 30.0)),
        assignment_interval=chance.choice((0.0, 1.0)),
        slots=tuple(_lives(chance, is_last=slot == 0) for slot in range(slots)),
        is_static=(is_static := chance.random() < 0.25),
        max_size=chance.choice((100, 100, 100, slots, slots + 1)),
        lost=trouble,
        late=chance.choice((0.0, trouble / 2)),
        repeated=chance.choice((0.0, 0.05)),
        latency=chance.choice((0.001, 0.02, 0.3)),
        request_timeout=chance.choice((2.0, 5.0)),
        drain=chance.choice((0.0, 0.1, 1.0, 5.0)),
        stops=_spells(chance, slots, (0, 0, 1, 3)),
        cuts=_spells(chance, slots, (0, 0, 1, 3)),
        failovers=tuple(
            (at, chance.choice((0.0, 1.0, 5.0))) for at in _moments(chance, (0, 0, 1, 2, 4))
        ),
        changes=_changes(chance, is_blind=is_static and protocol != "consumer"),
        is_upgraded=protocol == "cooperative" and chance.random() < 0.2,
    )


def _changes(chance: random.Random, *, is_blind: bool) -> tuple[tuple[float, Change], ...]:
    """Of topics; none if they would go unnoticed.

    A static member of a classic group comes back without a rebalance (KIP-814). What has changed meanwhile nobody
    looks at: neither Kafka's coordinator nor Java's leader.
    """
    changes = tuple((at, _change(chance)) for at in _moments(chance, (0, 0, 1, 3)))
    return () if is_blind else changes


def _lives(chance: random.Random, *, is_last: bool) -> tuple[Life, ...]:
    """Of one slot; the last process of the first one lives on."""
    lives: list[Life] = []
    at = chance.choice((0.0, 0.0, chance.uniform(0.0, END)))
    mean = chance.choice((10.0, 30.0, 200.0))
    while at < END:
        end = at + chance.expovariate(1 / mean)
        lives.append(Life(at, end if end < END else inf, chance.choice(("kill", "leave"))))
        at = end + chance.choice((0.0, 0.1, 1.0, 10.0)) * chance.random()
        if chance.random() < 0.2:
            break
    if is_last and (not lives or lives[-1].end < inf):
        lives.append(Life(max(at, 0.0), inf, "leave"))
    return tuple(lives)


def _spells(
    chance: random.Random, slots: int, counts: tuple[int, ...]
) -> tuple[tuple[float, int, float], ...]:
    lengths = (0.5, 3.0, 8.0, 20.0, 40.0)
    return tuple(
        (at, chance.randrange(slots), chance.choice(lengths) * chance.random())
        for at in _moments(chance, counts)
    )


def _change(chance: random.Random) -> Change:
    changes: tuple[Change, ...] = ("grow", "create", "delete", "again")
    return chance.choice(changes)


def _moments(chance: random.Random, counts: tuple[int, ...]) -> tuple[float, ...]:
    return tuple(sorted(chance.uniform(0.0, END) for _ in range(chance.choice(counts))))
