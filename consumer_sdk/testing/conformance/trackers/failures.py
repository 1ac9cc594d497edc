"""Nacks, back-off, the limit and dead letters: what every tracker promises."""

# ruff: noqa: PLR2004 - expected values are the test

from __future__ import annotations

import math
from typing import Any

import pytest

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import VerdictKind
from consumer_sdk.testing.conformance.trackers.case import NOW, TrackerCase
from consumer_sdk.trackers import RetryPolicy

__all__ = ["FailureCases"]


class FailureCases(TrackerCase):
    """Nacks, back-off, the limit and dead letters."""

    def test_nacked_record_comes_due_with_its_next_attempt(self) -> None:
        """T22, T23: the policy's back-off, the item handed back, and nothing else moved."""
        tracker = self.tracker(3)
        verdict = tracker.nack(1, 1, NOW, item="the message")
        assert (verdict.kind, verdict.due) == (VerdictKind.RETRY, NOW + 1)
        assert tracker.next_due() == NOW + 1
        assert tracker.retrying == 1
        assert not tracker.due(NOW + 0.5).ready
        assert list(tracker.due(NOW + 1).ready) == [(1, 2, "the message")]
        assert tracker.retrying == 0
        assert tracker.nack(1, 2, NOW + 1).due == NOW + 3
        assert tracker.unsettled == 3

    def test_retries_due_at_the_same_time_all_come(self) -> None:
        """T23: equal due times lose nobody."""
        tracker = self.tracker(4)
        for index in range(4):
            tracker.nack(index, 1, NOW, 2.0, index)
        assert [index for index, _, _ in tracker.due(NOW + 2).ready] == [0, 1, 2, 3]

    def test_many_retries_come_in_parts(self) -> None:
        """As many as are asked for, the earliest due first, and the rest afterwards."""
        tracker = self.tracker(7)
        for index in range(7):
            tracker.nack(index, 1, NOW, 2.0 if index < 5 else 1.0, index)
        parts = []
        while (due := tracker.next_due()) is not None and due <= NOW + 2:
            parts.append([index for index, _, _ in tracker.due(NOW + 2, 3).ready])
            assert tracker.retrying == 7 - sum(map(len, parts))
        assert parts == [[0, 5, 6], [1, 2, 3], [4]]

    def test_short_delay_does_not_wait_behind_a_long_one(self) -> None:
        """Whatever was scheduled first."""
        tracker = self.tracker(2)
        tracker.nack(0, 1, NOW, 600.0)
        tracker.nack(1, 1, NOW, 2.0)
        assert tracker.next_due() == NOW + 2
        assert [index for index, _, _ in tracker.due(NOW + 2).ready] == [1]

    def test_late_nack_of_an_older_attempt_is_ignored(self) -> None:
        """A nack names its attempt, so that it cannot strike a newer delivery."""
        tracker = self.tracker(1)
        tracker.nack(0, 1, NOW, 0.0)
        tracker.due(NOW)
        assert tracker.nack(0, 1, NOW).kind is VerdictKind.IGNORED
        assert not tracker.reject(0, 1)
        assert tracker.nack(0, 2, NOW).kind is VerdictKind.RETRY

    def test_second_nack_of_one_delivery_is_ignored(self) -> None:
        """It neither counts nor moves the retry."""
        tracker = self.tracker(1)
        tracker.nack(0, 1, NOW, 2.0)
        assert tracker.nack(0, 1, NOW, 9.0).kind is VerdictKind.IGNORED
        assert (tracker.next_due(), tracker.retrying) == (NOW + 2, 1)

    def test_limit_asks_for_a_dead_letter_which_alone_settles(self) -> None:
        """T13, T29: at the limit nothing settles the record but its durable dead letter."""
        tracker = self.tracker(2)
        tracker.ack(1)
        for attempt in (1, 2):
            assert tracker.nack(0, attempt, NOW, 0.0).kind is VerdictKind.RETRY
            tracker.due(NOW)
        assert tracker.nack(0, 3, NOW).kind is VerdictKind.DEAD_LETTER
        assert not tracker.ack(0)
        assert self.carried(self.make_durable(tracker)) == {1}
        assert tracker.dead_lettered(0)
        assert not tracker.dead_lettered(0)
        assert 0 in self.carried(self.flush(tracker))

    def test_limit_of_one_means_no_retry(self) -> None:
        """``max_attempts=1``: the first failure is the last; acks are tracked all the same."""
        tracker = self.tracker(2, policy=RetryPolicy(max_attempts=1))
        assert tracker.nack(0, 1, NOW).kind is VerdictKind.DEAD_LETTER
        assert tracker.ack(1)
        assert self.carried(self.flush(tracker)) == {1}

    def test_ack_of_a_retrying_record_takes_it_out_of_the_schedule(self) -> None:
        """The late ack of a delivery that had failed is good news, and it never comes again."""
        tracker = self.tracker(1)
        tracker.nack(0, 1, NOW, 1.0)
        assert tracker.ack(0)
        assert tracker.next_due() is None
        assert not tracker.due(NOW + 5).ready

    def test_reject_of_whichever_delivery_takes_out_a_retry_too(self) -> None:
        """Without an attempt it is the record that is given up, not one delivery of it."""
        tracker = self.tracker(2)
        tracker.nack(0, 1, NOW, 1.0)
        assert not tracker.reject(0, 2)
        assert tracker.reject(0, None)
        assert not tracker.reject(0, None)
        assert (tracker.next_due(), tracker.retrying) == (None, 0)
        assert tracker.dead_lettered(0)

    @pytest.mark.parametrize("delay", [-1.0, math.nan, math.inf, "5", True])
    def test_impossible_delay_is_refused_and_changes_nothing(self, delay: Any) -> None:
        """A typed error; the record is still in delivery."""
        tracker = self.tracker(1)
        with pytest.raises(ConfigurationError, match="delay"):
            tracker.nack(0, 1, NOW, delay)
        assert (tracker.retrying, tracker.next_due()) == (0, None)
        assert tracker.ack(0)

    @pytest.mark.parametrize("now", [math.nan, math.inf, "5", None])
    def test_impossible_moment_is_refused_and_changes_nothing(self, now: Any) -> None:
        """A retry that is due at no time would never come back."""
        tracker = self.tracker(1)
        with pytest.raises(ConfigurationError, match=r"nack\(now="):
            tracker.nack(0, 1, now)
        assert (tracker.retrying, tracker.next_due()) == (0, None)
        assert tracker.ack(0)

    @pytest.mark.parametrize("now", [math.nan, math.inf, "5", None])
    def test_impossible_moment_brings_nothing_back(self, now: Any) -> None:
        """It would be taken for one at which nothing is due, for ever, or all."""
        tracker = self.tracker(1)
        tracker.nack(0, 1, NOW, 1.0)
        with pytest.raises(ConfigurationError, match=r"due\(now="):
            tracker.due(now)
        assert (tracker.retrying, tracker.next_due()) == (1, NOW + 1)

    @pytest.mark.parametrize("now", [math.nan, math.inf, "5", None])
    def test_impossible_moment_starts_nothing(self, now: Any) -> None:
        """A timeout at no time would break the order of all others."""
        tracker = self.tracker(1, ack_timeout=10.0)
        with pytest.raises(ConfigurationError, match=r"handed_out\(now="):
            tracker.handed_out(self.messages(range(1)), now)
        assert (tracker.unsettled, tracker.next_due()) == (1, None)
