"""The messages of one partition that were received and not fetched. Pure.

After a reconnect the broker sends all unacked messages again, also those that are in this buffer.
They follow the buffered ones. The positions of a run ascend, so a run ends where the messages begin
again.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from consumer_sdk.adapters.pulsar.consumer.messages import Delivery
from consumer_sdk.records import Assignment, Message, Position, Run

__all__ = ["Buffer"]


class Buffer:
    """Deliveries, oldest first.

    Attributes:
        count: messages.
        size: their bytes.
    """

    def __init__(self) -> None:
        self._deliveries: deque[Delivery] = deque()
        self.count = 0
        self.size = 0

    def add(self, part: Delivery) -> None:
        """Appends a delivery, whose positions ascend."""
        self._deliveries.append(part)
        self.count += len(part.messages)
        self.size += part.size

    def clear(self) -> None:
        """Drops all messages; the broker sends them again."""
        self._deliveries.clear()
        self.count = self.size = 0

    @property
    def first(self) -> Message | None:
        """The oldest message; None where there is none."""
        return self._deliveries[0].messages[0] if self._deliveries else None

    def take(self, assignment: Assignment, max_records: int, max_bytes: int) -> Run:
        """Takes the oldest messages as a run: at least one if there is one, whatever its size."""
        positions, natives = list[Position](), list[Any]()
        run = Run(assignment, ascends=True, known_positions=positions, known_natives=natives)
        while self._goes_on(run, max_records, max_bytes):
            part = self._next(max_records - len(run.messages))
            run.messages += part.messages
            run.size += part.size
            positions += part.positions
            natives += part.natives
        for message in run.messages:
            message.assignment = assignment
        self.count -= len(run.messages)
        self.size -= run.size
        return run

    def _goes_on(self, run: Run, max_records: int, max_bytes: int) -> bool:
        first = self.first
        if first is None or not run.messages:
            return first is not None and max_records > 0
        has_room = len(run.messages) < max_records and run.size < max_bytes
        return has_room and bool(first.position > run.messages[-1].position)

    def _next(self, most: int) -> Delivery:
        delivery = self._deliveries.popleft()
        count = len(delivery.messages)
        if count <= most:
            return delivery
        self._deliveries.appendleft(delivery.part(most, count))
        return delivery.part(0, most)
