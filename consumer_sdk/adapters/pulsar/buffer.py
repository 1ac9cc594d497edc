"""What was received of one partition and not fetched yet. Pure."""

from __future__ import annotations

from collections import deque

from consumer_sdk.adapters.pulsar.pump import Delivery
from consumer_sdk.records import Assignment, Message, Run

__all__ = ["Buffer"]


class Buffer:
    """Deliveries in order.

    Attributes:
        count: messages.
        size: their bytes.
    """

    def __init__(self) -> None:
        self._deliveries: deque[Delivery] = deque()
        self.count = 0
        self.size = 0

    def add(self, delivery: Delivery) -> None:
        """The newest."""
        self._deliveries.append(delivery)
        self.count += len(delivery[0])
        self.size += delivery[1]

    def clear(self) -> None:
        """The broker sends them again."""
        self._deliveries.clear()
        self.count = self.size = 0

    @property
    def first(self) -> Message | None:
        """The oldest message."""
        return self._deliveries[0][0][0] if self._deliveries else None

    def take(self, assignment: Assignment, max_records: int, max_bytes: int) -> Run:
        """The oldest messages, one at least if there is one."""
        run = Run(assignment)
        while self._deliveries and (not run.messages or run.size < max_bytes):
            left = max_records - len(run.messages)
            if left <= 0:
                break
            messages, size = self._next(left)
            run.messages += messages
            run.size += size
        for message in run.messages:
            message.assignment = assignment
        self.count -= len(run.messages)
        self.size -= run.size
        return run

    def _next(self, most: int) -> Delivery:
        messages, size = self._deliveries.popleft()
        if len(messages) <= most:
            return messages, size
        share = size * most // len(messages)
        self._deliveries.appendleft((messages[most:], size - share))
        return messages[:most], share
