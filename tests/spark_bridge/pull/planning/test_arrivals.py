"""Since when records wait, from the looks at the logs' ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.range_reads import PartitionRange
from consumer_sdk.records import Partition
from consumer_sdk.spark_bridge.pull.planning.ages import ArrivalTimes

P = Partition("orders", "0")


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=200))
def test_what_waits_is_never_older_than_said(steps: list[tuple[int, bool]]) -> None:
    """Each record came after the time that is told; nothing is told where nothing waits."""
    arrivals, came, read = ArrivalTimes(), list[float](), 0
    for now, (count, reads) in enumerate(steps):
        came += [now - 0.5] * count  # between this look and the last one
        arrivals.look({P: len(came)}, now)
        if reads:
            read += (len(came) - read + 1) // 2
        waiting = arrivals.waiting({P: read})
        if read == len(came):
            assert waiting == {}
        elif P in waiting:
            assert waiting[P] <= came[read]


def test_query_that_keeps_up_is_behind_since_it_was_at_the_end() -> None:
    """It had all of it at 10; what it has not came since then."""
    arrivals = ArrivalTimes()
    arrivals.look({P: 5}, 9.0)
    arrivals.look({P: 5}, 10.0)
    assert arrivals.waiting({P: 5}) == {}
    arrivals.look({P: 8}, 11.0)
    assert arrivals.waiting({P: 5}) == {P: 10.0}
    arrivals.look({P: 9}, 12.0)
    assert arrivals.waiting({P: 8}) == {P: 11.0}


def test_what_came_before_the_first_look_came_nobody_knows_when() -> None:
    """A query that begins far behind is not behind for as long as it has been running."""
    arrivals = ArrivalTimes()
    arrivals.look({P: 100}, 10.0)
    assert arrivals.waiting({P: 50}) == {}
    arrivals.look({P: 120}, 20.0)
    assert arrivals.waiting({P: 99}) == {}
    assert arrivals.waiting({P: 100}) == {P: 10.0}


def test_time_of_a_record_tells_where_no_look_does() -> None:
    """It is worth to know where nothing is known, and where two looks are far apart."""
    arrivals = ArrivalTimes()
    arrivals.look({P: 100}, 1000.0)
    assert arrivals.vague({P: 50}) == [PartitionRange(P, 50, 100)]
    arrivals.note(P, 50, 400.0)
    assert arrivals.waiting({P: 50}) == arrivals.waiting({P: 60}) == {P: 400.0}
    assert arrivals.vague({P: 50}) == []  # as good as it gets
    assert arrivals.vague({P: 60}) == [PartitionRange(P, 60, 100)]
    arrivals.note(P, 60, 990.0)
    assert arrivals.waiting({P: 70}) == {P: 990.0}
    assert arrivals.vague({P: 70}) == []
    assert arrivals.vague({P: 100}) == []


def test_times_that_producers_made_up_do_no_harm() -> None:
    """One is later than the look that has seen its record; one is of a record that is read by now."""
    arrivals = ArrivalTimes()
    arrivals.look({P: 100}, 1000.0)
    arrivals.note(P, 50, 5000.0)
    assert arrivals.waiting({P: 50}) == {P: 1000.0}
    arrivals.note(P, 100, 10.0)
    arrivals.note(Partition("gone", "0"), 1, 10.0)
    assert arrivals.waiting({P: 100}) == {}
    arrivals.look({P: 101}, 1001.0)
    assert arrivals.waiting({P: 100}) == {P: 1000.0}


def test_record_cannot_be_older_than_the_look_that_it_was_not_there_at() -> None:
    """A producer may give it the time of what it tells of, years ago."""
    arrivals = ArrivalTimes()
    arrivals.look({P: 100}, 1000.0)
    arrivals.look({P: 200}, 2000.0)
    assert arrivals.waiting({P: 150}) == {P: 1000.0}
    arrivals.note(P, 150, 3.0)
    assert arrivals.waiting({P: 150}) == {P: 1000.0}


def test_topic_that_is_made_anew_begins_anew() -> None:
    """And a partition that is gone is forgotten."""
    arrivals = ArrivalTimes()
    arrivals.look({P: 100}, 10.0)
    arrivals.look({P: 3}, 11.0)
    assert arrivals.waiting({P: 2}) == {}
    arrivals.look({}, 12.0)
    arrivals.look({P: 4}, 13.0)
    assert arrivals.waiting({P: 3}) == {}


def test_positions_need_be_no_numbers() -> None:
    """Pulsar's are tuples."""
    arrivals = ArrivalTimes()
    arrivals.look({P: (5, 3, -1)}, 10.0)
    arrivals.look({P: (5, 9, -1)}, 11.0)
    assert arrivals.waiting({P: (5, 3, -1)}) == {P: 10.0}


def test_query_that_never_catches_up_costs_no_memory() -> None:
    """Its looks get coarser, and the first one stays: it may be behind since then."""
    arrivals = ArrivalTimes()
    for now in range(1000):
        arrivals.look({P: now}, float(now))
    assert len(arrivals._looks[P]) <= 16
    assert arrivals.waiting({P: 0}) == {P: 0.0}
    assert arrivals.waiting({P: 998})[P] <= 998.0
