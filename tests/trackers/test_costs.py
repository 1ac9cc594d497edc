"""What operations cost, counted in calls: nothing grows with what it does not concern."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from consumer_sdk.records import Checkpoint, Outcome, OutcomeKind
from consumer_sdk.trackers import WatermarkTracker
from tests.trackers.building import (
    NOW,
    WALL,
    deliver,
    make_delivery,
    make_queue,
    make_run,
    make_tracker,
    take,
    track,
    tracking,
)
from tests.trackers.counting import operations


def in_flight(count: int) -> WatermarkTracker:
    """A log with so many records in flight, in chunks of 16."""
    return tracking(range(count), chunk_bits=4)


@pytest.mark.parametrize(
    "act",
    [
        lambda tracker: tracker.ack(100),
        lambda tracker: tracker.ack_all(range(100, 120)),
        lambda tracker: tracker.ack_cumulative(100),
        lambda tracker: tracker.nack(100, 1, NOW),
        lambda tracker: tracker.reject(100, 1),
        lambda tracker: tracker.flush_due,
        lambda tracker: tracker.next_due(),
    ],
    ids=["ack", "ack_all", "ack_cumulative", "nack", "reject", "flush_due", "next_due"],
)
def test_operation_costs_the_same_whatever_is_in_flight_behind(
    act: Callable[[WatermarkTracker], Any],
) -> None:
    """A cumulative ack pops its prefix: Pulsar's trackers walked over all that was unacked."""
    few, many = in_flight(200), in_flight(20_000)

    assert operations(lambda: act(many)) <= operations(lambda: act(few))


def test_whole_run_is_handed_out_without_a_look_at_each_record() -> None:
    """Its states are counted in bulk."""

    def cost(count: int) -> int:
        tracker = make_tracker(chunk_bits=10)
        run = make_run(range(count))
        tracker.track(run, NOW)
        for index, message in enumerate(run.messages):
            message.index = index
        return operations(lambda: tracker.handed_out(run.messages, NOW))

    assert cost(1000) <= cost(10)


def test_cumulative_acks_of_a_whole_window_cost_its_length_in_all() -> None:
    """Storm and Pulsar scanned the window at each: quadratic."""

    def cost(count: int) -> int:
        tracker = in_flight(count)
        return operations(lambda: [tracker.ack_cumulative(i) for i in range(0, count, 10)])

    assert cost(20_000) <= 11 * cost(2_000)


def test_cumulative_ack_with_restored_retries_costs_its_prefix() -> None:
    """One by one, but only up to where it was asked."""

    def cost(count: int) -> int:
        tracker = make_tracker()
        attempts = {50: (1, WALL + 9.0)}
        tracker.restore(Checkpoint(None, 0, (), attempts), NOW, WALL, durable=True)
        track(tracker, range(count))
        return operations(lambda: tracker.ack_cumulative(60))

    assert cost(20_000) <= cost(200)


class Place(int):
    """A position whose comparisons can be counted."""

    def __lt__(self, other: int) -> bool:
        return int(self) < int(other)

    def __le__(self, other: int) -> bool:
        return int(self) <= int(other)

    def __gt__(self, other: int) -> bool:
        return int(self) > int(other)

    def __ge__(self, other: int) -> bool:
        return int(self) >= int(other)


@pytest.mark.parametrize("kind", ["ranges", "attempts"])
def test_run_costs_the_same_whatever_a_checkpoint_knows_of_later_records(kind: str) -> None:
    """What was restored is looked at once, when fetching comes to it."""

    def cost(count: int) -> int:
        tracker = make_tracker(chunk_bits=10)
        places = [Place(place) for place in range(500, 500 + 2 * count, 2)]
        ranges = tuple((place, place) for place in places) if kind == "ranges" else ()
        attempts = dict.fromkeys(places, (1, WALL)) if kind == "attempts" else {}
        tracker.restore(Checkpoint(None, None, ranges, attempts), NOW, WALL, durable=True)
        return operations(lambda: [track(tracker, [Place(place)]) for place in range(400)])

    assert cost(20_000) <= cost(20)


@pytest.mark.parametrize("kind", ["dead letters", "restored retries"])
def test_cumulative_ack_costs_the_same_whatever_earlier_ones_left_open(kind: str) -> None:
    """One record in each chunk that it may not settle: they are passed once."""

    def cost(count: int) -> int:
        stuck = range(0, 16 * count, 16)
        attempts = dict.fromkeys(stuck, (1, WALL + 9.0)) if kind[0] == "r" else {}
        tracker = make_tracker(chunk_bits=4)
        tracker.restore(Checkpoint(None, 0, (), attempts), NOW, WALL, durable=True)
        track(tracker, range(16 * count + 400))
        for index in stuck if kind[0] == "d" else ():
            tracker.reject(index, 1)
        tracker.ack_cumulative(16 * count)
        ahead = range(16 * count + 1, 16 * count + 300)
        return operations(lambda: [tracker.ack_cumulative(index) for index in ahead])

    assert cost(1000) <= cost(10)


def test_cumulative_ack_of_what_was_handed_out_late_costs_what_it_settles() -> None:
    """Restored retries come due one by one, far below what was acked since."""

    def cost(count: int) -> int:
        tracker = make_tracker(chunk_bits=4)
        attempts = {16 * i: (1, WALL + 2.0 + i / 1024) for i in range(count)}
        tracker.restore(Checkpoint(None, 0, (), attempts), NOW, WALL, durable=True)
        run = make_run(range(16 * count))
        tracker.track(run, NOW)
        for index, message in enumerate(run.messages):
            message.index = index
        tracker.ack_cumulative(16 * count - 1)

        def see_and_ack() -> None:
            for i in range(10):
                assert len(tracker.due(NOW + 2.0 + i / 1024).ready) == 1
                tracker.handed_out([run.messages[16 * i]], NOW + 3)
                assert tracker.ack_cumulative(16 * count - 1) == 1

        return operations(see_and_ack)

    assert cost(1024) <= cost(16) + 400


def test_cumulative_ack_far_above_the_last_passes_what_is_live_alone() -> None:
    """A stuck record and a million settled ones in between: their chunks are gone."""

    def cost(count: int) -> int:
        tracker = in_flight(count)
        tracker.ack_all(range(1, count - 10))
        return operations(lambda: tracker.ack_cumulative(count - 5))

    assert cost(50_000) <= cost(500)


def test_short_delay_among_many_long_ones_is_found_at_once() -> None:
    """O(log n) to schedule and to take out, whatever else waits."""

    def cost(count: int) -> int:
        tracker = tracking(range(count + 1), chunk_bits=10)
        for index in range(count):
            tracker.nack(index, 1, NOW, 600.0 + index)

        def fail_and_come_due() -> None:
            tracker.nack(count, 1, NOW, 1.0)
            assert len(tracker.due(NOW + 1).ready) == 1

        return operations(fail_and_come_due)

    assert cost(20_000) <= 2 * cost(200)


def test_flush_of_a_queue_costs_what_was_settled_since_the_last() -> None:
    """Neither what is in flight nor what is remembered is looked at."""

    def cost(count: int) -> int:
        queue = make_queue(chunk_bits=10, proof_count=10)
        deliver(queue, range(count))
        queue.ack_all(range(count // 2))
        queue.flushed(take(queue), Outcome(OutcomeKind.SENT))
        queue.ack_all(range(count // 2, count // 2 + 5))
        return operations(lambda: queue.flushed(take(queue), Outcome(OutcomeKind.SENT)))

    assert cost(20_000) <= cost(200)


@pytest.mark.parametrize("is_spread", [True, False])
def test_redelivery_to_a_queue_looks_at_what_is_unsettled_once(*, is_spread: bool) -> None:
    """Not at the settled ones beside it, and not again with each flush."""
    queue = make_queue(chunk_bits=10)
    deliver(queue, range(32 * 1024))
    kept = range(0, 32 * 1024, 1024) if is_spread else range(32)
    queue.ack_all([index for index in range(32 * 1024) if index not in kept])
    queue.flushed(take(queue), Outcome(OutcomeKind.SENT))

    def redeliver(position: int) -> None:
        assert list(deliver(queue, [position]).known) == [0]

    first = operations(lambda: redeliver(kept[1]))
    queue.nack(kept[2], 1, NOW, 600.0)
    queue.flushed(take(queue), Outcome(OutcomeKind.SENT))
    again = operations(lambda: redeliver(kept[3]))
    assert again < 40 < first < 400


def test_new_records_of_a_queue_cost_the_same_however_many_a_run_has() -> None:
    """If it says that they ascend: nothing is called for each."""

    def cost(count: int) -> int:
        queue, run = make_queue(chunk_bits=10), make_delivery(range(count))
        run.ascends = True
        return operations(lambda: queue.track(run, NOW))

    assert cost(1000) <= cost(10)


def test_chunks_that_did_not_change_are_not_searched_again() -> None:
    """A flush looks at each hole once, and only takes together what it found before."""
    tracker = tracking(range(64_000), chunk_bits=10)
    for index in range(1, 64_000, 64):
        tracker.ack(index)
    first, second = (operations(lambda: tracker.checkpoint(NOW, WALL)) for _ in range(2))

    assert second * 4 < first


def _kept_behind_stuck_records(*, keeps_ranges: bool) -> int:
    """Bytes that a tracker holds with one stuck record in each chunk, after a flush."""
    tracemalloc.start()
    try:
        tracker = make_tracker(chunk_bits=10, keeps_ranges=keeps_ranges)
        for first in range(0, 40 * 1024, 1024):
            index = track(tracker, range(1_000_000 + first, 1_000_000 + first + 1024)).first
            tracker.ack_all(range(index + 1, index + 1024))
        take(tracker)
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_position_alone_does_not_keep_what_is_settled_behind_stuck_records() -> None:
    """A log whose commits carry no ranges forgets as much as one whose commits do."""
    with_ranges = _kept_behind_stuck_records(keeps_ranges=True)

    assert _kept_behind_stuck_records(keeps_ranges=False) < 2 * with_ranges
