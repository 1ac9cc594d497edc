"""What went wrong in Storm's spouts does not here.

The sources: kinesis-storm-spout's InflightRecordTracker (its bugs C1 to C4), storm-kinesis' three
tree sets, and storm-kafka's PartitionManager with its ``maxOffsetBehind``.
"""

from __future__ import annotations

import pytest

from consumer_sdk.records import VerdictKind
from consumer_sdk.trackers import RetryPolicy, WatermarkTracker
from tests.trackers.building import (
    NOW,
    flush_durably,
    look,
    make_run,
    make_tracker,
    settled,
    take,
    track,
    tracking,
)
from tests.trackers.counting import operations

# -- InflightRecordTracker -----------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 5, None])
def test_any_retry_limit_lets_the_checkpoint_move(limit: int | None) -> None:
    """C1, Kinesis trap 4: a limit of no retries tracked nothing, and nothing was checkpointed."""
    tracker = tracking(range(3), policy=RetryPolicy(max_attempts=limit))
    tracker.ack_all(range(3))

    assert flush_durably(tracker).watermark == 2


def test_failed_then_acked_leaves_no_stale_retry() -> None:
    """C2, Kinesis trap 3: the stale head of the retry queue stopped the shard for ever."""
    tracker = tracking(range(3))
    tracker.nack(0, 1, NOW, 1.0, "stale")
    tracker.nack(1, 1, NOW, 2.0, "wanted")

    assert tracker.ack(0)
    assert tracker.next_due() == NOW + 2
    assert tracker.due(NOW + 9).ready == [(1, 2, "wanted")]


def test_failed_twice_is_queued_once_and_costs_one_attempt() -> None:
    """C3, Kinesis trap 3: a second failure of one delivery was emitted and counted again."""
    tracker = tracking(range(2))

    assert tracker.nack(0, 1, NOW, 1.0, "item").kind is VerdictKind.RETRY
    assert tracker.nack(0, 1, NOW, 5.0, "again").kind is VerdictKind.IGNORED
    assert tracker.retrying == 1
    assert tracker.due(NOW + 9).ready == [(0, 2, "item")]
    assert tracker.due(NOW + 99).ready == []


def test_retry_is_removed_without_a_walk_over_the_others() -> None:
    """C4: removal from the queue of retries was linear: 186 µs with 40 000 queued."""

    def cost(waiting: int) -> int:
        tracker = tracking(range(waiting), chunk_bits=10)
        for index in range(waiting):
            tracker.nack(index, 1, NOW, float(index % 977))
        return operations(lambda: tracker.ack(waiting // 2))

    assert cost(20_000) <= 2 * cost(200)


def test_acked_then_failed_stays_settled() -> None:
    """Kinesis trap 3: a failure after the ack, and after the checkpoint has passed it."""
    tracker = tracking(range(2))
    tracker.ack(0)
    assert tracker.nack(0, 1, NOW).kind is VerdictKind.IGNORED
    flush_durably(tracker)

    assert tracker.nack(0, 1, NOW).kind is VerdictKind.IGNORED
    assert not tracker.is_dirty
    assert (tracker.next_due(), settled(tracker)) == (None, (0, []))


# -- storm-kinesis --------------------------------------------------------------------------------


def test_duplicate_ack_after_the_commit_never_moves_it_back() -> None:
    """Kinesis trap 2: it entered the acked set again, and a lower sequence was committed."""
    tracker = tracking(range(5))
    tracker.ack_all(range(4))
    assert flush_durably(tracker).watermark == 3

    assert [tracker.ack(1), tracker.ack_all([0, 1]), tracker.ack_cumulative(2)] == [False, 0, 0]
    assert tracker.flush(NOW, 0.0, force=True) is None
    tracker.ack(4)
    assert flush_durably(tracker).watermark == 4


def test_two_retries_due_at_the_same_instant_both_come() -> None:
    """A tree set that compared due times alone dropped the second."""
    tracker = tracking(range(3))
    tracker.nack(2, 1, NOW, 1.0, "second")
    tracker.nack(0, 1, NOW, 1.0, "first")

    assert tracker.due(NOW + 1).ready == [(0, 2, "first"), (2, 2, "second")]


def test_one_sequence_number_holds_several_records() -> None:
    """Kinesis trap 6: the second record of an aggregate was not tracked at all."""
    tracker = tracking([(10**55, 0), (10**55, 1), (10**55, 2)])
    tracker.ack_all([0, 2])

    assert settled(tracker) == ((10**55, 0), [((10**55, 2), (10**55, 2))])
    assert list(track(tracker, [(10**55, 1), (10**55, 2), (10**55 + 1, 0)]).dropped) == [0, 1]


def test_ack_of_an_older_assignment_changes_nothing_in_the_newer() -> None:
    """Kinesis trap 5: message ids carried no epoch, so that an old instance's ack counted."""
    older = tracking(range(3))
    older.close()
    newer = tracking(range(3))

    assert not older.ack(0)
    assert (settled(newer), older.ignored) == ((None, []), 1)


def test_failed_commit_stays_dirty_and_the_next_writes_the_newest() -> None:
    """Kinesis trap 9: what failed to be written is written with what came after it."""
    tracker = tracking(range(3))
    tracker.ack(0)
    tracker.flush_failed(take(tracker))
    assert tracker.is_dirty

    tracker.ack(1)
    assert flush_durably(tracker).watermark == 1
    assert not tracker.is_dirty


# -- PartitionManager -----------------------------------------------------------------------------

BEHIND = 100_000
"""More than PartitionManager's ``maxOffsetBehind`` of the time."""


def far_behind() -> WatermarkTracker:
    """The first record is open, and very many behind it are acked."""
    tracker = make_tracker(chunk_bits=10)
    for start in range(0, BEHIND, 500):
        first = track(tracker, range(start, start + 500)).first
        tracker.ack_all(range(max(first, 1), first + 500))
    return tracker


def test_failure_far_behind_is_retried_like_any_other() -> None:
    """PartitionManager skipped it: neither retried nor let go, it pinned the commit and leaked."""
    tracker = far_behind()
    assert settled(tracker) == (None, [(1, BEHIND - 1)])

    assert tracker.nack(0, 1, NOW, 1.0, "item").kind is VerdictKind.RETRY
    assert tracker.due(NOW + 1).ready == [(0, 2, "item")]
    assert tracker.ack(0)
    assert settled(tracker) == (BEHIND - 1, [])
    assert len(tracker._window.chunks) == 1


def test_record_that_falls_far_behind_is_never_dropped_in_silence() -> None:
    """PartitionManager's ack cleared whatever was pending too far below it."""
    tracker = far_behind()
    explained = tracker.explain(NOW + 60)

    assert (explained.pinned_by, explained.state, explained.age) == (0, "open", 60.0)
    assert (look(tracker).resume, tracker.unsettled) == (0, 1)
    assert len(tracker._window.chunks) == 2


def test_record_that_always_fails_ends_with_the_dead_letters() -> None:
    """PartitionManager retried it for ever, and fetched nothing else meanwhile."""
    tracker = tracking(range(2))
    tracker.ack(1)
    for attempt in (1, 2):
        tracker.nack(0, attempt, NOW, 0.0)
        tracker.due(NOW)

    assert tracker.nack(0, 3, NOW).kind is VerdictKind.DEAD_LETTER
    assert tracker.dead_lettered(0)
    assert settled(tracker) == (1, [])


def test_failed_record_neither_blocks_nor_repeats_the_others() -> None:
    """PartitionManager fetched from the failed offset on before it went on with new records."""
    tracker = tracking(range(4))
    tracker.nack(1, 1, NOW, 5.0, "failed")

    tracked = track(tracker, range(4, 8))
    assert (tracked.plain, tracked.count) == (True, 4)
    tracker.ack_all([0, 2, 3, 4, 5, 6, 7])
    assert tracker.due(NOW + 5).ready == [(1, 2, "failed")]
    assert tracker.unsettled == 1


def test_failures_without_any_ack_raise_nothing() -> None:
    """PartitionManager threw "Too many tuple failures", in the first batch alone."""
    tracker = tracking(range(2000), chunk_bits=10)
    kinds = {tracker.nack(index, 1, NOW).kind for index in range(2000)}

    assert kinds == {VerdictKind.RETRY}
    assert len(tracker.due(NOW + 99).ready) == 2000


def test_older_records_in_a_fetched_run_are_skipped() -> None:
    """A compressed fetch begins below the offset asked for: those are no new deliveries."""
    tracker = tracking(range(100, 104))
    tracker.ack_all(range(4))

    tracked = tracker.track(make_run(range(98, 106)), NOW)
    assert (list(tracked.dropped), tracked.count) == ([0, 1, 2, 3, 4, 5], 2)
    assert settled(tracker) == (103, [])


def test_jump_of_the_position_begins_anew() -> None:
    """Out of range, PartitionManager went on with the old pending set at the new offsets."""
    tracker = tracking(range(4))
    tracker.nack(1, 1, NOW, 1.0, "old")
    tracker.close()
    jumped = tracking([900, 901])

    assert tracker.due(NOW + 1).ready == []
    jumped.ack(0)
    assert (settled(jumped), look(jumped).resume) == ((900, []), 901)
