"""Failures of the log tracker: nacks, limits, dead letters, ack timeouts."""

from __future__ import annotations

import math

import pytest

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import Verdict, VerdictKind
from consumer_sdk.trackers import RetryPolicy
from tests.trackers.building import (
    NOW,
    POLICY,
    WALL,
    flush_durably,
    look,
    make_run,
    make_tracker,
    settled,
    tracking,
)

NO_LIMIT = RetryPolicy(max_attempts=None, initial=1.0, maximum=8.0, jitter=0.0)


def test_nack_keeps_the_position_and_its_neighbours() -> None:
    """T22: a nack moves neither watermark nor resume, and nothing else is delivered again."""
    tracker = tracking(range(6))
    tracker.ack_all([0, 1, 3, 4])
    before = look(tracker)

    assert tracker.nack(2, 1, NOW, 3.0, "item") == Verdict(VerdictKind.RETRY, NOW + 3)
    after = look(tracker)
    assert (after.watermark, after.resume, after.ranges) == (1, 2, ((3, 4),))
    assert (before.watermark, before.resume, before.ranges) == (1, 2, ((3, 4),))
    assert after.attempts == {2: (1, WALL + 3)}
    assert tracker.due(NOW + 2.9).ready == []
    assert tracker.due(NOW + 3).ready == [(2, 2, "item")]
    assert tracker.due(NOW + 99).ready == []


def test_nack_above_the_first_open_record_does_not_move_resume_up() -> None:
    """T22: resume stays at the first unsettled record, whatever fails above it."""
    tracker = tracking(range(6))

    tracker.nack(4, 1, NOW)
    assert look(tracker).resume == 0


def test_back_off_takes_its_jitter_from_the_given_numbers() -> None:
    """Randomness comes in by argument."""
    policy = RetryPolicy(initial=4.0, jitter=0.5)
    tracker = tracking(range(2), policy=policy, random=lambda: 0.5)

    assert tracker.nack(0, 1, NOW).due == NOW + 3.0


def test_late_nack_of_an_older_delivery_is_ignored() -> None:
    """Facts (c): the nack of a delivery that timed out must not hit the newer one."""
    tracker = tracking(range(2), ack_timeout=5.0)
    [message, _] = messages = make_run(range(2)).messages
    message.index, messages[1].index = 0, 1
    tracker.handed_out([message], NOW)
    [(index, verdict, item)] = tracker.due(NOW + 5).expired
    assert (index, verdict.kind, item) == (0, VerdictKind.RETRY, message)

    assert tracker.nack(0, 1, NOW + 5).kind is VerdictKind.IGNORED
    assert tracker.due(NOW + 6).ready == [(0, 2, message)]
    assert tracker.nack(0, 1, NOW + 6).kind is VerdictKind.IGNORED
    assert not tracker.reject(0, 1)
    assert not tracker.extend(0, 1, NOW + 6, 9.0)
    assert tracker.ignored == 4
    assert tracker.nack(0, 2, NOW + 6).kind is VerdictKind.RETRY


def test_late_ack_of_a_delivery_that_timed_out_settles_the_record() -> None:
    """Facts (c): the retry is dropped with its item; nothing leaks and nothing comes due."""
    tracker = tracking(range(2))
    tracker.nack(0, 1, NOW, 1.0, "item")

    assert tracker.ack(0)
    assert tracker.next_due() is None
    assert tracker.due(NOW + 9).ready == []
    assert (settled(tracker), look(tracker).attempts) == ((0, []), {})


def test_equal_due_times_come_due_in_order_each_once() -> None:
    """T23: a schedule keyed by time alone would drop all but one."""
    tracker = tracking(range(50))
    for index in reversed(range(50)):
        tracker.nack(index, 1, NOW, 2.0, f"item {index}")

    assert tracker.retrying == 50
    assert tracker.next_due() == NOW + 2
    assert tracker.due(NOW + 2).ready == [(i, 2, f"item {i}") for i in range(50)]
    assert tracker.retrying == 0
    assert tracker.next_due() is None


def test_ten_thousand_failures_without_a_limit_keep_their_back_off() -> None:
    """T23: attempt 10 000 waits the longest time, and its count is in the checkpoint."""
    tracker = tracking(range(1), policy=NO_LIMIT)
    now = NOW
    for attempt in range(1, 10_001):
        verdict = tracker.nack(0, attempt, now)
        assert verdict.kind is VerdictKind.RETRY
        assert 1.0 <= verdict.due - now <= 8.0
        now = verdict.due
        assert tracker.due(now).ready == [(0, attempt + 1, None)]

    assert tracker.checkpoint(now, WALL).attempts == {0: (10_000, WALL)}


def test_record_at_its_limit_waits_for_its_dead_letter() -> None:
    """T29: at the limit nothing advances until the dead letter is durable, and then it does."""
    tracker = tracking(range(2), policy=RetryPolicy(max_attempts=1))

    assert tracker.nack(0, 1, NOW).kind is VerdictKind.DEAD_LETTER
    tracker.ack(1)
    assert settled(tracker) == (None, [(1, 1)])
    assert not tracker.ack(0)
    assert not tracker.reject(0, 2)
    assert tracker.nack(0, 2, NOW).kind is VerdictKind.IGNORED
    assert tracker.explain(NOW).state == "dead-lettering"
    assert tracker.dead_lettered(0)
    assert not tracker.dead_lettered(0)
    assert settled(tracker) == (1, [])


def test_record_at_its_limit_is_stored_with_one_failure_less() -> None:
    """Facts (c): the error dies with the process, so the next one must see it fail again."""
    tracker = tracking(range(2))
    for attempt in (1, 2, 3):
        verdict = tracker.nack(0, attempt, NOW, 0.0)
        tracker.due(NOW)

    assert verdict.kind is VerdictKind.DEAD_LETTER
    assert look(tracker).attempts == {
        0: (POLICY.max_attempts - 1 if POLICY.max_attempts else 0, WALL)
    }


def test_single_attempt_leaves_no_attempts_in_the_checkpoint() -> None:
    """max_attempts=1 is stored as no failure at all, and still has a checkpoint."""
    tracker = tracking(range(2), policy=RetryPolicy(max_attempts=1))
    tracker.nack(0, 1, NOW)
    tracker.ack(1)

    assert (look(tracker).attempts, look(tracker).ranges) == ({}, ((1, 1),))


def test_rejected_record_keeps_the_failures_it_had() -> None:
    """A reject is no failed delivery: what was counted before stays, nothing is added."""
    tracker = tracking(range(2))
    tracker.nack(0, 1, NOW, 0.0)
    tracker.due(NOW)

    assert tracker.reject(0, 2)
    assert look(tracker).attempts == {0: (1, WALL)}
    assert tracker.dead_lettered(0)
    assert look(tracker).attempts == {}


@pytest.mark.parametrize("delay", [-1.0, math.nan, math.inf])
def test_impossible_delay_is_refused_and_changes_nothing(delay: float) -> None:
    """A NaN in the schedule would break it; an infinite wait could not be stored."""
    tracker = tracking(range(2))

    with pytest.raises(ConfigurationError, match=r"nack\(delay="):
        tracker.nack(0, 1, NOW, delay)
    assert tracker.next_due() is None
    assert tracker.ack(0)


def test_timeout_counts_as_a_failure_and_respects_the_limit() -> None:
    """An expiry is a nack: back-off, count, dead letter at the limit."""
    tracker = make_tracker(ack_timeout=5.0, policy=RetryPolicy(max_attempts=1))
    run = make_run([7])
    tracker.track(run, NOW)
    run.messages[0].index = 0
    tracker.handed_out(run.messages, NOW)

    assert tracker.next_due() == NOW + 5
    assert tracker.due(NOW + 4.9).expired == []
    [(index, verdict, _)] = tracker.due(NOW + 5).expired
    assert (index, verdict.kind) == (0, VerdictKind.DEAD_LETTER)
    assert tracker.next_due() is None


def test_delivery_handed_out_twice_expires_once() -> None:
    """The later deadline holds, and the schedule keeps no second entry that loops for ever."""
    tracker = make_tracker(ack_timeout=5.0)
    run = make_run([7])
    tracker.track(run, NOW)
    run.messages[0].index = 0
    tracker.handed_out(run.messages, NOW)
    tracker.handed_out(run.messages, NOW + 1)

    assert tracker.next_due() == NOW + 6
    assert len(tracker.due(NOW + 6).expired) == 1
    assert tracker.due(NOW + 6).expired == []


def test_extend_moves_a_deadline_and_zero_removes_it() -> None:
    """More time from now; 0 for no limit."""
    tracker = make_tracker(ack_timeout=5.0)
    run = make_run([7, 8])
    tracker.track(run, NOW)
    for index, message in enumerate(run.messages):
        message.index = index
    tracker.handed_out(run.messages, NOW)

    assert tracker.extend(0, 1, NOW + 4, 30.0)
    assert tracker.extend(1, 1, NOW + 4, 0.0)
    assert tracker.next_due() == NOW + 34
    assert tracker.due(NOW + 33).expired == []
    assert len(tracker.due(NOW + 34).expired) == 1
    assert tracker.ack(1)


def test_settled_and_rejected_messages_are_not_wanted_any_more() -> None:
    """What was settled while it was queued is not handed out, in whole runs and in part."""
    tracker = make_tracker()
    run = make_run(range(8))
    tracker.track(run, NOW)
    for index, message in enumerate(run.messages):
        message.index = index

    assert tracker.handed_out(run.messages, NOW) == run.messages
    assert tracker.handed_out([], NOW) == []
    tracker.ack(3)
    tracker.reject(5, 1)
    wanted = tracker.handed_out(run.messages, NOW)
    assert [message.index for message in wanted] == [0, 1, 2, 4, 6, 7]
    jumbled = [run.messages[i] for i in (0, 3, 2)]
    assert [message.index for message in tracker.handed_out(jumbled, NOW)] == [0, 2]


def test_nack_makes_the_tracker_dirty_and_its_count_durable() -> None:
    """Facts (c): a nack with nothing acked is flushed too, or attempts would never persist."""
    wakes: list[str] = []
    tracker = tracking(range(2), wake=lambda: wakes.append("wake"))
    assert not tracker.is_dirty

    tracker.nack(0, 1, NOW, 3.0)
    tracker.nack(1, 1, NOW, 3.0)
    assert (tracker.is_dirty, wakes) == (True, ["wake"])
    assert flush_durably(tracker).attempts == {0: (1, WALL + 3), 1: (1, WALL + 3)}
    assert not tracker.is_dirty
