"""Flushes of the log tracker: one in the air, confirmed or put back; and its end."""

from __future__ import annotations

import gc
import weakref

from consumer_sdk.records import Checkpoint, Message, Outcome, OutcomeKind, Run, VerdictKind
from consumer_sdk.trackers import WatermarkTracker
from tests.trackers.building import (
    ASSIGNMENT,
    NOW,
    WALL,
    flush_durably,
    look,
    make_run,
    make_tracker,
    restored,
    track,
    tracking,
)


def test_records_seen_but_not_settled_are_never_covered() -> None:
    """T4: what was only fetched is redelivered after a restart."""
    tracker = tracking(range(10))

    assert tracker.flush(NOW, WALL, force=True) is None
    checkpoint = look(tracker)
    assert (checkpoint.watermark, checkpoint.resume, checkpoint.ranges) == (None, 0, ())


def test_flush_is_one_snapshot_whatever_is_acked_meanwhile() -> None:
    """T5: position and ranges belong together; later acks go with the next flush."""
    tracker = tracking(range(10))
    tracker.ack_all([0, 1, 5])
    flush = tracker.flush(NOW, WALL)
    assert flush is not None

    tracker.ack_all([2, 3, 7])
    taken = flush.checkpoint
    assert (taken.watermark, taken.resume, taken.ranges) == (1, 2, ((5, 5),))
    assert (flush.number, flush.assignment) == (1, ASSIGNMENT)
    tracker.flushed(flush, Outcome.durable())
    newer = flush_durably(tracker)
    assert (newer.watermark, newer.resume, newer.ranges) == (3, 4, ((5, 5), (7, 7)))


def test_checkpoint_shows_the_state_now_with_a_flush_in_the_air() -> None:
    """Facts (c): looking does not wait for the flush, and does not disturb it."""
    tracker = tracking(range(4))
    tracker.ack(0)
    flush = tracker.flush(NOW, WALL)
    tracker.ack(1)

    assert look(tracker).watermark == 1
    assert flush is not None
    assert flush.checkpoint.watermark == 0


def test_second_flush_waits_for_the_first() -> None:
    """T19: with one commit in the air none can be overtaken."""
    tracker = tracking(range(4))
    tracker.ack(0)
    flush = tracker.flush(NOW, WALL)
    assert flush is not None
    tracker.ack(1)

    assert (tracker.flush_due, tracker.flush(NOW, WALL, force=True)) == (None, None)
    tracker.flushed(flush, Outcome.durable())
    assert tracker.flush_due is not None
    assert tracker.flush(NOW, WALL) is not None


def test_failed_flush_is_put_back_and_the_newer_state_wins() -> None:
    """T20: nothing is durable, and the next flush carries the old acks and the new."""
    wakes: list[int] = []
    tracker = tracking(range(6), wake=lambda: wakes.append(1))
    tracker.ack_all([0, 3])
    failed = tracker.flush(NOW, WALL)
    assert failed is not None
    tracker.ack(1)
    count = len(wakes)

    tracker.flush_failed(failed)
    assert (tracker.durable_number, tracker.is_dirty, len(wakes)) == (0, True, count + 1)
    newer = flush_durably(tracker)
    assert (newer.watermark, newer.ranges) == (1, ((3, 3),))
    assert tracker.durable_number == 2


def test_failed_flush_with_nothing_new_is_flushed_again() -> None:
    """T20: putting back alone makes the tracker dirty."""
    tracker = tracking(range(2))
    tracker.ack(0)
    failed = tracker.flush(NOW, WALL)
    assert failed is not None
    tracker.flush_failed(failed)

    again = tracker.flush(NOW, WALL)
    assert again is not None
    assert again.checkpoint == failed.checkpoint


def test_answer_to_an_old_flush_changes_nothing() -> None:
    """T19: a late confirmation or failure of an earlier flush is not taken for the current one."""
    tracker = tracking(range(4))
    tracker.ack(0)
    old = tracker.flush(NOW, WALL)
    assert old is not None
    tracker.flush_failed(old)
    current = tracker.flush(NOW, WALL)
    assert current is not None

    tracker.flushed(old, Outcome.durable())
    tracker.flush_failed(old)
    assert tracker.durable_number == 0
    assert not tracker.is_dirty
    tracker.flushed(current, Outcome.durable())
    tracker.flushed(old, Outcome.durable())
    assert tracker.durable_number == 2


def test_flush_cut_by_a_size_budget_leaves_receipts_open() -> None:
    """What was dropped is not durable until a later flush covers it."""
    tracker = tracking(range(6))
    assert tracker.flush_number == 1
    tracker.ack_all([1, 3])
    flush = tracker.flush(NOW, WALL)
    assert flush is not None
    tracker.flushed(flush, Outcome.durable(covered=1))

    assert tracker.durable_number == 0
    tracker.ack(0)
    flush_durably(tracker)
    assert tracker.durable_number == 2


def test_sent_flush_counts_as_done() -> None:
    """SENT is all that some brokers can show."""
    tracker = tracking(range(2))
    tracker.ack(0)
    flush = tracker.flush(NOW, WALL)
    assert flush is not None
    tracker.flushed(flush, Outcome(OutcomeKind.SENT))

    assert tracker.durable_number == 1


def test_flushes_keep_their_interval_unless_forced() -> None:
    """The first is due at once; the next an interval later."""
    tracker = tracking(range(6), flush_interval=0.5)
    assert [tracker.flush_due] == [None]
    tracker.ack(0)
    first = tracker.flush(NOW, WALL)
    assert first is not None
    tracker.flushed(first, Outcome.durable())

    tracker.ack(1)
    assert tracker.flush_due == NOW + 0.5
    assert tracker.flush(NOW + 0.4, WALL) is None
    second = tracker.flush(NOW + 0.4, WALL, force=True)
    assert second is not None
    tracker.flushed(second, Outcome.durable())
    assert tracker.flush(NOW + 9, WALL, force=True) is None


def test_wake_is_called_once_per_turn_from_clean_to_dirty() -> None:
    """Facts (c): the flush loop sleeps until then, and acks in between cost nothing."""
    wakes: list[int] = []
    tracker = tracking(range(9), wake=lambda: wakes.append(1))
    tracker.ack(0)
    tracker.ack(1)
    tracker.ack_all([2, 3])
    tracker.ack_cumulative(5)
    assert len(wakes) == 1

    flush = tracker.flush(NOW, WALL)
    assert flush is not None
    tracker.ack_all(range(6, 8))
    assert len(wakes) == 2
    tracker.flushed(flush, Outcome.durable())
    assert len(wakes) == 3  # a flush has become possible


def test_pin_is_flushed_although_nothing_was_acked() -> None:
    """A resolved start is written before the first ack, so that a crash leaves no gap."""
    tracker = restored(resume=50)
    assert not tracker.is_dirty
    pinned = make_tracker()
    pinned.restore(look(tracker), NOW, WALL, durable=False)

    assert pinned.is_dirty
    assert flush_durably(pinned).resume == 50


def test_identity_is_part_of_every_checkpoint() -> None:
    """So that a stream made again is told from the one that was deleted."""
    tracker = tracking(range(2), identity="topic-id")
    tracker.ack(0)

    assert flush_durably(tracker).identity == "topic-id"


def test_closed_tracker_counts_and_ignores_every_call() -> None:
    """An older epoch's late calls change nothing, and a flush in the air is forgotten."""
    wakes: list[int] = []
    tracker = tracking(range(9), wake=lambda: wakes.append(1))
    tracker.nack(1, 1, NOW, 1.0)
    flush = tracker.flush(NOW, WALL)
    assert flush is not None
    wakes.clear()
    tracker.close()

    assert [tracker.ack(0), tracker.reject(2, 1), tracker.dead_lettered(2)] == [False] * 3
    assert tracker.ack_all([0, 1]) == tracker.ack_all(range(5)) == tracker.ack_cumulative(3) == 0
    assert tracker.nack(2, 1, NOW).kind is VerdictKind.IGNORED
    assert not tracker.extend(2, 1, NOW, 1.0)
    assert tracker.ignored == 13
    late = track(tracker, [20, 21], 22)
    assert (late.count, list(late.dropped)) == (0, [0, 1])
    message = make_run([3]).messages[0]
    message.index = 3
    assert list(tracker.handed_out([message], NOW)) == []
    tracker.flush_failed(flush)
    tracker.flushed(flush, Outcome.durable())
    assert (tracker.is_dirty, tracker.flush(NOW, WALL, force=True), wakes) == (False, None, [])
    assert (tracker.unsettled, tracker.retrying, tracker.next_due()) == (0, 0, None)
    assert tracker.due(NOW + 9).ready == []
    tracker.restore(Checkpoint(5), NOW, WALL, durable=False)
    assert (tracker.is_dirty, wakes) == (False, [])


def test_closed_tracker_holds_no_message() -> None:
    """Neither retries nor timeouts keep a message alive after the end."""

    class Item:
        """Something that can be watched."""

    item = Item()
    watch = weakref.ref(item)
    tracker = tracking(range(2))
    tracker.nack(0, 1, NOW, 1.0, item)
    del item
    assert watch() is not None

    tracker.close()
    gc.collect()
    assert watch() is None


def test_explanation_names_the_record_that_pins_the_watermark() -> None:
    """Position, state, failures and age of the first unsettled record."""
    tracker = tracking(range(3))
    track(tracker, range(3, 6), now=NOW + 10)
    tracker.ack_all(range(4))
    tracker.nack(4, 1, NOW + 10, 5.0)

    explained = tracker.explain(NOW + 12)
    assert (explained.watermark, explained.pinned_by, explained.state) == (3, 4, "retrying")
    assert (explained.attempts, explained.age, explained.unsettled) == (1, 2.0, 2)
    assert (explained.flush_number, explained.durable_number) == (1, 0)
    assert tracker.explain(NOW).dead_lettering == 0
    tracker.ack_all([4, 5])
    assert (tracker.explain(NOW).pinned_by, tracker.explain(NOW).state) == (None, None)


def test_flush_without_ranges_carries_the_position_and_leaves_receipts_above_a_hole_open() -> None:
    """Where a broker keeps a position alone, a flush is no dearer for its holes."""
    tracker = WatermarkTracker(ASSIGNMENT, keeps_ranges=False, chunk_bits=1)
    tracker.track(Run(ASSIGNMENT, [Message.make(ASSIGNMENT, at, b"") for at in range(7)]), NOW)
    for index in (0, 1, 2, 4, 6):
        tracker.ack(index)
    flush = tracker.flush(0.0, 0.0, force=True)
    assert flush is not None
    assert flush.checkpoint == Checkpoint(watermark=2, resume=3)
    tracker.flushed(flush, Outcome.durable())
    assert tracker.durable_number == 0
    tracker.ack(3)
    tracker.ack(5)
    flush = tracker.flush(0.0, 0.0, force=True)
    assert flush is not None
    assert flush.checkpoint.watermark == 6
    tracker.flushed(flush, Outcome.durable())
    assert tracker.durable_number == 2


def test_flush_without_ranges_of_a_prefix_alone_is_durable() -> None:
    """Nothing is settled above the first open record: nothing was left out."""
    tracker = tracking(range(5), keeps_ranges=False)
    tracker.ack_all(range(3))

    assert flush_durably(tracker) == Checkpoint(watermark=2, resume=3)
    assert tracker.durable_number == 1
