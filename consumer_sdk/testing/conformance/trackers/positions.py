"""The watermark and what lies above it: what a log's tracker promises beside the rest."""

# ruff: noqa: PLR2004 - expected values are the test

from __future__ import annotations

from collections.abc import Sequence

import pytest

from consumer_sdk.abc import AckTracker
from consumer_sdk.errors import AdapterError
from consumer_sdk.records import AckFlush, Checkpoint, Outcome
from consumer_sdk.testing.conformance.trackers.case import NOW, RECORDS, WALL, TrackerCase

__all__ = ["LogCase", "PositionCases", "RangeCases"]


class LogCase(TrackerCase):
    """What a flush of a log carries is in its checkpoint."""

    def carried(self, flush: AckFlush) -> set[int]:
        """The records at or below the watermark, or in a range."""
        settled = flush.checkpoint.is_settled
        return {number for number in range(RECORDS) if settled(self.position(number))}

    def holds(
        self,
        tracker: AckTracker,
        watermark: int | None,
        ranges: Sequence[tuple[int, int]] = (),
    ) -> Checkpoint:
        """Asserts what is settled; returns the checkpoint."""
        found = tracker.checkpoint(NOW, WALL)
        assert found.watermark == (None if watermark is None else self.position(watermark))
        assert list(found.ranges) == [(self.position(a), self.position(b)) for a, b in ranges]
        return found


class PositionCases(LogCase):
    """The watermark, and where reading goes on."""

    def test_watermark_stops_at_the_first_hole(self) -> None:
        """T4, T21: an ack covers its own record; the watermark waits for the prefix."""
        tracker = self.tracker(6)
        for index in (1, 2, 4):
            assert tracker.ack(index)
        assert self.holds(tracker, None, [(1, 2), (4, 4)]).resume == self.position(0)
        assert tracker.ack(0)
        assert self.holds(tracker, 2, [(4, 4)]).resume == self.position(3)

    def test_everything_settled_leaves_a_watermark_alone(self) -> None:
        """When all is settled, in whatever order, there are no ranges."""
        tracker = self.tracker(5)
        for index in (4, 0, 3, 1, 2):
            assert tracker.ack(index)
        self.holds(tracker, 4)
        assert tracker.explain(NOW).holes == 0

    def test_position_that_moves_without_records_is_flushed(self) -> None:
        """T10: transaction markers at the end: the resume position passes them."""
        tracker = self.tracker()
        self.track(tracker, range(2), 2)
        tracker.ack_all(range(2))
        self.make_durable(tracker)
        assert tracker.flush_due is None
        self.track(tracker, (), 7)
        assert self.make_durable(tracker).checkpoint.resume == self.position(7)

    def test_resume_position_never_passes_an_unsettled_record(self) -> None:
        """T5, T30: whatever the broker's next position is, the hole decides."""
        tracker = self.tracker()
        self.track(tracker, range(3), 9)
        tracker.ack_all([0, 2])
        assert self.holds(tracker, 0, [(2, 2)]).resume == self.position(1)

    def test_end_counts_only_when_all_is_settled(self) -> None:
        """A partition read to its end is ended once nothing of it is open."""
        tracker = self.tracker()
        self.track(tracker, range(1), ended=True)
        assert not tracker.checkpoint(NOW, WALL).ended
        tracker.ack(0)
        assert self.make_durable(tracker).checkpoint.ended

    def test_record_at_or_below_the_last_one_seen_is_dropped(self) -> None:
        """T30: a re-fetch overlaps: what was seen gets no index and is not delivered."""
        tracker = self.tracker(3)
        tracked = self.track(tracker, range(1, 5))
        assert list(tracked.dropped) == [0, 1]
        assert (tracked.first, tracked.count) == (3, 2)

    @pytest.mark.parametrize("numbers", [[5, 3, 7], [3, 7, 5], [4, 3], [2, 1, 9, 8]])
    def test_run_that_goes_back_to_a_new_record_is_refused_whole(self, numbers: list[int]) -> None:
        """Else that record would count as settled with the ack of one above it."""
        tracker = self.tracker(3)
        before = tracker.checkpoint(NOW, WALL)
        with pytest.raises(AdapterError, match="goes back"):
            self.track(tracker, numbers, 10)
        assert tracker.checkpoint(NOW, WALL) == before
        assert tracker.unsettled == 3
        assert self.track(tracker, sorted(numbers)).count == len(set(numbers) - {0, 1, 2})

    def test_run_that_goes_back_to_what_was_seen_is_a_refetch(self) -> None:
        """Before the run or within it: each record gets one index, and its ack settles it alone."""
        tracker = self.tracker(2)
        tracked = self.track(tracker, [2, 0, 2, 2, 3, 1, 5])
        assert list(tracked.dropped) == [1, 2, 3, 5]
        assert (tracked.first, tracked.count) == (2, 3)
        tracker.ack_all([0, 1, 2, 4])
        self.holds(tracker, 2, [(5, 5)])

    def test_start_that_was_just_resolved_is_pinned(self) -> None:
        """The first flush writes it, without any ack."""
        tracker = self.restored(self.tracker(), resume=4, durable=False)
        assert self.flush(tracker).checkpoint.resume == self.position(4)


class RangeCases(LogCase):
    """Settled ranges above a hole, over restarts and budgets."""

    def test_restored_watermark_and_ranges_are_not_delivered_again(self) -> None:
        """Only the holes come back after a restart."""
        tracker = self.restored(self.tracker(), watermark=1, resume=2, ranges=[(3, 4), (6, 6)])
        tracked = self.track(tracker, range(1, 8))
        assert list(tracked.dropped) == [0]
        assert tracked.count == 6
        assert list(tracked.settled) == [1, 2, 4]
        assert tracker.unsettled == 3
        tracker.ack(0)
        self.holds(tracker, 4, [(6, 6)])

    def test_restored_ranges_are_kept_until_they_are_fetched(self) -> None:
        """A flush before the fetch has come that far forgets nothing (T3)."""
        tracker = self.restored(self.tracker(), watermark=0, ranges=[(5, 6)])
        self.track(tracker, [1])
        tracker.ack(0)
        self.holds(tracker, 1, [(5, 6)])

    def test_attempts_of_a_record_that_is_gone_are_purged(self) -> None:
        """T10: a retry whose record was compacted away does not stay for ever."""
        tracker = self.restored(self.tracker(), resume=0, attempts={1: (1, WALL)})
        self.track(tracker, [0, 2])
        tracker.ack_all([0, 1])
        assert not self.holds(tracker, 2).attempts

    def test_flush_that_a_budget_cut_short_leaves_its_receipts_open(self) -> None:
        """T8: where ranges were dropped, the number is durable only with a later flush."""
        tracker = self.tracker(3)
        tracker.ack_all([0, 2])
        flush = self.flush(tracker)
        tracker.flushed(flush, Outcome.durable(self.position(0)))
        assert tracker.durable_number < flush.number
        tracker.ack(1)
        self.make_durable(tracker)
        assert tracker.durable_number >= flush.number
