"""Both kinds of tracker keep the trackers' contract, for positions of every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from consumer_sdk.abc import AckTracker
from consumer_sdk.records import Assignment, Position
from consumer_sdk.testing.conformance.trackers import (
    LogTrackerSuite,
    NamingLogTrackerSuite,
    QueueTrackerSuite,
)
from consumer_sdk.trackers import QueueTracker, WatermarkTracker


class TestLog(LogTrackerSuite):
    """Integers, as in Kafka, in chunks of four records."""

    def make_tracker(
        self, assignment: Assignment, wake: Callable[[], None], **options: Any
    ) -> AckTracker:
        """A tracker without jitter."""
        return WatermarkTracker(assignment, wake, random=lambda: 0.0, chunk_bits=2, **options)


class TestLogOfPairs(TestLog):
    """As in Kinesis: several records share a sequence number."""

    def position(self, number: int) -> Position:
        """Three sub-sequences to a sequence number."""
        return (10**20 + number // 3, number % 3)


class TestLogThatNames(NamingLogTrackerSuite):
    """As in Pulsar's exclusive subscriptions: an entry holds a batch."""

    def position(self, number: int) -> Position:
        """Four records to an entry."""
        return (7, number // 4, number % 4)

    def make_tracker(
        self, assignment: Assignment, wake: Callable[[], None], **options: Any
    ) -> AckTracker:
        """A tracker whose flushes name what was settled."""
        return WatermarkTracker(
            assignment, wake, names_settled=True, random=lambda: 0.0, chunk_bits=2, **options
        )


class TestQueue(QueueTrackerSuite):
    """As in Pulsar's shared subscriptions, in chunks of four records."""

    def position(self, number: int) -> Position:
        """Four records to an entry."""
        return (7, number // 4, number % 4)

    def make_tracker(
        self, assignment: Assignment, wake: Callable[[], None], **options: Any
    ) -> AckTracker:
        """A tracker without jitter."""
        return QueueTracker(assignment, wake, random=lambda: 0.0, chunk_bits=2, **options)


class TestQueueOfNames(TestQueue):
    """Positions that say nothing of an order."""

    def position(self, number: int) -> Position:
        """A receipt."""
        return f"receipt {number * 7 % 20}"
