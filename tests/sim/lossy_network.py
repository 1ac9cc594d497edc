"""Between simulated processes and brokers: requests and answers get lost, are late, and overtake others."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from math import inf
from typing import Any, Protocol

from tests.sim.agenda import Agenda

__all__ = ["LossyNetwork"]


class Faults(Protocol):
    """What of a plan the network keeps to; see there."""

    @property
    def lost(self) -> float: ...
    @property
    def late(self) -> float: ...
    @property
    def latency(self) -> float: ...
    @property
    def request_timeout(self) -> float: ...


class Brokers(Protocol):
    """What is asked, and has something to do by itself at times."""

    def wake_at(self) -> float:
        """When that is."""

    def advance(self, now: float) -> None:
        """Does it."""


@dataclass(slots=True)
class LossyNetwork:
    """All connections to the brokers.

    Attributes:
        is_faulty: until it is told otherwise.
        cut: the slots whose processes reach nobody.
        waiting: answers that are not there yet, each with its process and with who hears of it.
    """

    agenda: Agenda
    chance: random.Random
    plan: Faults
    brokers: Brokers
    _: KW_ONLY
    is_faulty: bool = True
    cut: dict[int, int] = field(default_factory=dict)
    waiting: list[tuple[Any, int, Callable[[Any], None]]] = field(default_factory=list)
    wakes_at: float = inf

    def ask(self, slot: int, answered: Callable[[], None]) -> None:
        """Any other question; the answer is what is true when it is given, or never comes."""
        self._carry(slot, lambda: self._carry(slot, answered))

    def cut_off(self, slot: int, duration: float) -> None:
        """Lets nothing through to and from a slot's processes for so long."""
        self.cut[slot] = self.cut.get(slot, 0) + 1
        self.agenda.after(duration, lambda: self._mend(slot))

    def _mend(self, slot: int) -> None:
        self.cut[slot] = max(self.cut.get(slot, 0) - 1, 0)

    def look(self) -> None:
        """Sends the answers that have come about, and wakes the brokers when they are due."""
        waiting, self.waiting = self.waiting, []
        for pending, slot, heard in waiting:
            if pending.answer is None:
                self.waiting.append((pending, slot, heard))
            else:
                self._answer(pending.answer, slot, heard)
        due = self.brokers.wake_at()
        if due < self.wakes_at:
            self.wakes_at = due
            self.agenda.at(due, lambda: self._wake(due))

    def _answer(self, answer: Any, slot: int, heard: Callable[[Any], None]) -> None:
        self._carry(slot, lambda: heard(answer))

    def _wake(self, at: float) -> None:
        if self.wakes_at != at:
            return
        self.wakes_at = inf
        self.brokers.advance(self.agenda.now)
        self.look()

    # -- one way --------------------------------------------------------------------------------

    def _carry(self, slot: int, call: Callable[[], None]) -> None:
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
