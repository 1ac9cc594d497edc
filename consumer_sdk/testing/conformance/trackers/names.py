"""Each settled record named for the broker: what a queue's tracker promises, and some logs'."""

from __future__ import annotations

from consumer_sdk.abc import AckTracker
from consumer_sdk.records import AckFlush
from consumer_sdk.testing.conformance.trackers.case import (
    DURABLE,
    NOW,
    RECORDS,
    WALL,
    TrackerCase,
)

__all__ = ["NamingCases", "QueueCase", "RedeliveryCases"]


class NamingCases(TrackerCase):
    """For trackers whose flushes name what was newly settled, with its handle."""

    def named(self, tracker: AckTracker) -> dict[int, str]:
        """Flushes and confirms; the handles by number."""
        settled = self.make_durable(tracker).settled
        numbers = {self.position(number): number for number in range(RECORDS)}
        assert len(dict(settled)) == len(settled)
        return {numbers[position]: native for position, native in settled}

    def test_settled_record_is_named_in_one_flush_with_its_handle(self) -> None:
        """Acked, acked in bulk or cumulatively, and dead-lettered."""
        tracker = self.tracker(7)
        tracker.ack(2)
        tracker.ack_cumulative(1)
        assert self.named(tracker) == {0: "first 0", 1: "first 1", 2: "first 2"}
        tracker.ack_all(range(3, 5))
        tracker.reject(6, 1)
        tracker.dead_lettered(6)
        assert self.named(tracker) == {3: "first 3", 4: "first 4", 6: "first 6"}

    def test_redelivery_of_a_record_in_flight_brings_its_newest_handle(self) -> None:
        """It is not delivered a second time."""
        tracker = self.tracker(2)
        tracked = self.track(tracker, range(2), connection="second")
        assert (tracked.count, tracker.unsettled) == (0, 2)
        tracker.ack_all([0, 1])
        assert self.named(tracker) == {0: "second 0", 1: "second 1"}

    def test_redelivery_of_a_settled_record_is_suppressed_and_named_again(self) -> None:
        """Before its flush, while that is in the air, and after it."""
        tracker = self.tracker(1)
        tracker.ack(0)
        assert list(self.track(tracker, [0], connection="second").dropped) == [0]
        flush = self.flush(tracker)
        assert [native for _, native in flush.settled] == ["second 0"]
        assert list(self.track(tracker, [0], connection="third").dropped) == [0]
        tracker.flushed(flush, DURABLE)
        assert self.named(tracker) == {0: "third 0"}
        assert list(self.track(tracker, [0], connection="fourth").dropped) == [0]
        assert self.named(tracker) == {0: "fourth 0"}
        assert tracker.unsettled == 0

    def test_failed_flush_is_named_again_and_the_newer_handle_wins(self) -> None:
        """Acks that were made without a connection are not forgotten."""
        tracker = self.tracker(3)
        tracker.ack_all([0, 1])
        failed = self.flush(tracker)
        tracker.ack(2)
        self.track(tracker, [1], connection="second")
        tracker.flush_failed(failed)
        assert self.named(tracker) == {0: "first 0", 1: "second 1", 2: "first 2"}

    def test_retry_that_the_broker_redelivers_keeps_its_time(self) -> None:
        """And is named by the newest handle in the end."""
        tracker = self.tracker(1)
        tracker.nack(0, 1, NOW, 5.0, "the message")
        self.track(tracker, [0], connection="second")
        assert list(tracker.due(NOW + 5).ready) == [(0, 2, "the message")]
        tracker.ack(0)
        assert self.named(tracker) == {0: "second 0"}


class QueueCase(TrackerCase):
    """What a flush of a queue carries is what it names."""

    def carried(self, flush: AckFlush) -> set[int]:
        """The records that are named."""
        settled = dict(flush.settled)
        return {number for number in range(RECORDS) if self.position(number) in settled}


class RedeliveryCases(QueueCase):
    """What holds where a record that was never seen may be another consumer's."""

    def test_record_that_was_never_seen_is_not_settled(self) -> None:
        """There is no watermark, and nothing lies between two settled records."""
        tracker = self.tracker()
        self.track(tracker, [3, 0, 8])
        tracker.ack_cumulative(2)
        flush = self.make_durable(tracker)
        assert self.carried(flush) == {0, 3, 8}
        checkpoint = flush.checkpoint
        assert (checkpoint.watermark, checkpoint.resume, checkpoint.ranges) == (None, None, ())

    def test_record_may_come_in_any_order_and_twice_in_one_run(self) -> None:
        """Each gets one index; the copy is known."""
        tracker = self.tracker()
        tracked = self.track(tracker, [5, 2, 5, 9])
        assert (tracked.count, list(tracked.known)) == (3, [2])
        tracked = self.track(tracker, [1, 2], connection="second")
        assert (tracked.first, tracked.count, list(tracked.known)) == (3, 1, [1])

    def test_checkpoint_carries_attempts_alone(self) -> None:
        """Whatever was settled is the broker's to remember."""
        tracker = self.tracker(3)
        tracker.ack(0)
        tracker.nack(1, 1, NOW, 2.0)
        checkpoint = tracker.checkpoint(NOW, WALL)
        assert checkpoint.attempts == {self.position(1): (1, WALL + 2.0)}
        assert (checkpoint.watermark, checkpoint.ranges) == (None, ())
