"""Flushes, explanations and the end: what every tracker promises, of a log and of a queue."""

# ruff: noqa: PLR2004 - expected values are the test

from __future__ import annotations

import pytest

from consumer_sdk.errors import ConsumerClosedError
from consumer_sdk.records import Outcome, OutcomeKind, VerdictKind
from consumer_sdk.testing.conformance.trackers.case import DURABLE, NOW, WALL, TrackerCase

__all__ = ["EndCases", "FlushCases"]


class FlushCases(TrackerCase):
    """One in the air at a time, confirmed or put back."""

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
        assert self.carried(flush) == {0}
        tracker.flushed(flush, DURABLE)
        assert 1 in self.carried(self.flush(tracker))

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
        assert self.carried(again) == {0, 1}
        tracker.flushed(failed, DURABLE)  # a late answer for a flush that was given up
        assert tracker.durable_number < failed.number
        tracker.flushed(again, DURABLE)
        assert tracker.durable_number == again.number

    def test_answer_of_retry_puts_the_flush_back_and_it_is_due_again(self) -> None:
        """Whoever hands each answer on as it came loses nothing: only DURABLE and SENT confirm."""
        calls: list[None] = []
        tracker = self.tracker(2, wake=lambda: calls.append(None))
        tracker.ack(0)
        failed = self.flush(tracker)
        tracker.flushed(failed, Outcome.retry(OSError("no answer")))
        assert (tracker.durable_number, tracker.is_dirty, len(calls)) == (0, True, 2)
        again = self.flush(tracker)
        assert self.carried(again) == {0}
        tracker.flushed(again, DURABLE)
        assert tracker.durable_number == again.number

    @pytest.mark.parametrize("kind", [OutcomeKind.FENCED, OutcomeKind.GONE])
    def test_refused_flush_is_not_durable_and_waits_for_the_next_change(
        self, kind: OutcomeKind
    ) -> None:
        """Flushed again at once it would be refused again, for ever; what it had is not lost."""
        tracker = self.tracker(2)
        tracker.ack(0)
        tracker.flushed(self.flush(tracker), Outcome(kind, error=OSError("refused")))
        assert (tracker.durable_number, tracker.is_dirty, tracker.flush_due) == (0, False, None)
        tracker.ack(1)
        assert self.carried(self.make_durable(tracker)) == {0, 1}

    def test_numbers_tell_a_receipt_what_to_wait_for(self) -> None:
        """``flush_number`` read after an ack is the number of the flush that carries it."""
        tracker = self.tracker(2)
        tracker.ack(0)
        expected = tracker.flush_number
        flush = self.flush(tracker)
        assert flush.number == expected
        assert tracker.flush_number > expected
        tracker.flushed(flush, Outcome(OutcomeKind.SENT))
        assert tracker.durable_number == expected

    def test_restore_that_is_not_durable_is_flushed_at_once(self) -> None:
        """Without any ack; a durable one leaves nothing to do."""
        assert self.flush(self.restored(self.tracker(), durable=False)).number == 1
        assert not self.restored(self.tracker()).is_dirty


class EndCases(TrackerCase):
    """Looking, and closing."""

    def test_explain_names_the_oldest_unsettled_record(self) -> None:
        """What it does, how often it failed and how old it is."""
        tracker = self.tracker(4)
        tracker.ack_all([0, 3])
        tracker.nack(1, 1, NOW, 5.0)
        found = tracker.explain(NOW + 2)
        assert (found.pinned_by, found.index) == (self.position(1), 1)
        assert (found.state, found.attempts) == ("retrying", 1)
        assert found.age == pytest.approx(2.0)
        assert (found.unsettled, found.retrying, found.dead_lettering) == (2, 1, 0)

    def test_closed_tracker_ignores_every_call(self) -> None:
        """T1, T2: after a revoke late calls are no-ops and nothing is flushed."""
        tracker = self.tracker(5)
        tracker.ack(0)
        flush = self.flush(tracker)
        tracker.ack(4)
        tracker.close()
        assert (tracker.is_dirty, tracker.flush_due) == (False, None)
        tracker.flushed(flush, DURABLE)
        assert not any((tracker.ack(1), tracker.ack_all([2, 3]), tracker.ack_cumulative(3)))
        assert tracker.nack(1, 1, NOW).kind is VerdictKind.IGNORED
        assert not any((tracker.reject(1, 1), tracker.reject(1, None), tracker.dead_lettered(1)))
        assert tracker.flush(NOW, WALL, force=True) is None
        assert tracker.unsettled == tracker.retrying == 0
        assert tracker.next_due() is None
        assert not self.restored(tracker, resume=3, durable=False).is_dirty
        late = self.track(tracker, range(5, 7))
        assert (late.first, late.count, list(late.dropped)) == (0, 0, [0, 1])

    def test_calls_of_a_closed_tracker_reach_no_other(self) -> None:
        """Many are closed together, and may share what a closed one has: nothing is added to it."""
        closed, other, held = self.tracker(5), self.tracker(5), self.tracker()
        closed.close()
        other.close()
        self.track(closed, range(5, 7))
        self.restored(closed, resume=3)
        assert not any((closed.ack(0), closed.ack_all([0, 1, 2]), closed.ack_cumulative(4)))
        assert closed.nack(0, 1, NOW).kind is VerdictKind.IGNORED
        assert not any((closed.reject(0, 1), closed.extend(0, 1, NOW, 5.0)))
        assert (other.unsettled, other.retrying, other.next_due()) == (0, 0, None)
        assert not any((other.ack(0), other.ack(5), list(other.due(NOW + 9).ready)))
        assert self.track(held, range(3), 3).first == 0
        assert held.ack_all([0, 1, 2]) == 3

    def test_closed_tracker_refuses_a_checkpoint(self) -> None:
        """It has forgotten the open records: stored, that checkpoint would pass them."""
        tracker = self.tracker()
        self.track(tracker, range(3), 3)
        tracker.ack(0)
        tracker.close()
        with pytest.raises(ConsumerClosedError, match="before close"):
            tracker.checkpoint(NOW, WALL)
