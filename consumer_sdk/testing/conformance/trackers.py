"""The suite that every ack tracker of a log passes.

Subclass it and say how one is made::

    class TestMyTracker(TrackerSuite):
        def make_tracker(self, assignment, wake, **options):
            return MyTracker(assignment, wake, **options)

Records are numbered from 0 and have the positions that `TrackerSuite.position` gives them; a
tracker sees nothing but positions, so that a suite with tuples for positions is one method away.
"""

# ruff: noqa: PLR2004 - expected values are the test

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from consumer_sdk.abc import AckTracker
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Checkpoint,
    Message,
    Outcome,
    Partition,
    Position,
    Redelivery,
    Run,
    Tracked,
    VerdictKind,
)
from consumer_sdk.trackers import RetryPolicy

__all__ = ["TrackerSuite"]

ASSIGNMENT = Assignment(Partition("orders", "0"), epoch=1)
POLICY = RetryPolicy(max_attempts=3, initial=1.0, multiplier=2.0, maximum=10.0, jitter=0.0)
NOW, WALL = 100.0, 1_700_000_000.0
DURABLE = Outcome.durable()


class TrackerSuite:
    """The claims of `consumer_sdk.abc.AckTracker`, for logs."""

    def make_tracker(
        self,
        assignment: Assignment,
        wake: Callable[[], None],
        *,
        policy: RetryPolicy,
        flush_interval: float,
        ack_timeout: float | None,
    ) -> AckTracker:
        """A new tracker."""
        raise NotImplementedError

    def position(self, number: int) -> Position:
        """Where record ``number`` is; with gaps, as in a compacted log."""
        return number * 10

    # -- shorthands -----------------------------------------------------------------------

    def tracker(
        self,
        records: int = 0,
        *,
        wake: Callable[[], None] = lambda: None,
        policy: RetryPolicy = POLICY,
        flush_interval: float = 0.0,
        ack_timeout: float | None = None,
    ) -> AckTracker:
        """A tracker that has tracked so many records."""
        tracker = self.make_tracker(
            ASSIGNMENT,
            wake,
            policy=policy,
            flush_interval=flush_interval,
            ack_timeout=ack_timeout,
        )
        if records:
            self.track(tracker, range(records))
        return tracker

    def track(
        self,
        tracker: AckTracker,
        numbers: Iterable[int],
        next_number: int | None = None,
        *,
        ended: bool = False,
    ) -> Tracked:
        """Tracks a run of records."""
        messages = self.messages(numbers)
        following = None if next_number is None else self.position(next_number)
        return tracker.track(
            Run(ASSIGNMENT, messages, following, ended=ended, size=len(messages)), NOW
        )

    def messages(self, numbers: Iterable[int]) -> list[Message]:
        """Untracked messages, of one byte each; their indices are their numbers."""
        made = []
        for number in numbers:
            message = Message.make(ASSIGNMENT, self.position(number), b"v")
            message.index = number
            made.append(message)
        return made

    def restored(self, tracker: AckTracker, **fields: Any) -> AckTracker:
        """The tracker, started from a checkpoint whose positions are given as numbers."""
        watermark, resume = fields.get("watermark"), fields.get("resume")
        checkpoint = Checkpoint(
            watermark=None if watermark is None else self.position(watermark),
            resume=None if resume is None else self.position(resume),
            ranges=tuple(
                (self.position(first), self.position(last)) for first, last in fields["ranges"]
            )
            if "ranges" in fields
            else (),
            attempts={
                self.position(number): attempt
                for number, attempt in fields.get("attempts", {}).items()
            },
        )
        tracker.restore(checkpoint, NOW, WALL, durable=fields.get("durable", True))
        return tracker

    def holds(
        self,
        tracker: AckTracker,
        watermark: int | None,
        ranges: Sequence[tuple[int, int]] = (),
        now: float = NOW,
    ) -> Checkpoint:
        """Asserts what is settled; returns the checkpoint."""
        found = tracker.checkpoint(now, WALL + now - NOW)
        assert found.watermark == (None if watermark is None else self.position(watermark))
        assert list(found.ranges) == [(self.position(a), self.position(b)) for a, b in ranges]
        return found

    def flush(self, tracker: AckTracker, now: float = NOW) -> AckFlush:
        """A forced flush that must have something."""
        flush = tracker.flush(now, WALL + now - NOW, force=True)
        assert flush is not None
        return flush

    def make_durable(self, tracker: AckTracker) -> Checkpoint:
        """Flushes, and confirms it."""
        flush = self.flush(tracker)
        tracker.flushed(flush, DURABLE)
        return flush.checkpoint

    # -- acks -----------------------------------------------------------------------------

    def test_indices_are_dense_and_grow_over_runs(self) -> None:
        """An index is minted for every record, in order, across runs."""
        tracker = self.tracker()
        first, second = self.track(tracker, range(3)), self.track(tracker, range(3, 5))
        assert (first.first, first.count, second.first, second.count) == (0, 3, 3, 2)
        assert first.plain
        assert tracker.unsettled == 5

    def test_watermark_stops_at_the_first_hole(self) -> None:
        """T4, T21: an ack covers its own record; the watermark waits for the prefix."""
        tracker = self.tracker(6)
        for index in (1, 2, 4):
            assert tracker.ack(index)
        found = self.holds(tracker, None, [(1, 2), (4, 4)])
        assert found.resume == self.position(0)
        assert tracker.ack(0)
        assert self.holds(tracker, 2, [(4, 4)]).resume == self.position(3)

    def test_everything_settled_leaves_a_watermark_alone(self) -> None:
        """When all is settled, in whatever order, there are no ranges and nothing unsettled."""
        tracker = self.tracker(5)
        for index in (4, 0, 3, 1, 2):
            assert tracker.ack(index)
        self.holds(tracker, 4)
        assert tracker.unsettled == tracker.unsettled_bytes == 0

    def test_duplicate_late_and_unknown_acks_change_nothing(self) -> None:
        """T11: they answer False, and the checkpoint stays as it is."""
        tracker = self.tracker(3)
        tracker.ack(1)
        assert not any((tracker.ack(1), tracker.ack(99), tracker.ack(-1)))
        assert not tracker.dead_lettered(0)
        self.holds(tracker, None, [(1, 1)])

    def test_bulk_ack_settles_what_it_names_and_counts_it(self) -> None:
        """A range and a list are the same; what was settled before is not counted."""
        tracker = self.tracker(6)
        tracker.ack(1)
        assert tracker.ack_all(range(4)) == 3
        assert tracker.ack_all([5, 5]) == 1
        self.holds(tracker, 3, [(5, 5)])

    def test_cumulative_ack_settles_the_prefix_with_its_retries_but_no_dead_letters(self) -> None:
        """It reaches over records that wait for a retry, never over one not yet dead-lettered."""
        tracker = self.tracker(6)
        tracker.nack(1, 1, NOW, 5.0, "retry")
        assert tracker.reject(2, 1)
        assert tracker.ack_cumulative(4) == 4
        self.holds(tracker, 1, [(3, 4)])
        assert tracker.next_due() is None
        assert tracker.dead_lettered(2)
        self.holds(tracker, 4)
        assert tracker.ack_cumulative(4) == 0

    def test_cumulative_ack_leaves_a_restored_retry_that_was_not_handed_out_here(self) -> None:
        """Whoever acks has never seen it: settling it would lose it. Once handed out it counts."""
        tracker = self.restored(self.tracker(), resume=0, attempts={1: (1, WALL + 4)})
        self.track(tracker, range(4))
        assert tracker.ack_cumulative(2) == 2
        self.holds(tracker, 0, [(2, 2)])
        ((index, attempt, item),) = tracker.due(NOW + 4).ready
        assert tracker.ack_cumulative(3) == 1
        again = Redelivery.of(item, attempt)
        again.index = index
        assert list(tracker.handed_out([again], NOW + 4)) == [again]
        assert tracker.ack_cumulative(3) == 1
        self.holds(tracker, 3)

    # -- failures -------------------------------------------------------------------------

    def test_nacked_record_comes_due_with_its_next_attempt(self) -> None:
        """T22, T23: the policy's back-off, the item handed back, and the position untouched."""
        tracker = self.tracker(3)
        verdict = tracker.nack(1, 1, NOW, item="the message")
        assert (verdict.kind, verdict.due) == (VerdictKind.RETRY, NOW + 1)
        assert tracker.next_due() == NOW + 1
        assert tracker.retrying == 1
        assert not tracker.due(NOW + 0.5).ready
        assert list(tracker.due(NOW + 1).ready) == [(1, 2, "the message")]
        assert tracker.retrying == 0
        again = tracker.nack(1, 2, NOW + 1)
        assert again.due == NOW + 3
        assert tracker.unsettled == 3

    def test_retries_due_at_the_same_time_all_come(self) -> None:
        """T23: equal due times lose nobody."""
        tracker = self.tracker(4)
        for index in range(4):
            tracker.nack(index, 1, NOW, 2.0, index)
        assert sorted(index for index, _, _ in tracker.due(NOW + 2).ready) == [0, 1, 2, 3]

    def test_late_nack_of_an_older_attempt_is_ignored(self) -> None:
        """A nack names its attempt, so that it cannot strike a newer delivery."""
        tracker = self.tracker(1)
        tracker.nack(0, 1, NOW, 0.0)
        tracker.due(NOW)
        assert tracker.nack(0, 1, NOW).kind is VerdictKind.IGNORED
        assert not tracker.reject(0, 1)
        assert tracker.nack(0, 2, NOW).kind is VerdictKind.RETRY

    def test_limit_asks_for_a_dead_letter_which_alone_settles(self) -> None:
        """T13, T29: at the limit nothing settles the record but its durable dead letter."""
        tracker = self.tracker(2)
        tracker.ack(1)
        for attempt in (1, 2):
            assert tracker.nack(0, attempt, NOW, 0.0).kind is VerdictKind.RETRY
            tracker.due(NOW)
        assert tracker.nack(0, 3, NOW).kind is VerdictKind.DEAD_LETTER
        assert not tracker.ack(0)
        self.holds(tracker, None, [(1, 1)])
        assert tracker.dead_lettered(0)
        assert not tracker.dead_lettered(0)
        self.holds(tracker, 1)

    def test_limit_of_one_means_no_retry(self) -> None:
        """``max_attempts=1``: the first failure is the last."""
        tracker = self.tracker(1, policy=RetryPolicy(max_attempts=1))
        assert tracker.nack(0, 1, NOW).kind is VerdictKind.DEAD_LETTER

    def test_ack_of_a_retrying_record_takes_it_out_of_the_schedule(self) -> None:
        """The late ack of a delivery that had failed is good news, and it never comes again."""
        tracker = self.tracker(1)
        tracker.nack(0, 1, NOW, 1.0)
        assert tracker.ack(0)
        assert tracker.next_due() is None
        assert not tracker.due(NOW + 5).ready

    def test_ack_timeout_counts_as_a_failed_delivery(self) -> None:
        """T16: exact from hand-out, moved by `extend`, and off once the record is settled."""
        tracker = self.tracker(3, ack_timeout=10.0)
        messages = self.messages(range(3))
        assert list(tracker.handed_out(messages, NOW)) == messages
        assert tracker.ack(0)
        assert tracker.extend(1, 1, NOW + 5, 20.0)
        assert tracker.next_due() == NOW + 10
        ((index, verdict, item),) = tracker.due(NOW + 10).expired
        assert (index, verdict.kind) == (2, VerdictKind.RETRY)
        assert item is messages[2]
        assert not tracker.extend(2, 1, NOW + 10, 20.0)
        assert [index for index, _, _ in tracker.due(NOW + 25).expired] == [1]

    def test_settled_record_is_not_wanted_any_more(self) -> None:
        """A redelivery that was queued when its record was settled is not handed out."""
        tracker = self.tracker(2)
        first, second = self.messages(range(2))
        tracker.nack(0, 1, NOW, 0.0, first)
        tracker.due(NOW)
        assert tracker.ack(0)
        again = Redelivery.of(first, 2)
        again.index = 0
        assert list(tracker.handed_out([again, second], NOW)) == [second]

    # -- positions ------------------------------------------------------------------------

    def test_position_that_moves_without_records_is_flushed(self) -> None:
        """T10: transaction markers at the end: the resume position passes them."""
        tracker = self.tracker()
        self.track(tracker, range(2), 2)
        tracker.ack_all(range(2))
        self.make_durable(tracker)
        assert tracker.flush_due is None
        self.track(tracker, (), 7)
        assert self.make_durable(tracker).resume == self.position(7)

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
        assert self.make_durable(tracker).ended

    def test_record_at_or_below_the_last_one_seen_is_dropped(self) -> None:
        """T30: a re-fetch overlaps: what was seen gets no index and is not delivered."""
        tracker = self.tracker(3)
        tracked = self.track(tracker, range(1, 5))
        assert list(tracked.dropped) == [0, 1]
        assert (tracked.first, tracked.count) == (3, 2)

    # -- restoring ------------------------------------------------------------------------

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
        tracker = self.restored(
            self.tracker(), watermark=0, ranges=[(5, 6)], attempts={3: (1, WALL + 4)}
        )
        self.track(tracker, [1])
        tracker.ack(0)
        found = self.holds(tracker, 1, [(5, 6)])
        assert found.attempts == {self.position(3): (1, WALL + 4)}

    def test_restored_attempts_go_on_counting(self) -> None:
        """A retry limit survives a restart; a delay that is over is delivered at once."""
        tracker = self.restored(
            self.tracker(), resume=0, attempts={0: (1, WALL - 5), 1: (2, WALL + 4)}
        )
        tracked = self.track(tracker, range(3))
        assert dict(tracked.tries) == {0: 2}
        assert list(tracked.held) == [1]
        assert tracker.next_due() == NOW + 4
        ((index, attempt, item),) = tracker.due(NOW + 4).ready
        assert (index, attempt) == (1, 3)
        assert item.position == self.position(1)
        assert tracker.nack(1, 3, NOW + 4).kind is VerdictKind.DEAD_LETTER

    def test_restored_delay_is_clamped_to_the_longest_back_off(self) -> None:
        """A wall clock that was set wrong cannot park a record for ever."""
        tracker = self.restored(self.tracker(), resume=0, attempts={0: (1, WALL + 1e9)})
        self.track(tracker, range(1))
        assert tracker.next_due() == NOW + POLICY.maximum

    def test_restored_record_over_the_limit_is_exhausted(self) -> None:
        """It goes straight to the dead letters, and is not settled before that."""
        tracker = self.restored(self.tracker(), resume=0, attempts={0: (3, WALL)})
        tracked = self.track(tracker, range(2))
        assert list(tracked.exhausted) == [0]
        assert not tracker.ack(0)
        assert tracker.dead_lettered(0)
        self.holds(tracker, 0)

    def test_attempts_of_a_record_that_is_gone_are_purged(self) -> None:
        """T10: a retry whose record was compacted away does not stay for ever."""
        tracker = self.restored(self.tracker(), resume=0, attempts={1: (1, WALL)})
        self.track(tracker, [0, 2])
        tracker.ack_all([0, 1])
        assert not self.holds(tracker, 2).attempts

    def test_restore_that_is_not_durable_is_flushed_at_once(self) -> None:
        """A start that was just resolved is pinned by the first flush, without any ack."""
        tracker = self.restored(self.tracker(), resume=4, durable=False)
        assert self.flush(tracker).checkpoint.resume == self.position(4)
        assert not self.restored(self.tracker(), resume=4).is_dirty

    def test_record_that_waits_for_its_dead_letter_fails_once_more_after_a_restart(self) -> None:
        """Its error dies with the process, so it is stored with one failure less."""
        tracker = self.tracker(1)
        for attempt in (1, 2, 3):
            tracker.nack(0, attempt, NOW, 0.0)
            tracker.due(NOW)
        ((failures, _),) = self.flush(tracker).checkpoint.attempts.values()
        assert failures == 2

    # -- flushing -------------------------------------------------------------------------

    def test_clean_tracker_has_nothing_to_flush(self) -> None:
        """Also when forced."""
        tracker = self.tracker(2)
        assert tracker.flush(NOW, WALL, force=True) is None
        assert tracker.flush_due is None

    def test_wake_is_called_once_when_it_turns_dirty(self) -> None:
        """The runtime is told from clean to dirty, not for each ack."""
        calls: list[None] = []
        tracker = self.tracker(3, wake=lambda: calls.append(None))
        tracker.ack_all([0, 1])
        tracker.ack(2)
        assert len(calls) == 1
        self.make_durable(tracker)
        self.track(tracker, [3])
        tracker.nack(3, 1, NOW)
        assert len(calls) == 2

    def test_flush_waits_for_its_interval_unless_forced(self) -> None:
        """Acks are grouped by time."""
        tracker = self.tracker(3, flush_interval=2.0)
        tracker.ack(0)
        self.make_durable(tracker)
        tracker.ack(1)
        assert tracker.flush(NOW + 1, WALL) is None
        assert tracker.flush_due == NOW + 2
        assert tracker.flush(NOW + 2, WALL) is not None

    def test_one_flush_is_in_the_air_at_a_time(self) -> None:
        """T19: what is settled meanwhile waits for the next one."""
        tracker = self.tracker(2)
        tracker.ack(0)
        flush = self.flush(tracker)
        tracker.ack(1)
        assert tracker.flush(NOW, WALL, force=True) is None
        assert flush.checkpoint.watermark == self.position(0)
        tracker.flushed(flush, DURABLE)
        assert self.flush(tracker).checkpoint.watermark == self.position(1)

    def test_failed_flush_is_put_back_with_what_came_meanwhile(self) -> None:
        """T20: nothing is durable before the outcome says so, and the next flush has it all."""
        tracker = self.tracker(2)
        tracker.ack(0)
        failed = self.flush(tracker)
        tracker.ack(1)
        tracker.flush_failed(failed)
        assert tracker.durable_number < failed.number
        assert tracker.is_dirty
        again = self.flush(tracker)
        assert again.checkpoint.watermark == self.position(1)
        tracker.flushed(failed, DURABLE)  # a late answer for a flush that was given up
        assert tracker.durable_number < failed.number
        tracker.flushed(again, DURABLE)
        assert tracker.durable_number == again.number

    def test_numbers_tell_a_receipt_what_to_wait_for(self) -> None:
        """``flush_number`` read after an ack is the number of the flush that carries it."""
        tracker = self.tracker(2)
        tracker.ack(0)
        expected = tracker.flush_number
        flush = self.flush(tracker)
        assert flush.number == expected
        assert tracker.flush_number > expected
        tracker.flushed(flush, DURABLE)
        assert tracker.durable_number == expected

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

    def test_nack_alone_is_flushed_with_its_attempt(self) -> None:
        """The count and the due time survive a crash although nothing was settled."""
        tracker = self.tracker(1)
        tracker.nack(0, 1, NOW, 4.0)
        assert self.flush(tracker).checkpoint.attempts == {self.position(0): (1, WALL + 4.0)}

    # -- looking and the end --------------------------------------------------------------

    def test_explain_names_what_pins_the_watermark(self) -> None:
        """The first unsettled record, what it does, how often it failed and how old it is."""
        tracker = self.tracker(4)
        tracker.ack_all([0, 3])
        tracker.nack(1, 1, NOW, 5.0)
        found = tracker.explain(NOW + 2)
        assert found.watermark == self.position(0)
        assert found.pinned_by == self.position(1)
        assert (found.state, found.attempts) == ("retrying", 1)
        assert found.age == pytest.approx(2.0)
        assert (found.unsettled, found.retrying, found.dead_lettering) == (2, 1, 0)

    def test_closed_tracker_ignores_every_call(self) -> None:
        """T1, T2: after a revoke late calls are no-ops and nothing is flushed."""
        tracker = self.tracker(4)
        tracker.ack(0)
        flush = self.flush(tracker)
        tracker.close()
        tracker.flushed(flush, DURABLE)
        assert not any((tracker.ack(1), tracker.ack_all([2, 3]), tracker.ack_cumulative(3)))
        assert tracker.nack(1, 1, NOW).kind is VerdictKind.IGNORED
        assert not any((tracker.reject(1, 1), tracker.dead_lettered(1)))
        assert tracker.flush(NOW, WALL, force=True) is None
        assert tracker.unsettled == tracker.retrying == 0
        assert tracker.next_due() is None
