"""Acks of the log tracker: individual, many at once, cumulative, late and duplicate."""

from __future__ import annotations

import pytest

from consumer_sdk.trackers.log_tracker import WatermarkTracker
from tests.trackers.building import NOW, look, make_tracker, settled, track, tracking


def test_list_with_the_ends_of_a_range_settles_only_what_it_names() -> None:
    """A batch that holds a retry out of order acks no record that is not in it."""
    tracker = tracking(range(10))

    assert tracker.ack_all([0, 7, 2]) == 3
    assert settled(tracker) == (0, [(2, 2), (7, 7)])


def test_list_with_duplicates_and_strangers_counts_each_once() -> None:
    """Facts (c), T11: duplicates, negative and unknown indices in a list are no-ops, counted."""
    tracker = tracking(range(10))

    assert tracker.ack_all([3, 3, -1, 4, 99]) == 2
    assert settled(tracker) == (None, [(3, 4)])
    assert tracker.ignored == 3


def test_range_over_a_thousand_chunks_settles_them_all() -> None:
    """A long range needs no recursion: every record of it is settled."""
    tracker = tracking(range(5000), chunk_bits=1)

    assert tracker.ack_all(range(1, 5000)) == 4999
    assert settled(tracker) == (None, [(1, 4999)])
    assert tracker.unsettled == 1


@pytest.mark.parametrize("indices", [range(1, 9), list(range(1, 9))])
def test_range_across_chunks_with_one_settled_counts_the_others(
    indices: list[int] | range,
) -> None:
    """A range and a list of the same records mean the same."""
    tracker = tracking(range(10))
    tracker.ack(5)

    assert tracker.ack_all(indices) == 7
    assert settled(tracker) == (None, [(1, 8)])
    assert tracker.ignored == 1


def test_nothing_to_ack_changes_nothing() -> None:
    """An empty batch settles nothing and leaves the tracker clean."""
    tracker = tracking(range(3))

    assert tracker.ack_all([]) == 0
    assert not tracker.is_dirty


def test_every_late_or_unknown_call_is_a_counted_no_op() -> None:
    """T11, Kinesis trap 8: double ack, ack of an unknown index, settling twice: no-op, counted."""
    tracker = tracking(range(4))
    assert tracker.ack(1)
    before = look(tracker)

    assert [tracker.ack(1), tracker.ack(-1), tracker.ack(4), tracker.ack(10**9)] == [False] * 4
    assert tracker.ack_cumulative(-1) == tracker.ack_cumulative(4) == 0
    assert not tracker.reject(1, 1)
    assert not tracker.dead_lettered(0)
    assert not tracker.extend(1, 1, NOW, 5.0)
    assert look(tracker) == before
    assert tracker.ignored == 9


def test_cumulative_ack_settles_retrying_records_and_drops_their_items() -> None:
    """Kinesis trap 7: a retry below a cumulative ack never comes due again."""
    tracker = tracking(range(6))
    tracker.nack(1, 1, NOW, 1.0, "item")

    assert tracker.ack_cumulative(4) == 5
    assert tracker.next_due() is None
    assert tracker.due(NOW + 10).ready == []
    assert look(tracker).attempts == {}
    assert tracker.retrying == 0


def test_cumulative_ack_spares_what_waits_for_its_dead_letter() -> None:
    """Facts (c): a crash before the dead letter is durable would lose it otherwise."""
    tracker = tracking(range(6))
    tracker.reject(1, 1)

    assert tracker.ack_cumulative(5) == 5
    assert settled(tracker) == (0, [(2, 5)])
    assert not tracker.ack(1)
    assert tracker.dead_lettered(1)
    assert settled(tracker) == (5, [])


def test_cumulative_ack_up_to_a_rejected_record_settles_those_below() -> None:
    """The record itself may be beyond settling; what lies below it is acked all the same."""
    tracker = tracking(range(6))
    tracker.reject(5, 1)

    assert tracker.ack_cumulative(5) == 5
    assert tracker.ack_cumulative(5) == 0
    assert settled(tracker) == (4, [])


def test_ack_with_earlier_records_in_flight_does_not_cover_them() -> None:
    """T21: ack(5) with 3 and 4 in flight settles 5 alone."""
    tracker = tracking(range(6))
    tracker.ack_all(range(3))

    tracker.ack(5)
    checkpoint = look(tracker)
    assert (checkpoint.watermark, checkpoint.resume, checkpoint.ranges) == (2, 3, ((5, 5),))


def test_a_million_records_behind_a_stuck_one_hold_no_memory() -> None:
    """Memory is O(unsettled): what is settled behind a hole leaves the window."""
    tracker = make_tracker(chunk_bits=7)
    for start in range(0, 20_000, 500):
        first = track(tracker, range(start, start + 500)).first
        tracker.ack_all(range(max(first, 1), first + 500))

    assert settled(tracker) == (None, [(1, 19_999)])
    assert live_chunks(tracker) <= 2
    tracker.ack(0)
    assert settled(tracker) == (19_999, [])
    assert live_chunks(tracker) == 1


def test_counters_return_to_zero_when_everything_is_settled() -> None:
    """T6: after nacks, rejects, expiries and acks nothing is left over."""
    tracker = tracking(range(40), ack_timeout=5.0)
    tracker.nack(3, 1, NOW, 0.0, None)
    tracker.due(NOW)
    tracker.reject(7, 1)
    tracker.dead_lettered(7)
    tracker.ack_cumulative(39)

    assert (tracker.unsettled, tracker.unsettled_bytes, tracker.retrying) == (0, 0, 0)
    assert tracker.next_due() is None
    explanation = tracker.explain(NOW)
    assert (explanation.retrying, explanation.dead_lettering, explanation.holes) == (0, 0, 0)


def live_chunks(tracker: WatermarkTracker) -> int:
    """How many chunks the window holds."""
    return len(tracker._window.chunks)
