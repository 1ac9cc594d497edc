"""The window: chunks that vanish, and chunks that forget positions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.records import Position
from consumer_sdk.records.ranges import Span
from consumer_sdk.trackers.chunks import DONE, OPEN
from consumer_sdk.trackers.window import Window, is_consecutive
from tests.trackers.building import NOW, deliver, look, make_tracker, settled, track, tracking


def kept(window: Window) -> int:
    """How many positions the window holds."""
    return sum(len(chunk.positions) for chunk in window.live())


@dataclass
class Plain:
    """A record of a window, in a list of all that there ever were."""

    index: int
    position: Position
    is_late: bool
    is_settled: bool = False


def mint(window: Window, records: list[Plain], count: int, *, is_late: bool) -> None:
    """Records above all others, or below what was seen of them."""
    top = max((record.position for record in records), default=0)
    positions = [-top - at if is_late else top + at for at in range(1, count + 1)]
    add = window.mint_late if is_late else window.mint
    first = add(positions, 8 * count, OPEN, NOW)
    records += [Plain(first + at, position, is_late) for at, position in enumerate(positions)]


def settle(window: Window, record: Plain) -> None:
    """As a tracker does it."""
    chunk = window.chunks[record.index >> window.bits]
    chunk.states[record.index & window.mask] = DONE
    chunk.left -= 1
    if not chunk.left:
        window.retire(chunk)
    record.is_settled = True


def plain_spans(records: list[Plain]) -> tuple[Position | None, list[Span]]:
    """Neighbours in arrival order join; the first span is the prefix."""
    spans: list[Span] = [(None, None)]
    is_joined = True
    for record in records:
        if record.is_settled and is_joined:
            spans[-1] = (spans[-1][0], record.position)
        elif record.is_settled:
            spans.append((record.position, record.position))
        is_joined = record.is_settled
    return spans[0][1], spans[1:]


def check_window(window: Window, records: list[Plain], first: int) -> None:
    """It says what plain loops say."""
    expected = plain_spans([record for record in records if not record.is_late])
    unsettled = [record.index for record in records if not record.is_settled]
    assert window.watermark() == expected[0]
    assert window.settled_spans() == expected
    assert window.watermark() == expected[0]
    assert window.first_unsettled() == min(unsettled, default=-1)
    assert window.unsettled == len(unsettled)
    assert window.count([OPEN], 0, window.minted) == len(unsettled)
    assert window.count([OPEN, DONE], first, window.minted) >= sum(i >= first for i in unsettled)
    assert window.count([OPEN], first, window.minted) == sum(i >= first for i in unsettled)


STEPS = st.one_of(
    st.tuples(st.just("mint"), st.integers(1, 40)),
    st.tuples(st.just("mint late"), st.integers(1, 6)),
    st.tuples(st.just("settle"), st.integers(0, 60)),
    st.tuples(st.just("settle all but"), st.sampled_from([0, 0, 1, 2])),
    st.tuples(st.just("thin out"), st.just(0)),
)


@given(st.integers(1, 6), st.lists(STEPS, max_size=20))
def test_window_says_what_plain_loops_say(bits: int, steps: list[tuple[str, int]]) -> None:
    """With chunks that are gone, thinned out or late, and with nothing unsettled at all."""
    window, records = Window(bits), list[Plain]()
    for name, number in steps:
        unsettled = [record for record in records if not record.is_settled]
        if name.startswith("mint"):
            mint(window, records, number, is_late=name == "mint late")
        elif name == "thin out":
            window.thin_out()
        elif name == "settle all but":
            for record in unsettled[number:]:
                settle(window, record)
        elif unsettled:
            settle(window, unsettled[number % len(unsettled)])
        check_window(window, records, number)


@pytest.mark.parametrize(
    "indices, expected",
    [
        (range(3, 9), True),
        ([3, 4, 5], True),
        ([7], True),
        ([], False),
        (range(3, 9, 2), False),
        (range(9, 3, -1), False),
        ([3, 5, 4], False),
        ([0, 7, 2], False),
        ([3, 3, 5], False),
    ],
)
def test_range_in_order_is_told_from_a_list(indices: range | list[int], *, expected: bool) -> None:
    """Both ends alone would take a jumbled list for a range."""
    assert is_consecutive(indices) is expected


def test_full_chunk_with_little_left_forgets_what_no_checkpoint_needs() -> None:
    """A flush after which one in 16 records is open keeps positions of the edges alone."""
    tracker = tracking(range(0, 640, 10), chunk_bits=6)
    tracker.ack_all([index for index in range(64) if index not in {20, 40, 41, 42}])
    assert kept(tracker._window) == 64

    assert settled(tracker) == (190, [(210, 390), (430, 630)])
    assert kept(tracker._window) == 10


def test_full_chunk_with_nothing_left_keeps_both_edges() -> None:
    """Also the only one there is: of thousands of partitions most have no other."""
    tracker = tracking(range(0, 640, 10), chunk_bits=6)
    tracker.ack_all(range(64))

    assert settled(tracker) == (630, [])
    assert kept(tracker._window) == 2


@pytest.mark.parametrize("order", [[20, 40, 41], [41, 40, 20], [40, 20, 41]])
def test_chunk_that_forgot_positions_tells_every_later_span(order: list[int]) -> None:
    """Whatever is settled next, its edges are known."""
    tracker = tracking(range(64), chunk_bits=6)
    open_ones = {20, 40, 41}
    tracker.ack_all([index for index in range(64) if index not in open_ones])
    settled(tracker)
    for index in order:
        tracker.ack(index)
        open_ones.discard(index)
        edges = [-1, *sorted(open_ones), 64]
        spans = [(a + 1, b - 1) for a, b in pairwise(edges) if b - a > 1]
        assert settled(tracker) == (spans[0][1], spans[1:])


def test_chunk_that_may_still_grow_forgets_nothing() -> None:
    """Only a full one: the rest has positions to come."""
    tracker = tracking(range(63), chunk_bits=6)
    tracker.ack_all(range(1, 63))
    settled(tracker)

    assert kept(tracker._window) == 63
    track(tracker, [63])
    assert settled(tracker) == (None, [(1, 62)])


def test_chunk_with_more_left_keeps_all_positions() -> None:
    """A dict of many would be larger than the list."""
    tracker = tracking(range(64), chunk_bits=6)
    tracker.ack_all(range(5, 64))
    settled(tracker)

    assert kept(tracker._window) == 64


def test_redelivered_record_is_found_in_a_chunk_that_forgot_positions() -> None:
    """Its handle is renewed; its settled neighbours, forgotten or not, are named again."""
    tracker = make_tracker(chunk_bits=6, names_settled=True)
    deliver(tracker, range(128))
    tracker.ack_all([index for index in range(128) if index not in {20, 100}])
    settled(tracker)
    deliver(tracker, range(128), "second")

    natives = [dict(enumerate(chunk.natives)) for chunk in tracker._window.live()]
    nothing = dict.fromkeys(range(64))
    assert natives == [nothing | {20: "second 20"}, nothing | {36: "second 100"}]


def test_settled_chunks_between_two_holes_are_one_span() -> None:
    """Unlinked chunks leave their span to the next one."""
    tracker = tracking(range(64), chunk_bits=2)
    tracker.ack_all([index for index in range(64) if index not in {2, 61}])

    assert settled(tracker) == (1, [(3, 60), (62, 63)])
    assert len(tracker._window.chunks) == 2


@pytest.mark.parametrize("first, second", [(5, 9), (9, 5)])
def test_chunk_settled_beside_a_gap_widens_it(first: int, second: int) -> None:
    """From either side."""
    tracker = tracking(range(16), chunk_bits=2)
    tracker.ack_all([index for index in range(4, 12) if index not in {first, second}])
    tracker.ack(first)
    tracker.ack(second)

    assert settled(tracker) == (None, [(4, 11)])
    assert len(tracker._window.chunks) == 2
    tracker.ack_all(range(12, 16))
    assert settled(tracker) == (None, [(4, 15)])


def test_age_is_that_of_the_run_that_brought_the_record() -> None:
    """Runs that come within a millisecond count as one; those later have their own time."""
    tracker = make_tracker(chunk_bits=4)
    track(tracker, range(3), now=NOW)
    track(tracker, range(3, 6), now=NOW + 0.0005)
    track(tracker, range(6, 9), now=NOW + 2)
    track(tracker, range(9, 20), now=NOW + 5)
    ages = []
    for index in (0, 3, 6, 9, 17):
        tracker.ack_cumulative(index - 1)
        ages.append(tracker.explain(NOW + 10).age)

    assert ages == [10.0, 10.0, 8.0, 5.0, 5.0]


def test_bytes_are_estimated_by_the_mean_of_a_chunk() -> None:
    """One size for each run: no entry for each record."""
    window = Window(bits=2)
    window.mint(range(2), 20, OPEN, 0.0)
    window.mint(range(2, 6), 400, OPEN, 0.0)
    assert window.unsettled_bytes == 420

    head = window.head
    head.states[0] = DONE
    head.left -= 1
    assert window.unsettled_bytes == 220 * 3 // 4 + 200


def test_unknown_and_settled_indices_have_states_too() -> None:
    """A stranger is free; what has left the window is done."""
    tracker = tracking(range(8))
    tracker.ack_all(range(4))
    window = tracker._window

    assert [window.state(index) for index in (-1, 0, 4, 8)] == [0, DONE, OPEN, 0]


def test_watermark_alone_looks_no_further_than_the_first_hole() -> None:
    """It is the one of the checkpoint, at every step."""
    tracker = tracking(range(40), chunk_bits=4)
    positions: list[Position | None] = []
    for index in (0, 1, 3, 2, *range(5, 40), 4):
        tracker.ack(index)
        positions.append(tracker._window.watermark())
        assert positions[-1] == look(tracker).watermark
    assert positions[:4] == [0, 1, 1, 3]
    assert positions[-2:] == [3, 39]
