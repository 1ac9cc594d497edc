"""The peers of the tracker benchmark do the same work as ours."""

from __future__ import annotations

from itertools import count

import pytest

from benchmarks.trackers.ours import Driven, OurQueue, Ours, OursWithTimeouts
from benchmarks.trackers.peers import PEERS, SortedSets
from benchmarks.trackers.runs import make_run, scatter

WINDOW, RUN = 40, 10
ALL = PEERS | {"timeouts": OursWithTimeouts}


def drive(peer: Driven) -> list[bool]:
    """Tracks and acks in a small window, with a duplicate of each ack; what they returned."""
    answers = []
    for first in range(0, WINDOW, RUN):
        peer.track(make_run(first, RUN))
    for first, acks in zip(count(WINDOW, RUN), scatter(WINDOW, 20 * RUN, RUN), strict=False):
        peer.track(make_run(first, RUN))
        answers += [peer.ack(index) for index in acks + acks]
        peer.flush()
    return answers


@pytest.mark.parametrize("name", ALL)
def test_random_acks_settle_each_record_once(name: str) -> None:
    """Every structure takes each ack once and notices the duplicate."""
    assert drive(ALL[name]()) == ([True] * RUN + [False] * RUN) * 20


@pytest.mark.parametrize("name", [name for name in PEERS if name != "ours"])
def test_random_acks_leave_peer_with_our_watermark(name: str) -> None:
    """Every structure finds the same watermark."""
    ours, peer = Ours(), PEERS[name]()
    drive(ours)
    drive(peer)
    assert vars(peer)["watermark"] == ours.tracker.checkpoint(0.0, 0.0).watermark


def test_sorted_sets_flush_forgets_what_lies_below_the_watermark() -> None:
    """The rival does not grow with what it has committed."""
    peer = SortedSets()
    peer.track(make_run(0, 10))
    for index in (0, 1, 2, 5):
        peer.ack(index)
    peer.flush()
    assert (peer.watermark, list(peer.acked)) == (2, [5])


def test_queue_flushes_as_soon_as_a_thousand_records_are_settled() -> None:
    """The queue of the benchmark flushes by count."""
    queue = OurQueue()
    queue.track(make_run(0, 1_500))
    for index in range(1_500):
        queue.ack(index)
    assert queue.tracker.durable_number == 1
