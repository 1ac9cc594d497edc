"""The suites that every ack tracker passes: one for a log's, one for a queue's.

Subclass one and say how a tracker is made::

    class TestMyTracker(LogTrackerSuite):
        def make_tracker(self, assignment, wake, **options):
            return MyTracker(assignment, wake, **options)

Records are numbered from 0 and have the positions that `TrackerCase.position` gives them; a
tracker sees nothing but positions, so that a suite with tuples for positions is one method away.
"""

from __future__ import annotations

from consumer_sdk.testing.conformance.trackers.case import WALL, TrackerCase
from consumer_sdk.testing.conformance.trackers.deliveries import (
    AckCases,
    RestartCases,
    TimeoutCases,
)
from consumer_sdk.testing.conformance.trackers.failures import FailureCases
from consumer_sdk.testing.conformance.trackers.flushes import EndCases, FlushCases
from consumer_sdk.testing.conformance.trackers.names import NamingCases, RedeliveryCases
from consumer_sdk.testing.conformance.trackers.positions import PositionCases, RangeCases

__all__ = ["LogTrackerSuite", "NamingLogTrackerSuite", "QueueTrackerSuite", "TrackerCase"]


class TrackerSuite(AckCases, FailureCases, TimeoutCases, RestartCases, FlushCases, EndCases):
    """The claims of `consumer_sdk.abc.AckTracker`."""


class LogTrackerSuite(PositionCases, RangeCases, TrackerSuite):
    """Those, and what a log adds: a watermark, and settled ranges above it."""


class NamingLogTrackerSuite(NamingCases, LogTrackerSuite):
    """Those of a log whose broker wants each settled record named, and may deliver one late."""

    def test_attempts_of_a_record_that_is_gone_are_purged(self) -> None:
        """Not here: what was left out may come late, and its attempts count on."""
        tracker = self.restored(self.tracker(), resume=0, attempts={1: (1, WALL)})
        self.track(tracker, [0, 2])
        tracker.ack_all([0, 1])
        assert list(self.holds(tracker, 2).attempts) == [self.position(1)]


class QueueTrackerSuite(RedeliveryCases, NamingCases, TrackerSuite):
    """The claims of every tracker, and what a queue adds: names alone."""
