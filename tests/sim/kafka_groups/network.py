"""Between the processes of a group and its coordinator: requests and answers get lost, are late, and overtake others."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from consumer_sdk.adapters.kafka.groups.member import TopicPartition
from consumer_sdk.adapters.kafka.groups.messages import Answer, Request
from consumer_sdk.testing.kafka import (
    Code,
    GroupCoordinator,
    OffsetCommit,
    Pending,
)
from tests.sim.kafka_groups.agenda import Agenda
from tests.sim.kafka_groups.plan import GroupPlan

__all__ = ["Network"]

Heard = Callable[[Answer], None]
Committed = Callable[[dict[TopicPartition, Code]], None]


@dataclass(slots=True)
class Network:
    """All connections to the coordinator.

    Attributes:
        is_faulty: until it is told otherwise.
        cut: the slots whose processes reach nobody.
        committed: hears of each commit that the coordinator has carried out.
    """

    agenda: Agenda
    chance: random.Random
    plan: GroupPlan
    coordinator: GroupCoordinator
    committed: Callable[[OffsetCommit, dict[TopicPartition, Code]], None]
    is_faulty: bool = True
    cut: dict[int, int] = field(default_factory=dict)
    waiting: list[tuple[Pending, int, Heard]] = field(default_factory=list)
    wakes_at: float = inf

    def send(self, slot: int, node: int, request: Request, heard: Heard) -> None:
        """Carries it there, and the answer back; either may never arrive."""

        def arrive() -> None:
            answer = self.coordinator.request(request, self.agenda.now, node=node)
            if isinstance(answer, Pending):
                self.waiting.append((answer, slot, heard))
            else:
                self._back(slot, lambda: heard(answer))
            self.look()

        self._there(slot, arrive)

    def commit(self, slot: int, node: int, commit: OffsetCommit, heard: Committed) -> None:
        """Takes offsets there, on a connection of their own."""

        def arrive() -> None:
            codes = self.coordinator.commit(commit, self.agenda.now, node=node)
            self.committed(commit, codes)
            self._back(slot, lambda: heard(codes))
            self.look()

        self._there(slot, arrive)

    def ask(self, slot: int, answered: Callable[[], None]) -> None:
        """Any other question; the answer is what is true when it is given, or never comes."""
        self._there(slot, lambda: self._back(slot, answered))

    def look(self) -> None:
        """Sends the answers that have come about, and wakes the coordinator when it is due."""
        still: list[tuple[Pending, int, Heard]] = []
        for pending, slot, heard in self.waiting:
            if pending.answer is None:
                still.append((pending, slot, heard))
            else:
                self._answer(pending.answer, slot, heard)
        self.waiting = still
        due = self.coordinator.wake_at()
        if due < self.wakes_at:
            self.wakes_at = due
            self.agenda.at(due, lambda: self._wake(due))

    def _answer(self, answer: Answer, slot: int, heard: Heard) -> None:
        self._back(slot, lambda: heard(answer))

    def _wake(self, at: float) -> None:
        if self.wakes_at != at:
            return
        self.wakes_at = inf
        self.coordinator.advance(self.agenda.now)
        self.look()

    # -- one way --------------------------------------------------------------------------------

    def _there(self, slot: int, call: Callable[[], None]) -> None:
        if not self._is_lost(slot):
            self.agenda.after(self._delay(), lambda: None if self.cut.get(slot) else call())

    def _back(self, slot: int, call: Callable[[], None]) -> None:
        if not self._is_lost(slot):
            self.agenda.after(self._delay(), lambda: None if self.cut.get(slot) else call())

    def _is_lost(self, slot: int) -> bool:
        return self.is_faulty and (
            bool(self.cut.get(slot)) or self.chance.random() < self.plan.lost / 2
        )

    def _delay(self) -> float:
        delay = self.chance.expovariate(1 / self.plan.latency)
        if self.is_faulty and self.chance.random() < self.plan.late:
            delay += self.chance.uniform(0.0, 4 * self.plan.request_timeout)
        return min(delay, 60.0) if self.is_faulty else min(delay, 0.5)
