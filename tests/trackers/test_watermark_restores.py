"""Restarts of the log tracker, and logs with gaps."""

from __future__ import annotations

import pytest

from consumer_sdk.records import Checkpoint, Tracked, VerdictKind
from consumer_sdk.trackers import RetryPolicy, WatermarkTracker
from tests.trackers.building import (
    NOW,
    POLICY,
    WALL,
    flush_durably,
    look,
    make_run,
    make_tracker,
    restored,
    settled,
    track,
    tracking,
)

HOLES = ((12, 14), (16, 20))


# -- gaps (T10) -------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [2, 50_000_000])
def test_gap_in_the_log_does_not_hold_the_watermark(width: int) -> None:
    """T10: positions that do not exist are not waited for, and cost no memory."""
    positions = [0, 1, width, width + 1]
    tracker = tracking(positions)

    tracker.ack_all([1, 2])
    assert settled(tracker) == (None, [(1, width)])
    tracker.ack(0)
    assert settled(tracker) == (width, [])
    assert look(tracker).resume == width + 1


def test_gap_at_the_head_starts_where_the_log_does() -> None:
    """T10: the first record may have any position."""
    tracker = tracking([1000, 1001])
    tracker.ack(1000 - 1000)

    assert (settled(tracker), look(tracker).resume) == ((1000, []), 1001)


def test_gap_at_the_tail_moves_resume_past_it() -> None:
    """T10: transaction markers after the last record: resume is the broker's next position."""
    tracker = make_tracker()
    track(tracker, [5, 6], 10)
    tracker.ack_all(range(2))

    assert (settled(tracker), look(tracker).resume) == ((6, []), 10)


def test_position_that_moves_without_records_is_flushed() -> None:
    """T10, facts (c): a run of nothing but markers makes the tracker dirty."""
    tracker = make_tracker()
    track(tracker, [5], 6)
    tracker.ack(0)
    flush_durably(tracker)

    track(tracker, [], 6)
    assert [tracker.is_dirty] == [False]
    track(tracker, [], 40)
    assert tracker.is_dirty
    assert flush_durably(tracker).resume == 40


def test_position_that_moves_past_an_open_record_does_not_move_resume() -> None:
    """T10: the first unsettled record comes first."""
    tracker = make_tracker()
    track(tracker, [5], 6)
    track(tracker, [], 40)

    assert look(tracker).resume == 5


def test_overlapping_run_does_not_move_the_position_back() -> None:
    """A run that ends below what was seen leaves the next position alone."""
    tracker = make_tracker()
    track(tracker, range(10), 10)
    tracker.ack_all(range(10))

    assert list(track(tracker, [3, 4], 5).dropped) == [0, 1]
    assert look(tracker).resume == 10


def test_run_with_old_and_new_records_mints_the_new_ones_only() -> None:
    """Facts (c): at or below the last seen position there is no index, so nothing comes twice."""
    tracker = tracking([1, 2, 3])

    tracked = track(tracker, [2, 3, 4, 5])
    assert (tracked.first, tracked.count, list(tracked.dropped)) == (3, 2, [0, 1])
    assert not tracked.plain
    assert track(tracker, [6]).plain


def test_end_is_part_of_the_checkpoint_when_all_is_settled() -> None:
    """Facts (c): `ended` makes the tracker dirty, and counts once nothing is open."""
    tracker = make_tracker()
    track(tracker, [5, 6])
    track(tracker, [], ended=True)
    assert tracker.is_dirty
    tracker.ack(0)
    assert not flush_durably(tracker).ended

    tracker.ack(1)
    assert flush_durably(tracker).ended
    track(tracker, [], ended=True)
    assert not tracker.is_dirty


def test_partition_ends_although_its_restored_ranges_have_expired() -> None:
    """Retention may delete what was settled above a hole, and the hole: the end is the end."""
    tracker = restored(10, 11, HOLES, {15: (1, WALL)})
    assert not look(tracker).ended

    track(tracker, [], ended=True)
    assert flush_durably(tracker).ended


def test_partition_that_had_ended_is_ended_after_a_restart() -> None:
    """Without another fetch; nothing is to be flushed for it."""
    tracker = make_tracker()
    tracker.restore(Checkpoint(10, 11, ended=True), NOW, WALL, durable=True)

    assert look(tracker).ended
    track(tracker, [], ended=True)
    assert not tracker.is_dirty


# -- restarts ---------------------------------------------------------------------------------


def test_restart_delivers_only_the_holes() -> None:
    """What was settled above a hole is suppressed, below and at the watermark too."""
    tracker = restored(10, 11, HOLES)
    assert not tracker.is_dirty

    tracked = track(tracker, range(9, 23), 23)
    assert list(tracked.dropped) == [0, 1]
    assert [tracked.first + i for i in range(tracked.count)] == list(range(12))
    assert list(tracked.settled) == [1, 2, 3, 5, 6, 7, 8, 9]
    assert tracker.unsettled == 4
    assert settled(tracker) == (10, list(HOLES))
    assert tracker.ack_all([0, 4, 10, 11]) == 4
    assert settled(tracker) == (22, [])


def test_checkpoint_before_the_first_fetch_is_the_restored_one() -> None:
    """Facts (c): ranges and attempts that were not fetched again yet are kept."""
    tracker = restored(10, 11, HOLES, {15: (2, WALL + 3)})

    checkpoint = look(tracker)
    assert (checkpoint.watermark, checkpoint.resume, checkpoint.ranges) == (10, 11, HOLES)
    assert checkpoint.attempts == {15: (2, WALL + 3)}
    explained = tracker.explain(NOW)
    assert (explained.watermark, explained.holes) == (10, 2)


def test_checkpoint_between_fetches_keeps_what_lies_ahead() -> None:
    """Facts (c): the part that was fetched and the part still to come make one checkpoint."""
    tracker = restored(10, 11, HOLES, {15: (2, WALL + 3), 30: (1, WALL)})
    track(tracker, [11, 12], 13)
    assert settled(tracker) == (10, list(HOLES))

    tracker.ack(0)
    assert settled(tracker) == (14, [(16, 20)])
    assert look(tracker).resume == 13
    assert look(tracker).attempts == {15: (2, WALL + 3), 30: (1, WALL)}


def test_attempts_survive_a_restart_and_count_on() -> None:
    """A failed record keeps its count: the third failure after two is the last."""
    tracker = restored(10, 11, (), {11: (2, WALL - 5)})

    tracked = track(tracker, [11, 12])
    assert tracked.tries == {0: 3}
    assert tracker.nack(0, 1, NOW).kind is VerdictKind.IGNORED
    assert tracker.nack(0, 3, NOW).kind is VerdictKind.DEAD_LETTER


def test_restored_delay_is_waited_for_and_clamped() -> None:
    """A wall clock that was set back must not park a record for a year."""
    tracker = restored(10, 11, (), {11: (1, WALL + 1), 12: (1, WALL + 10**9)})

    tracked = track(tracker, [11, 12, 13])
    assert list(tracked.held) == [0, 1]
    assert tracker.next_due() == NOW + 1
    assert [(i, n) for i, n, _ in tracker.due(NOW + 1).ready] == [(0, 2)]
    assert tracker.next_due() == NOW + POLICY.maximum
    assert tracker.retrying == 1


def test_restored_retry_that_was_acked_late_never_comes_due() -> None:
    """Facts (c): the message that `due` would hand back goes with the record."""
    tracker = restored(10, 11, (), {11: (1, WALL + 1)})
    track(tracker, [11])

    assert tracker.ack(0)
    assert tracker.due(NOW + 9).ready == []


def test_retry_that_was_handed_out_late_is_acked_cumulatively_up_to_it_and_no_further() -> None:
    """Below what a cumulative ack has passed it was not seen; later it was."""
    tracker = restored(10, 11, (), {12: (1, WALL + 1), 14: (1, WALL + 1)})
    tracked = track(tracker, range(11, 16))
    assert list(tracked.held) == [1, 3]
    assert tracker.ack_cumulative(4) == 3

    for index, _, message in tracker.due(NOW + 1).ready:
        message.index = index
        assert tracker.handed_out([message], NOW + 1) == [message]
    assert tracker.ack_cumulative(1) == 1
    assert settled(tracker) == (13, [(15, 15)])
    assert tracker.ack_cumulative(3) == 1
    assert settled(tracker) == (15, [])


def test_record_beyond_a_lowered_limit_goes_to_the_dead_letters() -> None:
    """Attempts at the limit already: no further delivery."""
    tracker = restored(10, 11, (), {11: (4, WALL)}, policy=RetryPolicy(max_attempts=2))

    tracked = track(tracker, [11, 12])
    assert list(tracked.exhausted) == [0]
    assert look(tracker).attempts == {11: (1, WALL)}
    assert not tracker.ack(0)
    assert tracker.dead_lettered(0)
    assert settled(tracker) == (11, [])


def test_attempts_of_a_record_compacted_away_are_purged() -> None:
    """T10: fetching has passed the position; its count must not stay for ever."""
    tracker = restored(10, 11, (), {11: (1, WALL), 12: (1, WALL)})
    track(tracker, [13])

    assert look(tracker).attempts == {}
    tracker.ack(0)
    assert settled(tracker) == (13, [])


def test_range_compacted_away_while_it_was_fetched_keeps_the_watermark() -> None:
    """T10, T19: the watermark had reached the range's end, and does not go back."""
    tracker = restored(10, 11, ((12, 20),))
    track(tracker, [11, 12, 15])
    tracker.ack(0)
    assert settled(tracker) == (20, [])

    track(tracker, [25])
    assert settled(tracker) == (20, [])
    tracker.ack(3)
    assert settled(tracker) == (25, [])


def test_range_that_was_passed_long_ago_does_not_pull_the_watermark_back() -> None:
    """T19: an overlapping run, later, looks at restored state again."""
    tracker = restored(10, 11, ((12, 14),))
    track(tracker, [11, 12, 14])
    track(tracker, [15, 16])
    tracker.ack_cumulative(4)
    assert settled(tracker) == (16, [])

    track(tracker, [15, 16, 17])
    assert settled(tracker) == (16, [])


def test_range_that_begins_above_a_hole_keeps_its_first_record() -> None:
    """What is left of a range still covers the records that were fetched of it."""
    tracker = restored(10, 11, ((12, 20),))
    track(tracker, [11, 12])
    track(tracker, [25])

    assert settled(tracker) == (10, [(12, 12)])


def test_restored_dues_keep_their_time_while_time_passes() -> None:
    """A due time is wall-clock in the checkpoint, wherever it is read from."""
    tracker = restored(10, 11, (), {15: (1, WALL + 6)})
    assert tracker.checkpoint(NOW + 2, WALL + 2).attempts == {15: (1, WALL + 6)}

    track(tracker, [15], now=NOW + 2)
    assert tracker.checkpoint(NOW + 3, WALL + 3).attempts == {15: (1, WALL + 6)}
    assert tracker.checkpoint(NOW + 9, WALL + 9).attempts == {15: (1, WALL + 9)}


def test_tuples_are_positions_too() -> None:
    """Kinesis and Pulsar positions have no next one; everything works by order alone."""
    tracker = restored((1, 5), (1, 5), (((2, 0), (2, 3)),))
    tracked = track(tracker, [(1, 5), (1, 6), (2, 0), (2, 3), (2, 4)])

    assert (list(tracked.dropped), list(tracked.settled)) == ([0], [1, 2])
    tracker.ack(0)
    assert settled(tracker) == ((2, 3), [])
    tracker.ack(3)
    assert (settled(tracker), look(tracker).resume) == (((2, 4), []), (2, 4))


# -- several records that come as one that cannot be read ----------------------------------------


@pytest.mark.parametrize(
    "ranges", [((3, 5),), ((3, 5), (12, 14)), ((1, 5),), ((4, 5),), ((7, 12),)]
)
def test_unreadable_batch_settled_in_part_is_not_settled(
    ranges: tuple[tuple[int, int], ...],
) -> None:
    """Its one message is to be settled as a whole: no position passes the rest before it is."""
    tracker = restored(None, 0, ranges)
    track(tracker, range(3))
    tracker.ack_all(range(3))

    tracked = track_batch(tracker, 3, 9)
    assert (tracked.count, list(tracked.settled), list(tracked.dropped)) == (1, [], [])
    assert (settled(tracker)[0], look(tracker).resume) == (2, 3)
    tracker.ack(tracked.first)
    assert look(tracker).resume == 10
    track(tracker, [10])
    assert look(tracker).resume == 10


def track_batch(tracker: WatermarkTracker, first: int, last: int) -> Tracked:
    """Tracks one message for all of ``first`` to ``last``."""
    run = make_run([first], last + 1)
    run.last = last
    return tracker.track(run, NOW)


@pytest.mark.parametrize("ranges", [((3, 9),), ((1, 12),)])
def test_unreadable_batch_that_was_settled_is_settled(ranges: tuple[tuple[int, int], ...]) -> None:
    """It is not dead-lettered again."""
    tracker = restored(None, 0, ranges)
    track(tracker, [0])

    tracked = track_batch(tracker, 3, 9)
    assert list(tracked.settled) == [tracked.first]


def test_unreadable_batch_that_the_watermark_has_reached_in_part_is_not_settled() -> None:
    """A watermark over the ranges above it may lie beyond the position to go on from."""
    tracker = restored(5, 3)

    tracked = track_batch(tracker, 3, 9)
    assert (tracked.count, list(tracked.dropped)) == (1, [])
    assert (settled(tracker), look(tracker).resume) == ((None, []), 3)
    tracker.ack(tracked.first)
    assert look(tracker).resume == 10


def test_unreadable_batch_below_the_watermark_is_settled() -> None:
    """All of it was."""
    tracker = restored(9, 3)

    assert list(track_batch(tracker, 3, 9).dropped) == [0]
    assert settled(tracker)[0] == 9


def test_unreadable_batch_that_was_tracked_comes_again_and_moves_nothing() -> None:
    """It is in flight."""
    tracker = tracking([3])

    assert list(track_batch(tracker, 3, 9).dropped) == [0]
    assert look(tracker).resume == 3
