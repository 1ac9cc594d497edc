"""What a broker that redelivers had not delivered is never taken for settled."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from consumer_sdk.adapters.pulsar.client.ids import gaps as pulsar_gaps
from consumer_sdk.checkpoints.positions import LAST_BATCH_INDEX
from consumer_sdk.errors import CheckpointFormatError
from consumer_sdk.records import Arrival, Checkpoint, Outcome, Position
from consumer_sdk.trackers import RetryPolicy, WatermarkTracker
from consumer_sdk.trackers.unseen import MOST_KEPT, MOST_STORED
from tests.trackers.building import make_tracker
from tests.trackers.codec import decode, decode_bytes, encode, encode_bytes
from tests.trackers.driver import messages_at

NOW, WALL = 0.0, 1_700_000_000.0


def next_number(positions: Sequence[Position]) -> list[int]:
    """Whole numbers, of which none may be missing."""
    pairs = enumerate(pairwise(positions), 1)
    return [at for at, (one, other) in pairs if other > one + 1]


def tracker_of(checkpoint: Checkpoint | None = None, **options: Any) -> WatermarkTracker:
    """Of a broker that redelivers, with whole numbers for positions."""
    tracker = make_tracker(names_settled=True, gaps=next_number, **options)
    if checkpoint is not None:
        tracker.restore(checkpoint, NOW, WALL, durable=True)
    return tracker


def deliver(tracker: WatermarkTracker, *numbers: float) -> dict[Any, int]:
    """Tracks a run; number → index of what is to be handed out."""
    run = messages_at(numbers)
    for message in run.messages:
        message.native = f"native {message.position}"
    tracked = tracker.track(run, NOW)
    arrivals = tracked.arrivals(tracked.bind(run.messages))
    return {m.position: m.index for m, arrival in arrivals if arrival is Arrival.DELIVER}


def durable(tracker: WatermarkTracker) -> tuple[Checkpoint, dict[int, str]]:
    """Flushes: the checkpoint as a restart reads it, and what the broker was told."""
    flush = tracker.flush(NOW, WALL, force=True)
    assert flush is not None
    tracker.flushed(flush, Outcome.durable())
    text, covered = encode(flush.checkpoint, 1_000_000)
    assert covered is None
    return decode(text), dict(flush.settled)


def test_record_below_the_last_one_that_nobody_was_handed_is_delivered_late() -> None:
    """It is named for the broker once it is acked, and not before."""
    tracker = tracker_of()
    tracker.ack_all(list(deliver(tracker, 1, 2, 5).values()))
    late = deliver(tracker, 3)
    assert list(late) == [3]
    assert set(durable(tracker)[1]) == {1, 2, 5}
    assert deliver(tracker, 3) == {}
    tracker.ack(late[3])
    assert set(durable(tracker)[1]) == {3}


def test_restart_delivers_what_was_never_handed_out_and_nothing_else() -> None:
    """The checkpoint's watermark lies above it."""
    tracker = tracker_of()
    tracker.ack_all(list(deliver(tracker, 1, 2, 5, 6).values()))
    checkpoint, _ = durable(tracker)
    assert (checkpoint.watermark, checkpoint.unseen) == (6, ((None, 1), (2, 5)))
    assert [checkpoint.is_settled(n) for n in (0, 2, 3, 4, 5)] == [False, True, False, False, True]
    again = tracker_of(checkpoint)
    assert list(deliver(again, 0, 1, 2, 3, 4, 5, 6, 7)) == [0, 3, 4, 7]


def test_unseen_record_inside_a_restored_range_is_delivered() -> None:
    """Also where fetching comes to it in order."""
    tracker = tracker_of()
    indices = deliver(tracker, 1, 2, 4, 5)
    tracker.ack_all([indices[2], indices[4]])
    checkpoint, _ = durable(tracker)
    assert checkpoint.ranges == ((2, 4),)
    again = tracker_of(checkpoint)
    got = deliver(again, 1, 2, 3, 4, 5)
    assert list(got) == [1, 3, 5]
    again.ack_all([got[1], got[5]])
    assert not durable(again)[0].is_settled(3)
    again.ack(got[3])
    assert durable(again)[0].unseen == ((None, 1), (3, 4))


def test_watermark_and_resume_while_a_late_record_is_open() -> None:
    """The watermark stays, and a reader by position would begin at the late record."""
    tracker = tracker_of()
    tracker.ack_all(list(deliver(tracker, 1, 2, 5).values()))
    late = deliver(tracker, 3)
    tracker.ack_all(list(deliver(tracker, 6, 7).values()))
    checkpoint, _ = durable(tracker)
    assert (checkpoint.watermark, checkpoint.resume) == (7, 3)
    assert tracker.unsettled == 1
    tracker.ack(late[3])
    checkpoint, _ = durable(tracker)
    assert (checkpoint.watermark, checkpoint.unseen) == (7, ((None, 1), (3, 5)))


def test_cumulative_ack_settles_late_records_that_were_handed_out_before() -> None:
    """By arrival, as of all others."""
    tracker = tracker_of(chunk_bits=1)
    deliver(tracker, 1, 2, 5)
    late = deliver(tracker, 3)
    newest = deliver(tracker, 6, 7, 8)
    assert tracker.ack_cumulative(late[3]) == 4
    assert tracker.ack_cumulative(newest[7]) == 2
    assert set(durable(tracker)[1]) == {1, 2, 3, 5, 6, 7}


def test_late_record_is_retried_and_dead_lettered_as_any_other() -> None:
    """Its index is one of the window's."""
    tracker = tracker_of()
    deliver(tracker, 1, 5)
    index = deliver(tracker, 3)[3]
    tracker.nack(index, 1, NOW, delay=0.0, item="late")
    assert [(i, attempt) for i, attempt, _ in tracker.due(NOW).ready] == [(index, 2)]
    assert tracker.reject(index, 2)
    assert tracker.dead_lettered(index)
    assert durable(tracker)[1] == {3: "native 3"}


def test_a_newer_delivery_of_a_late_record_in_flight_brings_its_handle() -> None:
    """The broker knows it by that one."""
    tracker = tracker_of()
    deliver(tracker, 1, 5)
    index = deliver(tracker, 3)[3]
    run = messages_at([3])
    run.messages[0].native = "newer"
    assert list(tracker.track(run, NOW).dropped) == [0]
    tracker.ack(index)
    assert durable(tracker)[1] == {3: "newer"}


def test_intervals_are_bounded_and_what_is_forgotten_is_delivered_again() -> None:
    """Rather twice than never."""
    tracker = tracker_of()
    numbers = range(0, 4 * MOST_KEPT, 2)
    tracker.ack_all(list(deliver(tracker, *numbers).values()))
    assert deliver(tracker, numbers[-1]) == {}
    assert list(deliver(tracker, 0)) == [0]
    checkpoint, _ = durable(tracker)
    assert len(checkpoint.unseen) == MOST_STORED
    again = tracker_of(checkpoint)
    assert list(deliver(again, numbers[0], numbers[-1])) == [numbers[0]]


def test_without_knowledge_of_gaps_there_may_be_one_everywhere() -> None:
    """What is not known is no reason to lose a record."""
    tracker = make_tracker(names_settled=True)
    tracker.ack_all(list(deliver(tracker, 1, 2).values()))
    assert list(deliver(tracker, 1, 2)) == []
    assert list(deliver(tracker, 1.5)) == [1.5]


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.campaign) for seed in range(6, 200))]
)
def test_no_record_is_lost_or_repeated_whatever_the_broker_withholds(seed: int) -> None:
    """A record is handed out in an epoch until it is settled, and never after that."""
    rng = random.Random(seed)
    bits = rng.randint(1, 4)
    settled: set[int] = set()  # durable
    told: set[int] = set()  # the broker does not deliver it again, unless it was killed
    checkpoint: Checkpoint | None = None
    end = 0
    for _ in range(6):
        tracker = tracker_of(checkpoint, chunk_bits=bits)
        open_: dict[int, int] = {}
        done = set(settled)
        withheld: set[int] = set()
        for _ in range(rng.randint(1, 8)):
            end += rng.choice([0, 3, 10, 40])
            withheld = {n for n in range(end) if rng.random() < rng.choice([0.0, 0.1, 0.9])}
            if rng.random() < 0.3:
                told = {n for n in told if rng.random() < 0.7}
            sent = [n for n in range(end) if n not in told | withheld]
            while sent:
                count = rng.choice([1, 7, 50])
                part, sent = sent[:count], sent[count:]
                got = deliver(tracker, *part)
                assert set(got) == set(part) - done - set(open_)
                open_ |= got
                acked = [n for n in open_ if rng.random() < 0.6]
                tracker.ack_all([open_.pop(n) for n in acked])
                done |= set(acked)
                if rng.random() < 0.5 and tracker.is_dirty:
                    checkpoint, names = durable(tracker)
                    settled = {n for n in range(end) if checkpoint.is_settled(n)}
                    told |= set(names)
                    assert set(names) | settled <= done
    tracker = tracker_of(checkpoint, chunk_bits=bits)
    left = set(range(end)) - told
    assert set(deliver(tracker, *sorted(left))) == left - settled


def next_entry(places: Sequence[Position]) -> list[int]:
    """Entries of several records, which come whole."""
    pairs = enumerate(pairwise(places), 1)
    return [at for at, (one, other) in pairs if other[0] > one[0] + 1]


def test_open_record_of_a_late_entry_stays_unsettled_beside_its_settled_neighbours() -> None:
    """There is no room between them, and yet something that is open."""
    tracker = make_tracker(names_settled=True, gaps=next_entry)
    tracker.ack_all(list(deliver(tracker, (1, 0), (3, 0)).values()))  # type: ignore[arg-type]
    late = deliver(tracker, (2, 0), (2, 1), (2, 2), (2, 2))  # type: ignore[arg-type]
    tracker.ack(late[2, 1])
    checkpoint = tracker.checkpoint(NOW, WALL)
    settled = [checkpoint.is_settled((2, index)) for index in range(3)]
    assert settled == [False, True, False]
    tracker.ack_all([late[2, 0], late[2, 2]])
    checkpoint = tracker.checkpoint(NOW, WALL)
    assert all(checkpoint.is_settled((2, index)) for index in range(3))
    assert not checkpoint.is_settled((2, 3))


def test_checkpoint_gives_up_what_it_knows_of_the_lowest_to_fit() -> None:
    """With what was settled below: it may come again, and nothing is lost."""
    unseen = ((None, 1), *((n, n + 2) for n in range(10, 500, 2)))
    text, _ = encode(Checkpoint(600, 601, unseen=unseen), 1000)
    found = decode(text)
    assert len(text) <= 1000
    assert found.unseen[0][0] is None
    assert not found.is_settled(10)
    assert found.is_settled(498)
    assert (
        decode_bytes(encode_bytes(Checkpoint(600, 601, unseen=unseen), 1000)[0]).watermark is None
    )


def test_intervals_out_of_order_are_no_checkpoint() -> None:
    """Nobody has written that."""
    text, _ = encode(Checkpoint(9, 9, unseen=((5, 3),)), 1000)
    with pytest.raises(CheckpointFormatError, match="unseen positions out of order"):
        decode(text)


def test_watermark_below_all_that_a_checkpoint_knows_settles_nothing() -> None:
    """What was given up reaches above it."""
    tracker = tracker_of(Checkpoint(5, 6, ((8, 9), (20, 30)), unseen=((None, 25),)))
    assert list(deliver(tracker, 3, 8, 20, 26)) == [3, 8, 20]


def test_position_alone_is_stored_with_what_was_not_seen() -> None:
    """Its watermark passes over a late record that is open, and its intervals do not."""
    tracker = tracker_of(chunk_bits=2, keeps_ranges=False)
    tracker.ack_all(list(deliver(tracker, 1, 2, 5).values()))
    late = deliver(tracker, 3)
    tracker.ack_all(list(deliver(tracker, 6, 7, 8, 9, 10).values()))
    checkpoint, _ = durable(tracker)
    assert (checkpoint.watermark, checkpoint.resume) == (10, 3)
    assert not checkpoint.is_settled(3)
    tracker.ack(late[3])
    assert durable(tracker)[0].is_settled(3)


def test_prefix_reaches_the_end_of_a_restored_range_behind_late_records() -> None:
    """The range's last records are gone, and what came late is settled."""
    tracker = tracker_of(Checkpoint(5, 6, ((8, 12),), unseen=((1, 3),)))
    tracker.ack(deliver(tracker, 2, 8)[2])
    tracker.ack(deliver(tracker, 20)[20])
    assert durable(tracker)[0].watermark == 20


WHOLE = LAST_BATCH_INDEX


def pulsar_tracker(checkpoint: Checkpoint | None = None, **options: Any) -> WatermarkTracker:
    """With places of Pulsar for positions."""
    tracker = make_tracker(names_settled=True, gaps=pulsar_gaps, **options)
    if checkpoint is not None:
        tracker.restore(checkpoint, NOW, WALL, durable=True)
    return tracker


def deliver_places(tracker: WatermarkTracker, *places: tuple[int, int, int]) -> dict[Any, int]:
    """Like `deliver`."""
    return deliver(tracker, *places)  # type: ignore[arg-type]


def durable_places(tracker: WatermarkTracker) -> tuple[Checkpoint, list[Position]]:
    """Flushes: the checkpoint, and what the broker was told."""
    flush = tracker.flush(NOW, WALL, force=True)
    assert flush is not None
    tracker.flushed(flush, Outcome.durable())
    return flush.checkpoint, [position for position, _ in flush.settled]


@pytest.mark.parametrize("above", [[], [(1, 9, WHOLE)]])
@pytest.mark.parametrize("count", [2, 3])
def test_records_of_a_late_entry_settled_together_are_all_settled(
    above: list[tuple[int, int, int]], count: int
) -> None:
    """The highest of them, which came first, closes the interval below it."""
    tracker = pulsar_tracker()
    places = [(1, 4, WHOLE), (1, 6, WHOLE), *above]
    tracker.ack_all(list(deliver_places(tracker, *places).values()))
    late = deliver_places(tracker, (1, 5, count - 1))
    late |= deliver_places(tracker, *((1, 5, index) for index in range(count - 1)))
    tracker.ack_all(list(late.values()))
    flush = tracker.flush(NOW, WALL, force=True)
    assert flush is not None
    assert ((1, 5, count - 1), (1, 6, WHOLE)) in flush.checkpoint.unseen
    assert all(map(flush.checkpoint.is_settled, [*late, *places]))


def test_rest_of_an_entry_that_does_not_come_after_a_restart_is_not_settled() -> None:
    """A watermark lies in it, and its key is bad now."""
    tracker = pulsar_tracker()
    got = deliver_places(tracker, (1, 4, WHOLE), (1, 5, 0), (1, 5, 1), (1, 5, 2))
    tracker.ack_all([got[1, 4, WHOLE], got[1, 5, 0], got[1, 5, 1]])
    checkpoint, _ = durable_places(tracker)
    assert checkpoint.watermark == (1, 5, 1)
    for following in [[(1, 6, WHOLE)], [(1, 6, 0), (1, 6, 1)]]:
        again = pulsar_tracker(checkpoint)
        again.ack_all(list(deliver_places(again, *following).values()))
        assert not durable_places(again)[0].is_settled((1, 5, 2))
        assert list(deliver_places(again, (1, 5, 0), (1, 5, 1), (1, 5, 2))) == [(1, 5, 2)]


@pytest.mark.parametrize("is_cut", [False, True])
def test_rest_of_entries_in_which_a_restored_range_begins_and_ends(*, is_cut: bool) -> None:
    """Neither comes after the restart."""
    tracker = pulsar_tracker()
    places = [(1, 3, WHOLE), *((1, entry, index) for entry in (4, 5) for index in range(3))]
    got = deliver_places(tracker, *places)
    tracker.ack_all([got[place] for place in [(1, 4, 1), (1, 4, 2), (1, 5, 0), (1, 5, 1)]])
    checkpoint, _ = durable_places(tracker)
    again = pulsar_tracker(checkpoint)
    runs = [[(1, 3, WHOLE)], [(1, 6, WHOLE)]] if is_cut else [[(1, 3, WHOLE), (1, 6, WHOLE)]]
    for run in runs:
        again.ack_all(list(deliver_places(again, *run).values()))
    checkpoint, _ = durable_places(again)
    assert checkpoint.watermark == (1, 6, WHOLE)
    assert not any(map(checkpoint.is_settled, [(1, 4, 0), (1, 5, 2)]))
    assert list(deliver_places(again, *places)) == [(1, 4, 0), (1, 5, 2)]


@pytest.mark.parametrize("watermark", [None, 3])
@pytest.mark.parametrize("ranges", [(), ((5, 7), (9, 12))])
def test_checkpoint_of_an_earlier_release_does_not_tell_what_was_handed_out(
    watermark: int | None, ranges: tuple[tuple[int, int], ...]
) -> None:
    """What the broker still has is delivered, at most once more."""
    numbers = range(14)
    tracker = tracker_of(Checkpoint(watermark, 0, ranges))
    got = deliver(tracker, *numbers)
    assert set(numbers) - set(got) <= {watermark, 12}
    tracker.ack_all(list(got.values()))
    checkpoint, _ = durable(tracker)
    assert checkpoint.watermark == 13
    assert all(map(checkpoint.is_settled, numbers))
    assert deliver(tracker_of(checkpoint), *numbers) == {}


def test_failed_deliveries_of_a_late_record_survive_restarts() -> None:
    """Also of one in which it does not come again, and until it is settled."""
    policy = RetryPolicy(max_attempts=3)
    tracker = tracker_of(policy=policy)
    tracker.ack_all(list(deliver(tracker, 1, 5).values()))
    index = deliver(tracker, 3)[3]
    tracker.nack(index, 1, NOW, delay=0.0, item="late")
    assert tracker.due(NOW).ready == [(index, 2, "late")]
    for above in (6, 7):
        checkpoint, _ = durable(tracker)
        assert checkpoint.attempts == {3: (1, WALL)}
        tracker = tracker_of(checkpoint, policy=policy)
        tracker.ack(deliver(tracker, above)[above])
    run = messages_at([3])
    run.messages[0].native = "late"
    tracked = tracker.track(run, NOW)
    assert dict(tracked.tries) == {tracked.late[0]: 2}
    assert tracker.checkpoint(NOW, WALL).attempts == {3: (1, WALL)}
    tracker.ack(tracked.late[0])
    assert durable(tracker)[0].attempts == {}


def test_each_part_of_a_late_entry_is_delivered_once() -> None:
    """A run ends in it, and its first part is settled before the next comes."""
    tracker = pulsar_tracker()
    tracker.ack_all(list(deliver_places(tracker, (1, 4, WHOLE), (1, 6, WHOLE)).values()))
    for part in [(0, 1), (2, 3), (4, 5)]:
        places = [(1, 5, index) for index in part]
        got = deliver_places(tracker, *places)
        assert list(got) == places
        tracker.ack_all(list(got.values()))
        assert places[0] in durable_places(tracker)[1]


def test_intervals_of_late_records_are_bounded_too() -> None:
    """Each settled one of them leaves a part on both of its sides."""
    tracker = tracker_of()
    tracker.ack_all(list(deliver(tracker, 10 * MOST_KEPT).values()))
    late = deliver(tracker, *range(0, 10 * MOST_KEPT, 4))
    tracker.ack_all(list(late.values()))
    assert durable(tracker)[0].is_settled(10 * MOST_KEPT)
    assert list(deliver(tracker, 0, 10 * MOST_KEPT - 4)) == [0]
