"""The acked runs of kinesis-storm-spout's InflightRecordTracker, and orders of acks.

Its article has a table: what becomes of an acked record and of the checkpoint, by the state of the
records before and after it. Here a run is a range, and the checkpoint is the watermark.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from consumer_sdk.records import Position
from tests.trackers.building import look, settled, tracking

ACKED, WAITING, ABSENT = "acked", "waiting", "absent"
Ranges = list[tuple[Position, Position]]


@pytest.mark.parametrize("chunk_bits", [1, 2, 10])
@pytest.mark.parametrize(
    "before, after, watermark, ranges",
    [
        (ACKED, ACKED, None, [("before", "after")]),
        (ACKED, WAITING, None, [("before", "sent")]),
        (ACKED, ABSENT, None, [("before", "sent")]),
        (WAITING, ACKED, None, [("sent", "after")]),
        (WAITING, WAITING, None, [("sent", "sent")]),
        (WAITING, ABSENT, None, [("sent", "sent")]),
        (ABSENT, ACKED, "after", []),
        (ABSENT, WAITING, "sent", []),
        (ABSENT, ABSENT, "sent", []),
    ],
)
def test_acked_record_joins_its_neighbours_or_moves_the_watermark(
    before: str,
    after: str,
    watermark: str | None,
    ranges: list[tuple[str, str]],
    chunk_bits: int,
) -> None:
    """InflightRecordTracker's nine cases, by the predecessor's and the successor's state."""
    # An acked predecessor has a waiting one before it: else the checkpoint would be at it.
    names = ["first"] * (before == ACKED) + ["before"] * (before != ABSENT)
    names += ["sent"] + ["after"] * (after != ABSENT)
    at = {name: 10 * index for index, name in enumerate(names)}
    tracker = tracking(at.values(), chunk_bits=chunk_bits)
    for name, state in (("before", before), ("after", after)):
        if state == ACKED:
            tracker.ack(names.index(name))

    assert tracker.ack(names.index("sent"))
    expected: Ranges = [(at[first], at[last]) for first, last in ranges]
    assert settled(tracker) == (None if watermark is None else at[watermark], expected)


def in_window(rng: random.Random, count: int, window: int) -> list[int]:
    """An order in which no record is acked more than ``window`` records too early."""
    waiting, order = list(range(window)), []
    for following in range(window, count):
        at = rng.randrange(window)
        order.append(waiting[at])
        waiting[at] = following
    rng.shuffle(waiting)
    return order + waiting


ORDERS: dict[str, Callable[[random.Random, int], list[int]]] = {
    "reverse": lambda _, count: list(reversed(range(count))),
    "random": lambda rng, count: rng.sample(range(count), count),
    "window": lambda rng, count: in_window(rng, count, 10_000),
}


@pytest.mark.parametrize("order", ORDERS)
def test_order_of_acks_does_not_matter(order: str) -> None:
    """Kinesis trap 1: the checkpoint is the last contiguous record, and memory goes with gaps."""
    count = 20_000
    tracker = tracking(range(count), chunk_bits=6)
    contiguous, acked = 0, bytearray(count + 1)
    for number, index in enumerate(ORDERS[order](random.Random(1), count)):
        assert tracker.ack(index)
        acked[index] = 1
        contiguous = acked.index(0, contiguous)
        if number % 1000 == 0:
            assert look(tracker).watermark == (contiguous - 1 if contiguous else None)
            live = {at >> 6 for at in range(count) if not acked[at]} | {(count - 1) >> 6}
            assert tracker._window.chunks.keys() == live
    assert settled(tracker) == (count - 1, [])
    assert len(tracker._window.chunks) == 1
