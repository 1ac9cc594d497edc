"""Between the processes of a group and its coordinator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from consumer_sdk.adapters.kafka.groups.member import TopicPartition
from consumer_sdk.adapters.kafka.groups.messages import Answer, Request
from consumer_sdk.testing.kafka import (
    Code,
    GroupCoordinator,
    OffsetCommit,
    Pending,
)
from tests.sim.lossy_network import LossyNetwork

__all__ = ["Network"]

Heard = Callable[[Answer], None]
Committed = Callable[[dict[TopicPartition, Code]], None]


@dataclass(slots=True)
class Network(LossyNetwork):
    """All connections to the coordinator.

    Attributes:
        committed: hears of each commit that the coordinator has carried out.
    """

    brokers: GroupCoordinator
    committed: Callable[[OffsetCommit, dict[TopicPartition, Code]], None]

    def send(self, slot: int, node: int, request: Request, heard: Heard) -> None:
        """Carries it there, and the answer back; either may never arrive."""

        def arrive() -> None:
            answer = self.brokers.request(request, self.agenda.now, node=node)
            if isinstance(answer, Pending):
                self.waiting.append((answer, slot, heard))
            else:
                self._answer(answer, slot, heard)
            self.look()

        self._carry(slot, arrive)

    def commit(self, slot: int, node: int, commit: OffsetCommit, heard: Committed) -> None:
        """Takes offsets there, on a connection of their own."""

        def arrive() -> None:
            codes = self.brokers.commit(commit, self.agenda.now, node=node)
            self.committed(commit, codes)
            self._carry(slot, lambda: heard(codes))
            self.look()

        self._carry(slot, arrive)
