"""Between the processes of a share group and the brokers: requests get lost, are late, and connections end."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from consumer_sdk.adapters.kafka.share.messages import Answer, Request
from consumer_sdk.testing.kafka import PendingFetch, ShareCluster
from tests.sim.kafka_groups.agenda import Agenda
from tests.sim.kafka_share.plan import SharePlan

__all__ = ["Network"]

Heard = Callable[[Answer], None]


@dataclass(slots=True)
class Network:
    """All connections to the brokers.

    Attributes:
        is_faulty: until it is told otherwise.
        cut: the slots whose processes reach nobody.
        gone: connections that a broker knows to be gone; what comes over them it does not read any more.
    """

    agenda: Agenda
    chance: random.Random
    plan: SharePlan
    cluster: ShareCluster
    is_faulty: bool = True
    cut: dict[int, int] = field(default_factory=dict)
    waiting: list[tuple[PendingFetch, int, Heard]] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    wakes_at: float = inf

    def send(self, slot: int, node: int, connection: str, request: Request, heard: Heard) -> None:
        """Carries it there, and the answer back; either may never arrive."""

        def arrive() -> None:
            if connection in self.gone:
                return
            answer = self.cluster.request(
                request, self.agenda.now, node=node, connection=connection
            )
            if isinstance(answer, PendingFetch):
                self.waiting.append((answer, slot, heard))
            else:
                self._back(slot, lambda: heard(answer))
            self.look()

        self._there(slot, arrive)

    def ask(self, slot: int, answered: Callable[[], None]) -> None:
        """Any other question; the answer is what is true when it is given, or never comes."""
        self._there(slot, lambda: self._back(slot, answered))

    def hang_up(self, slot: int, node: int, connection: str, *, is_killed: bool = False) -> None:
        """A process ends a connection; the broker notices, at once or late."""

        def notice() -> None:
            if connection not in self.gone:
                self.gone.add(connection)
                self.cluster.disconnect(node, connection, self.agenda.now)
                self.look()

        delay = self._delay()
        if self.is_faulty and (self.cut.get(slot) or self.chance.random() < self.plan.lost):
            delay += self.chance.uniform(0.0, 40.0)
        self.agenda.after(0.0 if is_killed and not self.cut.get(slot) else delay, notice)

    def look(self) -> None:
        """Sends the answers that have come about, and wakes the brokers when they are due."""
        still: list[tuple[PendingFetch, int, Heard]] = []
        for pending, slot, heard in self.waiting:
            if pending.answer is None:
                still.append((pending, slot, heard))
            else:
                self._answer(pending.answer, slot, heard)
        self.waiting = still
        due = self.cluster.wake_at()
        if due < self.wakes_at:
            self.wakes_at = due
            self.agenda.at(due, lambda: self._wake(due))

    def _answer(self, answer: Answer, slot: int, heard: Heard) -> None:
        self._back(slot, lambda: heard(answer))

    def _wake(self, at: float) -> None:
        if self.wakes_at != at:
            return
        self.wakes_at = inf
        self.cluster.advance(self.agenda.now)
        self.look()

    # -- one way --------------------------------------------------------------------------------

    def _there(self, slot: int, call: Callable[[], None]) -> None:
        if not self._is_lost(slot):
            self.agenda.after(self._delay(), lambda: None if self.cut.get(slot) else call())

    _back = _there

    def _is_lost(self, slot: int) -> bool:
        return self.is_faulty and (
            bool(self.cut.get(slot)) or self.chance.random() < self.plan.lost / 2
        )

    def _delay(self) -> float:
        delay = self.chance.expovariate(1 / self.plan.latency)
        if self.is_faulty and self.chance.random() < self.plan.late:
            delay += self.chance.uniform(0.0, 4 * self.plan.request_timeout)
        return min(delay, 60.0) if self.is_faulty else min(delay, 0.5)
