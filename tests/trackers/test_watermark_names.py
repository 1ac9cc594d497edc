"""The log tracker where the broker wants each settled record named (Pulsar's exclusive kinds)."""

from __future__ import annotations

from typing import Any

import pytest

from consumer_sdk.records import Checkpoint
from consumer_sdk.trackers import WatermarkTracker
from tests.trackers.building import (
    NOW,
    WALL,
    deliver,
    make_tracker,
    send,
    settled,
    take,
)


def named(**options: Any) -> WatermarkTracker:
    """A log whose flushes name what was settled."""
    return make_tracker(names_settled=True, **options)


def test_handles_stay_with_their_records_where_some_were_settled_before() -> None:
    """A checkpoint knows some in the middle: they have none, and move nobody else's."""
    tracker = named(chunk_bits=3)
    restored = Checkpoint(watermark=-1, ranges=((1, 2), (5, 9)), unseen=((None, -1),))
    tracker.restore(restored, NOW, WALL, durable=True)
    deliver(tracker, range(12), "again")
    assert dict(send(tracker)) == {at: f"again {at}" for at in (1, 2, 5, 6, 7, 8, 9)}
    tracker.ack_all(range(12))
    assert dict(send(tracker)) == {at: f"again {at}" for at in (0, 3, 4, 10, 11)}


def test_flush_names_what_was_newly_settled() -> None:
    """Individually, cumulatively, at once and as a dead letter; each in one flush."""
    tracker = named()
    deliver(tracker, range(8))
    tracker.ack(5)
    tracker.ack_cumulative(1)
    assert send(tracker) == [(0, "first 0"), (1, "first 1"), (5, "first 5")]

    tracker.ack_all(range(2, 5))
    tracker.reject(7, 1)
    tracker.dead_lettered(7)
    assert [position for position, _ in send(tracker)] == [2, 3, 4, 7]
    assert settled(tracker) == (5, [(7, 7)])


def test_log_without_names_names_nothing() -> None:
    """Kafka wants a position alone."""
    tracker = make_tracker()
    deliver(tracker, range(3))
    tracker.ack(0)

    assert send(tracker) == []


def test_settled_record_that_the_broker_redelivers_is_acked_again() -> None:
    """An ack that was lost: the broker sends it again, and hears of it with the new handle."""
    tracker = named()
    deliver(tracker, range(4))
    tracker.ack_all([0, 2])
    send(tracker)

    tracked = deliver(tracker, range(5), "second")
    assert (list(tracked.dropped), tracked.count) == ([0, 1, 2, 3], 1)
    assert send(tracker) == [(0, "second 0"), (2, "second 2")]
    tracker.ack_all([1, 3, 4])
    assert send(tracker) == [(1, "second 1"), (3, "second 3"), (4, "second 4")]


def test_redelivery_over_several_chunks_finds_what_is_open() -> None:
    """Also where chunks between have left the window, or kept few positions."""
    tracker = named(chunk_bits=4)
    deliver(tracker, range(80))
    open_ones = {3, 17, 70}
    tracker.ack_all([index for index in range(80) if index not in open_ones])
    send(tracker)
    assert len(tracker._window.chunks) == 3

    deliver(tracker, range(80), "second")
    assert {position for position, _ in send(tracker)} == set(range(80)) - open_ones
    tracker.ack_all(sorted(open_ones))
    assert send(tracker) == [(at, f"second {at}") for at in sorted(open_ones)]


def test_redelivered_retry_and_dead_letter_keep_what_they_wait_for() -> None:
    """A new handle changes nothing but the handle."""
    tracker = named()
    deliver(tracker, range(3))
    tracker.nack(0, 1, NOW, 1.0, "item")
    tracker.reject(1, 1)
    deliver(tracker, range(3), "second")

    assert tracker.due(NOW + 1).ready == [(0, 2, "item")]
    tracker.dead_lettered(1)
    tracker.ack(0)
    assert send(tracker) == [(0, "second 0"), (1, "second 1")]


def test_record_settled_before_a_restart_is_named_by_its_new_handle() -> None:
    """The store knew of it, the broker may not: it is not delivered, and acked again."""
    tracker = named()
    restored = Checkpoint(3, 4, ((6, 7),), unseen=((None, 0),))
    tracker.restore(restored, NOW, WALL, durable=True)

    tracked = deliver(tracker, range(2, 9))
    assert (list(tracked.dropped), list(tracked.settled)) == ([0, 1], [2, 3])
    assert [position for position, _ in send(tracker)] == [2, 3, 6, 7]
    assert tracker.unsettled == 3


@pytest.mark.parametrize("is_heard_of_again", [False, True])
def test_names_of_a_failed_flush_go_with_the_next(*, is_heard_of_again: bool) -> None:
    """As in a queue: put back, and the newer handle wins."""
    tracker = named()
    deliver(tracker, range(3))
    tracker.ack(0)
    failed = take(tracker)
    tracker.ack(1)
    if is_heard_of_again:
        deliver(tracker, [0], "second")
    tracker.flush_failed(failed)

    handle = "second 0" if is_heard_of_again else "first 0"
    assert send(tracker) == [(0, handle), (1, "first 1")]


def test_closed_log_keeps_no_handle() -> None:
    """Nothing is named after the end."""
    tracker = named()
    deliver(tracker, range(3))
    tracker.ack(0)
    tracker.close()

    assert not tracker.ack(1)
    assert tracker.flush(NOW, WALL, force=True) is None
    assert not tracker._window.head.natives


def test_run_that_goes_back_in_the_middle_settles_and_repeats_nothing() -> None:
    """A reconnect between two records of a run: 4 to 6 are new, 1 to 3 come again, out of order."""
    tracker = named()
    deliver(tracker, range(4))
    tracker.ack(2)
    send(tracker)

    tracked = deliver(tracker, [4, 5, 6, 3, 1, 2], "second")
    assert (list(tracked.dropped), tracked.count) == ([3, 4, 5], 3)
    assert send(tracker) == [(2, "second 2")]  # nothing that is in flight
    tracker.ack_all(range(7))
    assert [handle for _, handle in send(tracker)] == [
        *("first 0", "second 1", "second 3", "second 4", "second 5", "second 6")
    ]
