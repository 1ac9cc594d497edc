"""Redeliveries to the queue tracker: in flight, settled, on their way to the broker, proven.

The names are Pulsar's: its grouping tracker (`PersistentAcknowledgmentsGroupingTracker`) forgets an
ack once it is sent, and its clients drop those made while there is no connection.
"""

from __future__ import annotations

from consumer_sdk.records import Checkpoint, Outcome, OutcomeKind, VerdictKind
from tests.trackers.building import (
    NOW,
    POLICY,
    WALL,
    deliver,
    look,
    make_delivery,
    make_queue,
    send,
    take,
)

SENT = Outcome(OutcomeKind.SENT)


def test_record_never_seen_here_is_not_settled() -> None:
    """What another consumer holds lies between: a queue has neither watermark nor ranges."""
    queue = make_queue()
    deliver(queue, [0, 2, 9])
    queue.ack_all([0, 1, 2])

    assert [position for position, _ in send(queue)] == [0, 2, 9]
    checkpoint = look(queue)
    assert (checkpoint.watermark, checkpoint.resume, checkpoint.ranges) == (None, None, ())
    explained = queue.explain(NOW)
    assert (explained.watermark, explained.holes) == (None, 0)


def test_redelivery_of_a_record_in_flight_is_known_and_brings_the_newest_handle() -> None:
    """It is not delivered twice at once; the ack goes out with the handle that works."""
    queue = make_queue()
    deliver(queue, [5, 6])

    tracked = deliver(queue, [5, 6, 7], "second")
    assert (list(tracked.known), tracked.count) == ([0, 1], 1)
    queue.ack(0)
    assert send(queue) == [(5, "second 5")]


def test_redelivery_of_a_retrying_record_does_not_come_before_its_time() -> None:
    """The broker has no say in a back-off that is kept here."""
    queue = make_queue()
    deliver(queue, [5])
    queue.nack(0, 1, NOW, 4.0, "message")

    assert list(deliver(queue, [5], "second").known) == [0]
    assert queue.due(NOW + 3).ready == []
    assert queue.due(NOW + 4).ready == [(0, 2, "message")]
    queue.ack(0)
    assert send(queue) == [(5, "second 5")]


def test_duplicate_inside_a_run_is_tracked_once() -> None:
    """A reconnect in the middle of a batch: the later copy's handle counts."""
    queue = make_queue()
    tracked = deliver(queue, [5, 6, 5])

    assert (tracked.count, list(tracked.known)) == (2, [2])
    assert queue.unsettled == 2


def test_redelivery_of_a_settled_record_is_suppressed_and_acked_again() -> None:
    """Before the flush, while it is in the air, and after it: never a second delivery."""
    queue = make_queue()
    deliver(queue, [5])
    queue.ack(0)
    assert list(deliver(queue, [5], "second").dropped) == [0]
    flush = take(queue)
    assert list(flush.settled) == [(5, "second 5")]

    assert list(deliver(queue, [5], "third").dropped) == [0]
    queue.flushed(flush, SENT)
    assert send(queue) == [(5, "third 5")]
    assert list(deliver(queue, [5], "fourth").dropped) == [0]
    assert queue.is_dirty
    assert send(queue) == [(5, "fourth 5")]
    assert queue.unsettled == 0


def test_flushed_record_is_remembered_for_so_many_further_ones_at_least() -> None:
    """Pulsar's isDuplicate window ended with the flush; this one goes on after it."""
    queue = make_queue(proof_count=3, proof_age=1e9)
    for position in range(4):
        deliver(queue, [position])
        queue.ack(position)
        send(queue)

    assert list(deliver(queue, [0], "again").dropped) == [0]


def test_flushed_record_is_remembered_for_so_long_at_least() -> None:
    """However few records there are: until its age is reached, it is recognised."""
    queue = make_queue(proof_count=1_000_000, proof_age=10.0)
    for position, second in enumerate((0.0, 9.0, 18.0)):
        deliver(queue, [position])
        queue.ack(position)
        send(queue, NOW + second)

    assert list(deliver(queue, [1], "again").dropped) == [0]


def test_window_of_flushed_records_does_not_grow_for_ever() -> None:
    """Twice the count at most; what was forgotten is delivered again, since nobody can know."""
    queue = make_queue(proof_count=10, proof_age=1e9)
    for position in range(100):
        deliver(queue, [position])
        queue.ack(position)
        send(queue)

    remembered = [at for at in range(100) if at in queue._named]
    assert 10 <= len(remembered) <= 20
    assert remembered[-1] == 99
    assert deliver(queue, [0], "again").plain


def test_old_flushed_records_are_forgotten_by_the_next_flushes() -> None:
    """Age alone is enough, whatever the count."""
    queue = make_queue(proof_count=1_000_000, proof_age=10.0)
    for position, second in enumerate((0.0, 30.0, 60.0)):
        deliver(queue, [position])
        queue.ack(position)
        send(queue, NOW + second)

    assert [0 in queue._named, 1 in queue._named, 2 in queue._named] == [False, True, True]


def test_forgotten_record_that_comes_again_has_a_new_index() -> None:
    """Late calls for the old index stay no-ops."""
    queue = make_queue(proof_count=1)
    for index, position in enumerate([5, 6, 7]):
        deliver(queue, [position])
        queue.ack(index)
        send(queue)

    assert deliver(queue, [5]).first == 3
    assert not queue.ack(0)
    assert queue.nack(0, 1, NOW).kind is VerdictKind.IGNORED
    assert queue.ack(3)


def test_restored_attempts_go_on_counting_whoever_had_them() -> None:
    """Pulsar's own count stays 0 after a restart: the checkpoint's does not."""
    queue = make_queue()
    deliver(queue, [5, 6])
    queue.nack(0, 1, NOW, 0.0)
    checkpoint = take(queue).checkpoint
    assert list(checkpoint.attempts) == [5]

    restarted = make_queue()
    restarted.restore(checkpoint, NOW, WALL, durable=True)
    assert look(restarted).attempts == checkpoint.attempts
    assert deliver(restarted, [6, 5]).tries == {1: 2}
    assert restarted.nack(1, 2, NOW, 0.0).kind is VerdictKind.RETRY
    restarted.ack_all([0, 1])
    assert look(restarted).attempts == {}


def test_attempts_of_a_record_that_never_comes_end_with_their_age() -> None:
    """Another consumer has settled it; without an end they would stay for ever."""
    queue = make_queue(attempts_age=100.0)
    attempts = {5: (1, WALL - 100.0), 6: (1, WALL - 100.25), 7: (2, WALL + 9.0)}
    queue.restore(Checkpoint(attempts=attempts), NOW, WALL, durable=True)

    assert look(queue).attempts.keys() == {5, 7}


def test_attempts_age_although_restarts_are_less_than_their_age_apart() -> None:
    """Each restart keeps the time that was stored, also one that is long over."""
    checkpoint = Checkpoint(attempts={5: (1, WALL)})
    ages = []
    for hours in range(9, 36, 9):
        queue = make_queue()
        queue.restore(checkpoint, NOW, WALL + hours * 3600, durable=True)
        checkpoint = queue.checkpoint(NOW + 60, WALL + hours * 3600 + 60)
        ages += [(hours, due) for _, due in checkpoint.attempts.values()]

    assert ages == [(9, WALL), (18, WALL)]


def test_restored_time_that_is_over_holds_nothing_back() -> None:
    """Nor does a clock that was set back: no delay is longer than the longest."""
    queue = make_queue()
    attempts = {5: (1, WALL - 500.0), 6: (1, WALL + 1e6)}
    queue.restore(Checkpoint(attempts=attempts), NOW, WALL, durable=True)

    tracked = deliver(queue, [5, 6])
    assert (tracked.tries, list(tracked.held)) == ({0: 2}, [1])
    assert queue.next_due() == NOW + POLICY.maximum


def test_cumulative_ack_settles_what_this_consumer_was_handed_and_no_more() -> None:
    """Indices are in order of arrival; each record is named by itself."""
    queue = make_queue()
    deliver(queue, [9, 3, 7, 1])

    assert queue.ack_cumulative(2) == 3
    assert [position for position, _ in send(queue)] == [3, 7, 9]
    assert queue.unsettled == 1


def test_idle_subscription_that_is_set_back_is_delivered_again_after_the_proof_window() -> None:
    """An operator's reset: time alone ages what was flushed, where nothing else is."""
    queue = make_queue(proof_age=60.0)
    deliver(queue, [1, 2])
    queue.ack_all([0, 1])
    assert len(send(queue)) == 2
    assert queue.track(make_delivery([1, 2], "again"), NOW + 59.0).count == 0
    assert len(send(queue, NOW + 59.0)) == 2
    assert queue.track(make_delivery([1, 2], "after a reset"), NOW + 59.0 + 121.0).count == 2
