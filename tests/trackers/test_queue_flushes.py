"""Flushes of the queue tracker: by time and by count, put back when they fail, and its end."""

from __future__ import annotations

import math

from consumer_sdk.records import Outcome, OutcomeKind, VerdictKind
from tests.trackers.building import (
    ASSIGNMENT,
    NOW,
    WALL,
    deliver,
    flush_durably,
    look,
    make_queue,
    make_run,
    send,
    take,
)

SENT = Outcome(OutcomeKind.SENT)


def test_flush_names_each_settled_record_once_with_its_handle() -> None:
    """Acked, cumulatively acked and dead-lettered alike."""
    queue = make_queue()
    deliver(queue, range(6))
    queue.ack(1)
    queue.ack_cumulative(2)
    queue.reject(4, 1)
    queue.dead_lettered(4)

    assert send(queue) == [(at, f"first {at}") for at in (0, 1, 2, 4)]
    assert queue.flush(NOW, WALL, force=True) is None


def test_many_acked_at_once_are_named_like_those_acked_one_by_one() -> None:
    """Over the edge of a chunk, with one that has failed, and some that are settled already."""
    queue = make_queue()
    deliver(queue, range(3_000))
    queue.ack(7)
    queue.nack(1_500, 1, NOW, 0.0)
    assert queue.ack_all(range(500)) == 499
    assert queue.ack_all(range(500, 3_000)) == 2_500
    assert queue.ack_all(range(3_000)) == 0

    assert sorted(send(queue)) == [(at, f"first {at}") for at in range(3_000)]
    assert queue.unsettled == 0
    tracked = deliver(queue, [2_999, 3_000], "second")
    assert (list(tracked.dropped), tracked.count) == ([0], 1)


def test_run_from_below_is_looked_through_for_what_is_known() -> None:
    """Records that ascend from beyond all others are new; any others may be redeliveries."""
    queue = make_queue()
    deliver(queue, [10, 11, 20])
    assert list(deliver(queue, [12, 20, 21], "second").known) == [1]
    assert list(deliver(queue, [30, 30], "third").known) == [1]
    assert list(deliver(queue, [40, 21], "fourth").known) == [1]
    assert deliver(queue, [41, 42], "fifth").plain


def test_adapter_without_handles_is_told_positions_alone() -> None:
    """A handle is the adapter's choice."""
    queue = make_queue()
    queue.track(make_run([5]), NOW)
    queue.ack(0)

    assert send(queue) == [(5, None)]


def test_acks_made_while_a_flush_fails_are_kept_and_sent_with_it() -> None:
    """Pulsar's clients cleared them: ten acks without a connection were ten redeliveries."""
    queue = make_queue()
    deliver(queue, range(4))
    queue.ack_all([0, 1])
    failed = take(queue)
    queue.ack(2)
    queue.flush_failed(failed)
    assert (queue.durable_number, queue.is_dirty) == (0, True)

    again = take(queue)
    assert sorted(again.settled) == [(0, "first 0"), (1, "first 1"), (2, "first 2")]
    queue.flushed(failed, SENT)
    assert queue.durable_number == 0
    queue.flushed(again, SENT)
    assert queue.durable_number == again.number


def test_handle_of_a_newer_delivery_wins_over_the_failed_flush() -> None:
    """After a reconnect the old handle may be worth nothing."""
    queue = make_queue()
    deliver(queue, [5, 6])
    queue.ack_all([0, 1])
    failed = take(queue)
    deliver(queue, [5], "second")
    queue.flush_failed(failed)

    assert send(queue) == [(5, "second 5"), (6, "first 6")]


def test_hundred_failed_flushes_lose_nothing() -> None:
    """A broker that stays away: every ack waits, and goes out in one flush."""
    queue = make_queue()
    deliver(queue, range(200))
    for index in range(0, 200, 2):
        queue.ack_all([index, index + 1])
        queue.flush_failed(take(queue))

    assert [position for position, _ in send(queue)] == list(range(200))
    assert queue.flush_due is None


def test_full_group_is_flushed_before_its_time() -> None:
    """By count, as Pulsar's maxAcknowledgmentGroupSize: told once for each flush."""
    calls: list[int] = []
    queue = make_queue(flush_count=3, flush_interval=60.0, full=lambda: calls.append(1))
    deliver(queue, range(10))
    queue.ack(9)
    send(queue)

    queue.ack_all([0, 1])
    assert (queue.flush_due, calls) == (NOW + 60, [])
    queue.ack(2)
    assert (queue.flush_due, calls) == (-math.inf, [1])
    queue.ack(3)
    assert calls == [1]
    flush = queue.flush(NOW, WALL)
    assert flush is not None
    assert len(flush.settled) == 4
    queue.ack_all([4, 5, 6])
    assert (queue.flush_due, calls) == (None, [1, 1])  # one in the air at a time
    queue.flushed(flush, SENT)
    assert queue.flush_due == -math.inf


def test_batch_entries_and_cumulative_acks_count_towards_a_full_group() -> None:
    """Pulsar's test looked at one of its sets alone: acks of batch indexes waited for the timer."""
    calls: list[int] = []
    queue = make_queue(flush_count=3, flush_interval=60.0, full=lambda: calls.append(1))
    deliver(queue, [(7, 0), (7, 1), (7, 2), (8, 0)])

    queue.ack_cumulative(2)
    assert calls == [1]


def test_nack_alone_is_flushed_for_its_attempt() -> None:
    """Counts are durable although nothing was settled, and nothing is named."""
    queue = make_queue()
    deliver(queue, [5])
    queue.nack(0, 1, NOW, 4.0)

    flush = take(queue)
    assert (flush.checkpoint.attempts, list(flush.settled)) == ({5: (1, WALL + 4.0)}, [])


def test_fresh_restore_that_is_not_durable_is_flushed() -> None:
    """Attempts that were taken over are written by whoever has them now."""
    queue = make_queue(identity="stream-id")
    queue.restore(look(make_queue()), NOW, WALL, durable=False)

    assert queue.is_dirty
    assert flush_durably(queue).identity == "stream-id"


def test_closed_queue_counts_and_ignores_every_call() -> None:
    """After a revoke nothing is named, delivered or kept."""
    queue = make_queue()
    deliver(queue, range(4))
    queue.ack(0)
    queue.nack(1, 1, NOW, 1.0)
    flush = take(queue)
    queue.close()

    assert [queue.ack(2), queue.reject(2, None), queue.dead_lettered(2)] == [False] * 3
    assert queue.nack(2, 1, NOW).kind is VerdictKind.IGNORED
    assert queue.ack_all(range(4)) == queue.ack_cumulative(3) == 0
    assert queue.ignored == 9
    assert list(deliver(queue, [8, 9]).dropped) == [0, 1]
    queue.flush_failed(flush)
    assert (queue.is_dirty, queue.flush(NOW, WALL, force=True)) == (False, None)
    assert (queue.unsettled, queue.retrying, queue.next_due()) == (0, 0, None)
    assert (queue._index_of, flush.assignment) == (None, ASSIGNMENT)


def test_empty_run_changes_nothing() -> None:
    """A fetch that brought nothing."""
    queue = make_queue()

    tracked = deliver(queue, [])
    assert (tracked.count, tracked.plain, queue.is_dirty) == (0, True, False)


def test_reminded_queue_flushes_again_though_nothing_was_settled() -> None:
    """Attempts that a store did not take are offered again."""
    queue = make_queue()
    deliver(queue, range(2))
    queue.ack(0)
    send(queue)
    assert queue.flush(NOW, WALL, force=True) is None

    queue.remind()

    flush = queue.flush(NOW, WALL, force=True)
    assert flush is not None
    assert not flush.settled
