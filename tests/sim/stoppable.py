"""A simulated process that may be stopped, and goes on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from tests.sim.agenda import Agenda

__all__ = ["Stoppable"]


class Stoppable(ABC):
    """What it is to do while it is stopped waits until it goes on; what is dead does nothing.

    Attributes:
        is_alive: it runs, or is stopped and will go on.
    """

    def __init__(self, agenda: Agenda) -> None:
        self.is_alive = True
        self._agenda = agenda
        self._stops = 0
        self._kept: list[Callable[[], None]] = []

    @abstractmethod
    def tell(self, what: str, /) -> None:
        """Traces it."""

    @property
    def now(self) -> float:
        """Of the process's clock."""
        return self._agenda.now

    def stop(self, duration: float) -> None:
        """Does nothing for so long, and does not notice."""
        self.tell(f"stops for {duration:.3f}")
        self._stops += 1
        self._agenda.after(duration, self._go_on)

    def _go_on(self) -> None:
        self._stops -= 1
        if self._stops or not self.is_alive:
            return
        self.tell("goes on")
        self._wake_up()
        kept, self._kept = self._kept, []
        for call in kept:
            self.run(call)

    def _wake_up(self) -> None:  # noqa: B027 - most have nothing to look at
        """Called before what has waited."""

    def run(self, call: Callable[[], None]) -> None:
        """Calls it, when the process runs; never if it is dead."""
        if self._stops:
            self._kept.append(call)
        elif self.is_alive:
            call()

    def after(self, delay: float, call: Callable[[], None]) -> None:
        """Calls it later."""
        self._agenda.after(delay, lambda: self.run(call))
