"""Between the processes of a share group and the brokers: connections end, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from consumer_sdk.adapters.kafka.share.messages import Answer, Request
from consumer_sdk.testing.kafka import PendingFetch, ShareCluster
from tests.sim.lossy_network import LossyNetwork

__all__ = ["Network"]

Heard = Callable[[Answer], None]


@dataclass(slots=True)
class Network(LossyNetwork):
    """All connections to the brokers.

    Attributes:
        gone: connections that a broker knows to be gone; what comes over them it does not read any more.
    """

    brokers: ShareCluster
    gone: set[str] = field(default_factory=set)

    def send(self, slot: int, node: int, connection: str, request: Request, heard: Heard) -> None:
        """Carries it there, and the answer back; either may never arrive."""

        def arrive() -> None:
            if connection in self.gone:
                return
            answer = self.brokers.request(
                request, self.agenda.now, node=node, connection=connection
            )
            if isinstance(answer, PendingFetch):
                self.waiting.append((answer, slot, heard))
            else:
                self._answer(answer, slot, heard)
            self.look()

        self._carry(slot, arrive)

    def hang_up(self, slot: int, node: int, connection: str, *, is_killed: bool = False) -> None:
        """A process ends a connection; the broker notices, at once or late."""

        def notice() -> None:
            if connection not in self.gone:
                self.gone.add(connection)
                self.brokers.disconnect(node, connection, self.agenda.now)
                self.look()

        delay = self._delay()
        if self.is_faulty and (self.cut.get(slot) or self.chance.random() < self.plan.lost):
            delay += self.chance.uniform(0.0, 40.0)
        self.agenda.after(0.0 if is_killed and not self.cut.get(slot) else delay, notice)
