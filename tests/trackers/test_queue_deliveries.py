"""The queue tracker where the broker counts deliveries, and where a record that waits is given back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from consumer_sdk.records import Arrival, Outcome, OutcomeKind, Tracked, VerdictKind
from consumer_sdk.trackers import QueueTracker, RetryPolicy
from tests.trackers.building import NOW, deliver, make_delivery, make_queue, send, take

SENT, RETRY = Outcome(OutcomeKind.SENT), Outcome(OutcomeKind.RETRY)


def counted(queue: QueueTracker, deliveries: Mapping[int, int]) -> Tracked:
    """Tracks a run of these positions, which the broker has delivered so often."""
    run = make_delivery(deliveries)
    run.deliveries = {position: count for position, count in deliveries.items() if count > 1}
    return queue.track(run, NOW)


def test_brokers_count_is_the_attempt() -> None:
    """A nack of any other one is an older delivery's."""
    queue = make_queue()
    tracked = counted(queue, {0: 1, 1: 2})
    assert tracked.tries == {1: 2}
    assert queue.nack(1, 1, NOW).kind is VerdictKind.IGNORED
    assert queue.nack(1, 2, NOW, 1.0).kind is VerdictKind.RETRY
    assert queue.nack(0, 1, NOW, 1.0).kind is VerdictKind.RETRY


def test_record_that_was_tried_often_enough_goes_to_the_dead_letters() -> None:
    """With the number of its deliveries; it never comes to a handler."""
    queue = make_queue(policy=RetryPolicy(max_attempts=3))
    run = make_delivery([7])
    run.deliveries = {7: 4}
    tracked = queue.track(run, NOW)
    assert list(tracked.exhausted) == [0]
    ((message, arrival),) = tracked.arrivals(tracked.bind(run.messages))
    assert (arrival, message.attempt) == (Arrival.EXHAUSTED, 4)
    assert queue.dead_lettered(0)


def test_last_delivery_of_the_broker_goes_to_the_dead_letters() -> None:
    """A process that died with it would lose the record: the broker gives it up."""
    queue = make_queue(policy=RetryPolicy(max_attempts=None), max_deliveries=5)
    tracked = counted(queue, {0: 4, 1: 5})
    assert list(tracked.exhausted) == [1]
    assert tracked.tries[0] == 4


def test_record_that_the_broker_has_taken_back_is_forgotten_and_tracked_anew() -> None:
    """One that waits to be handed out, or for its retry; nothing is said of it."""
    queue = make_queue()
    deliver(queue, [0, 1])
    queue.nack(1, 1, NOW, 60.0)
    assert (queue.retry_at(0), queue.retry_at(1), queue.retry_at(9)) == (None, 1, None)
    take(queue)
    assert queue.forget(0)
    assert queue.forget(1)
    assert (queue.unsettled, queue.retrying, queue.next_due()) == (0, 0, None)
    assert not queue.ack(0)
    assert queue.flush(NOW, NOW, force=True) is None
    assert counted(queue, {0: 2, 1: 2}).tries == {2: 2, 3: 2}


def test_only_what_nobody_has_settled_is_forgotten() -> None:
    """Nor what waits for its dead letter, or never was."""
    queue = make_queue()
    deliver(queue, [0, 1, 2])
    queue.ack(0)
    queue.reject(1, 1)
    assert [queue.forget(index) for index in (0, 1, 7)] == [False, False, False]
    assert queue.dead_lettered(1)


def test_flush_says_which_records_were_rejected_until_it_is_durable() -> None:
    """What is put back is said again."""
    queue = make_queue()
    deliver(queue, range(3))
    queue.ack(0)
    queue.reject(1, 1)
    queue.dead_lettered(1)
    flush = take(queue)
    assert (list(flush.rejected), [p for p, _ in flush.settled]) == ([1], [0, 1])
    queue.flushed(flush, RETRY)
    again = take(queue)
    assert list(again.rejected) == [1]
    queue.flushed(again, SENT)
    queue.ack(2)
    assert not take(queue).rejected


def test_released_record_is_given_back_and_may_come_again() -> None:
    """It is named apart, again after a flush that failed, and is no duplicate when it comes."""
    queue = make_queue()
    deliver(queue, range(2))
    queue.nack(1, 1, NOW, 3600.0)
    assert queue.release(1)
    assert not queue.release(1)
    assert (queue.unsettled, queue.retrying, queue.next_due()) == (1, 0, None)
    flush = take(queue)
    assert (list(flush.released), list(flush.settled)) == ([1], [])
    queue.flushed(flush, RETRY)
    assert list(take(queue).released) == [1]
    tracked = counted(queue, {1: 2})
    assert (tracked.count, tracked.tries) == (1, {2: 2})


def test_record_that_does_not_wait_is_not_released() -> None:
    """It is in a handler, or settled."""
    queue = make_queue()
    deliver(queue, range(2))
    queue.ack(1)
    assert not queue.release(0)
    assert not queue.release(1)
    assert [position for position, _ in send(queue)] == [1]


def test_closed_tracker_releases_nothing() -> None:
    """As every late call, it is counted."""
    queue: Any = make_queue()
    deliver(queue, range(2))
    queue.nack(1, 1, NOW, 3600.0)
    queue.close()
    assert not queue.release(1)


def test_release_is_not_said_of_the_delivery_that_came_meanwhile() -> None:
    """It was put back, or its flush is in the air, when the record comes again: a handler has it now."""
    for comes_first in (True, False):
        queue = make_queue()
        deliver(queue, range(2))
        queue.nack(1, 1, NOW, 3600.0)
        queue.release(1)
        flush = take(queue)
        if comes_first:
            counted(queue, {1: 2})
        queue.flushed(flush, RETRY)
        if not comes_first:
            counted(queue, {1: 2})
        queue.ack(2)
        again = take(queue)
        assert (list(again.released), [p for p, _ in again.settled]) == ([], [1])


def test_record_that_is_released_as_the_last_one_leaves_nothing_behind() -> None:
    """Its chunk goes with it."""
    queue = make_queue()
    deliver(queue, range(1))
    queue.nack(0, 1, NOW, 3600.0)
    assert queue.release(0)
    assert queue.unsettled == 0
    assert list(take(queue).released) == [0]
