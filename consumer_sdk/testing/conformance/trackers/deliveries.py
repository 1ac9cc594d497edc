"""Acks, timeouts and restarts: what every tracker promises, of a log and of a queue."""

# ruff: noqa: PLR2004 - expected values are the test

from __future__ import annotations

import math
from typing import Any

import pytest

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import Arrival, Run, VerdictKind
from consumer_sdk.testing.conformance.trackers.case import (
    ASSIGNMENT,
    NOW,
    POLICY,
    WALL,
    TrackerCase,
)

__all__ = ["AckCases", "RestartCases", "TimeoutCases"]


class AckCases(TrackerCase):
    """What settles a record, and what does not."""

    def test_indices_are_dense_and_grow_over_runs(self) -> None:
        """An index is minted for every record, in order, across runs."""
        tracker = self.tracker()
        first, second = self.track(tracker, range(3)), self.track(tracker, range(3, 5))
        assert (first.first, first.count, second.first, second.count) == (0, 3, 3, 2)
        assert first.plain
        assert tracker.unsettled == 5

    def test_messages_of_an_overlapping_run_are_bound_to_what_settles_them(self) -> None:
        """A re-fetch or redelivery in front of new records moves no index to another record."""
        tracker = self.tracker(3)
        messages = self.messages(range(1, 5))
        tracked = tracker.track(Run(ASSIGNMENT, messages, size=4), NOW)
        bound = tracked.bind(messages)
        assert [(m.position, m.index) for m in bound] == [(self.position(n), n) for n in (3, 4)]
        tracker.ack(bound[0].index)
        assert self.carried(self.flush(tracker)) == {3}

    def test_ack_settles_its_own_record_and_no_other(self) -> None:
        """T21: whatever the order, and whatever is in flight before it."""
        tracker = self.tracker(5)
        for settled, index in enumerate((4, 0, 3), start=1):
            assert tracker.ack(index)
            assert tracker.unsettled == 5 - settled
        assert self.carried(self.flush(tracker)) == {0, 3, 4}
        assert tracker.ack(1)
        assert tracker.ack(2)
        assert tracker.unsettled == tracker.unsettled_bytes == 0

    def test_duplicate_late_and_unknown_acks_change_nothing(self) -> None:
        """T11: they answer False, and nothing more is carried."""
        tracker = self.tracker(3)
        tracker.ack(1)
        assert not any((tracker.ack(1), tracker.ack(99), tracker.ack(-1)))
        assert not tracker.dead_lettered(0)
        assert self.carried(self.make_durable(tracker)) == {1}
        assert not tracker.ack(1)
        assert not tracker.is_dirty

    def test_record_is_settled_by_its_ack_or_its_dead_letter_alone(self) -> None:
        """Not while it is in delivery, waits for a retry, or is on its way to the dead letters."""
        tracker = self.tracker(4)
        tracker.nack(1, 1, NOW, 5.0, "retry")
        tracker.reject(2, 1)
        assert not any(tracker.is_settled(index) for index in range(4))
        tracker.ack(0)
        tracker.dead_lettered(2)
        assert [tracker.is_settled(index) for index in (0, 1, 2, 3, 99)] == [1, 0, 1, 0, 1]
        tracker.close()
        assert tracker.is_settled(3)

    def test_bulk_ack_settles_what_it_names_and_counts_it(self) -> None:
        """A range and a list are the same; what was settled before is not counted."""
        tracker = self.tracker(6)
        tracker.ack(1)
        assert tracker.ack_all(range(4)) == 3
        assert tracker.ack_all([5, 5]) == 1
        assert self.carried(self.flush(tracker)) == {0, 1, 2, 3, 5}

    def test_cumulative_ack_settles_the_prefix_with_its_retries_but_no_dead_letters(self) -> None:
        """It reaches over records that wait for a retry, never over one not yet dead-lettered."""
        tracker = self.tracker(6)
        tracker.nack(1, 1, NOW, 5.0, "retry")
        assert tracker.reject(2, 1)
        assert tracker.ack_cumulative(4) == 4
        assert self.carried(self.make_durable(tracker)) == {0, 1, 3, 4}
        assert tracker.next_due() is None
        assert tracker.dead_lettered(2)
        assert 2 in self.carried(self.flush(tracker))
        assert tracker.ack_cumulative(4) == 0

    def test_cumulative_ack_of_a_stranger_changes_nothing(self) -> None:
        """Below, above and after everything was settled."""
        tracker = self.tracker(3)
        assert tracker.ack_cumulative(-1) == tracker.ack_cumulative(3) == 0
        assert (tracker.is_dirty, tracker.unsettled) == (False, 3)


class TimeoutCases(TrackerCase):
    """Ack timeouts, and what is handed out at all."""

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

    def test_many_timeouts_come_in_parts(self) -> None:
        """Of records that were handed out together too; what is settled in between is left out."""
        tracker = self.tracker(8, ack_timeout=10.0)
        tracker.handed_out(self.messages(range(8)), NOW)
        assert [index for index, _, _ in tracker.due(NOW + 10, 3).expired] == [0, 1, 2]
        assert tracker.ack(3)
        assert tracker.extend(5, 1, NOW + 10, 20.0)
        assert [index for index, _, _ in tracker.due(NOW + 10, 2).expired] == [4, 6]
        assert tracker.next_due() == NOW + 10
        assert 7 in {index for index, _, _ in tracker.due(NOW + 10, 100).expired}
        assert 5 in {index for index, _, _ in tracker.due(NOW + 30).expired}

    def test_timeout_can_be_turned_off_and_on(self) -> None:
        """``extend`` with no seconds, and with an item; it needs one where there was none."""
        tracker = self.tracker(1)
        assert not tracker.extend(0, 1, NOW, 5.0)
        assert tracker.extend(0, 1, NOW, 5.0, "the message")
        assert tracker.next_due() == NOW + 5
        assert tracker.extend(0, 1, NOW, 0)
        assert tracker.next_due() is None
        assert tracker.extend(0, 1, NOW, 3.0, "the message")
        ((index, _, item),) = tracker.due(NOW + 3).expired
        assert (index, item) == (0, "the message")

    def test_settled_record_is_not_wanted_any_more(self) -> None:
        """A redelivery that was queued when its record was settled is not handed out."""
        tracker = self.tracker(2)
        first, second = self.messages(range(2))
        tracker.nack(0, 1, NOW, 0.0, first)
        tracker.due(NOW)
        assert tracker.ack(0)
        again = self.redelivery(first, 0, 2)
        assert list(tracker.handed_out([again, second], NOW)) == [second]

    @pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf, "5", None])
    def test_impossible_extension_is_refused_and_changes_nothing(self, seconds: Any) -> None:
        """A typed error; the ack timeout is what it was."""
        tracker = self.tracker(1, ack_timeout=10.0)
        tracker.handed_out(self.messages(range(1)), NOW)
        with pytest.raises(ConfigurationError, match="extend"):
            tracker.extend(0, 1, NOW, seconds)
        assert tracker.next_due() == NOW + 10

    @pytest.mark.parametrize(
        "option, value",
        [
            ("ack_timeout", 0),
            ("ack_timeout", -1.0),
            ("ack_timeout", math.nan),
            ("flush_interval", -1.0),
            ("flush_interval", math.nan),
            ("policy", 5),
        ],
    )
    def test_impossible_option_is_refused_by_name(self, option: str, value: object) -> None:
        """When the tracker is made, before it has tracked anything."""
        options: dict[str, Any] = {option: value}
        with pytest.raises(ConfigurationError, match=option):
            self.tracker(**options)


class RestartCases(TrackerCase):
    """Attempts outlive the tracker."""

    def test_restored_records_arrive_as_what_the_checkpoint_says_of_them(self) -> None:
        """To be delivered with their attempt, held back, or given up; each once and in order."""
        attempts = {0: (1, WALL - 5), 1: (2, WALL + 4), 2: (3, WALL)}
        tracker = self.restored(self.tracker(), resume=0, attempts=attempts)
        messages = self.messages([0, 1, 2, 3])
        tracked = tracker.track(Run(ASSIGNMENT, messages, size=4), NOW)
        arrivals = tracked.arrivals(tracked.bind(messages))
        assert [(m.position, m.index, m.attempt, arrival) for m, arrival in arrivals] == [
            (self.position(0), 0, 2, Arrival.DELIVER),
            (self.position(1), 1, 1, Arrival.HELD),
            (self.position(2), 2, 1, Arrival.EXHAUSTED),
            (self.position(3), 3, 1, Arrival.DELIVER),
        ]

    def test_restore_after_track_is_refused(self) -> None:
        """It would forget what was tracked; of an empty run too, which may have moved on."""
        for numbers in ((), range(2)):
            tracker = self.tracker()
            self.track(tracker, numbers, 9)
            before = tracker.checkpoint(NOW, WALL)
            with pytest.raises(ConfigurationError, match="restore"):
                self.restored(tracker, resume=0)
            assert tracker.checkpoint(NOW, WALL) == before

    def test_nack_alone_is_flushed_with_its_attempt(self) -> None:
        """The count and the due time survive a crash although nothing was settled."""
        tracker = self.tracker(1)
        tracker.nack(0, 1, NOW, 4.0)
        attempts = self.flush(tracker).checkpoint.attempts
        assert attempts == {self.position(0): (1, WALL + 4.0)}

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

    def test_restored_attempts_are_kept_until_their_records_come(self) -> None:
        """A flush before that forgets nothing (T3)."""
        tracker = self.restored(self.tracker(), attempts={3: (1, WALL + 4)})
        self.track(tracker, [1])
        tracker.ack(0)
        attempts = self.flush(tracker).checkpoint.attempts
        assert attempts == {self.position(3): (1, WALL + 4)}

    def test_delay_that_was_asked_for_survives_restarts(self) -> None:
        """Also one beyond the longest back-off, and over two restarts before its record comes."""
        tracker = self.tracker(1)
        tracker.nack(0, 1, NOW, 3600.0)
        first = self.flush(tracker).checkpoint
        for _ in range(2):
            again = self.tracker()
            again.restore(first, NOW, WALL + 600, durable=False)
            flush = again.flush(NOW, WALL + 600, force=True)
            assert flush is not None
            assert dict(flush.checkpoint.attempts) == dict(first.attempts)
            first = flush.checkpoint
        self.track(again, range(1))
        assert again.next_due() == NOW + 3000

    def test_clock_that_was_set_back_does_not_lengthen_a_delay(self) -> None:
        """What was left of it when the checkpoint was made is the most that is waited."""
        tracker = self.tracker(2)
        tracker.nack(0, 1, NOW, 3600.0)
        tracker.nack(1, 1, NOW, 1.0)
        checkpoint = self.flush(tracker).checkpoint
        again = self.tracker()
        again.restore(checkpoint, NOW, WALL - 1e9, durable=True)
        self.track(again, range(2))
        assert again.next_due() == NOW + POLICY.maximum
        assert len(again.due(NOW + 3599).ready) == 1
        assert again.next_due() == NOW + 3600

    def test_restored_delay_is_clamped_to_the_longest_back_off(self) -> None:
        """A wall clock that was set wrong cannot park a record for ever."""
        tracker = self.restored(self.tracker(), resume=0, attempts={0: (1, WALL + 1e9)})
        self.track(tracker, range(1))
        assert tracker.next_due() == NOW + POLICY.maximum

    def test_restored_record_over_the_limit_is_exhausted(self) -> None:
        """It goes straight to the dead letters, and is not settled before that."""
        tracker = self.restored(self.tracker(), resume=0, attempts={0: (3, WALL)})
        assert list(self.track(tracker, range(2)).exhausted) == [0]
        assert not tracker.ack(0)
        assert tracker.dead_lettered(0)
        assert self.carried(self.flush(tracker)) == {0}

    def test_cumulative_ack_leaves_a_restored_retry_that_was_not_handed_out_here(self) -> None:
        """Whoever acks has never seen it: settling it would lose it. Once handed out it counts."""
        tracker = self.restored(self.tracker(), resume=0, attempts={1: (1, WALL + 4)})
        self.track(tracker, range(4))
        assert tracker.ack_cumulative(2) == 2
        assert self.carried(self.make_durable(tracker)) == {0, 2}
        ((index, attempt, item),) = tracker.due(NOW + 4).ready
        assert tracker.ack_cumulative(3) == 1
        again = self.redelivery(item, index, attempt)
        assert list(tracker.handed_out([again], NOW + 4)) == [again]
        assert tracker.ack_cumulative(3) == 1
        assert tracker.unsettled == 0

    def test_record_that_waits_for_its_dead_letter_fails_once_more_after_a_restart(self) -> None:
        """Its error dies with the process, so it is stored with one failure less."""
        tracker = self.tracker(1)
        for attempt in (1, 2, 3):
            tracker.nack(0, attempt, NOW, 0.0)
            tracker.due(NOW)
        ((failures, _),) = self.flush(tracker).checkpoint.attempts.values()
        assert failures == 2
