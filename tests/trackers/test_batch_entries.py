"""Records that share an entry: their index in it is part of the position, in both kinds.

Pulsar stores a producer's batch as one entry. A whole entry is redelivered when one of its records
is not acked, and an id that was rebuilt from text acks all of it. Kinesis' aggregates are alike.
"""

from __future__ import annotations

import pytest

from consumer_sdk.trackers import QueueTracker, WatermarkTracker
from tests.trackers.building import NOW, deliver, look, make_queue, make_tracker, send

ENTRY = [(4, 9, index) for index in range(5)]
EARLIER, LATER = (4, 8, 0), (4, 10, 0)

Tracker = QueueTracker | WatermarkTracker


@pytest.fixture(params=["queue", "log"])
def tracker(request: pytest.FixtureRequest) -> Tracker:
    """A tracker of each kind that names what was settled."""
    return make_queue() if request.param == "queue" else make_tracker(names_settled=True)


def test_four_of_five_records_of_an_entry_are_settled(tracker: Tracker) -> None:
    """Pulsar trap 11: four are named, and the fifth alone is open, fails and comes again."""
    deliver(tracker, ENTRY)
    tracker.ack_all([0, 1, 3, 4])
    tracker.nack(2, 1, NOW, 1.0, "the fifth")

    assert [position for position, _ in send(tracker)] == [ENTRY[at] for at in (0, 1, 3, 4)]
    assert tracker.explain(NOW).pinned_by == ENTRY[2]
    assert tracker.due(NOW + 1).ready == [(2, 2, "the fifth")]


def test_redelivered_entry_brings_only_its_open_record(tracker: Tracker) -> None:
    """The broker sends all five: the settled are acked again by handles of the same delivery."""
    deliver(tracker, ENTRY)
    tracker.ack_all([0, 1, 3, 4])
    send(tracker)

    tracked = deliver(tracker, [*ENTRY, LATER], "second")
    assert (tracked.first, tracked.count, tracker.unsettled) == (5, 1, 2)
    assert len(tracked.dropped) + len(tracked.known) == 5
    assert send(tracker) == [(ENTRY[at], f"second {ENTRY[at]}") for at in (0, 1, 3, 4)]
    tracker.ack(2)
    assert send(tracker) == [(ENTRY[2], f"second {ENTRY[2]}")]


def test_cumulative_ack_inside_an_entry_spares_the_rest_of_it(tracker: Tracker) -> None:
    """Pulsar trap 14: up to the third record, and not the entry."""
    deliver(tracker, [EARLIER, *ENTRY])

    assert tracker.ack_cumulative(3) == 4
    assert [position for position, _ in send(tracker)] == [EARLIER, *ENTRY[:3]]
    assert tracker.unsettled == 2


@pytest.mark.parametrize("size", [2, 63, 64, 65, 1000])
def test_entry_of_any_size_is_settled_record_by_record(size: int) -> None:
    """Pulsar trap 13: no word of a bit set has an edge here."""
    queue = make_queue()
    deliver(queue, [(1, 0, index) for index in range(size)])
    queue.ack_all(range(size - 1))

    assert len(send(queue)) == size - 1
    assert queue.explain(NOW).pinned_by == (1, 0, size - 1)


def test_log_checkpoint_ends_inside_an_entry() -> None:
    """A restart brings the entry again, and delivers what was open of it."""
    log = make_tracker()
    deliver(log, ENTRY)
    log.ack_all([0, 1, 3])
    checkpoint = look(log)
    assert (checkpoint.watermark, checkpoint.resume) == (ENTRY[1], ENTRY[2])

    restarted = make_tracker()
    restarted.restore(checkpoint, NOW, 0.0, durable=True)
    tracked = deliver(restarted, ENTRY)
    assert (list(tracked.dropped), list(tracked.settled)) == ([0, 1], [1])
    assert restarted.unsettled == 2
