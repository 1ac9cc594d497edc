"""The log tracker keeps the trackers' contract, for positions of every kind."""

from __future__ import annotations

from collections.abc import Callable

from consumer_sdk.abc import AckTracker
from consumer_sdk.records import Assignment, Position
from consumer_sdk.testing.conformance.trackers import TrackerSuite
from consumer_sdk.trackers import RetryPolicy, WatermarkTracker


class TestWatermarkTracker(TrackerSuite):
    """Integers, as in Kafka, in chunks of four records."""

    chunk_bits = 2

    def make_tracker(
        self,
        assignment: Assignment,
        wake: Callable[[], None],
        *,
        policy: RetryPolicy,
        flush_interval: float,
        ack_timeout: float | None,
    ) -> AckTracker:
        """A tracker without jitter."""
        return WatermarkTracker(
            assignment,
            wake,
            policy=policy,
            flush_interval=flush_interval,
            ack_timeout=ack_timeout,
            random=lambda: 0.0,
            chunk_bits=self.chunk_bits,
        )


class TestWatermarkTrackerWithPairs(TestWatermarkTracker):
    """Pairs, as in Kinesis: several records share the first number."""

    chunk_bits = 10

    def position(self, number: int) -> Position:
        """Three sub-sequences to a sequence number."""
        return (10**20 + number // 3, number % 3)
