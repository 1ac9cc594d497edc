"""How far the next micro-batch goes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.records import Partition
from consumer_sdk.spark_bridge.pull.planning.admission import (
    Admitted,
    Limit,
    Limits,
    Whole,
    admit,
    stops,
)

A, B, C = (Partition("t", str(number)) for number in range(3))
ALL, NOTHING = Whole.ALL, Whole.NOTHING

backlogs = st.dictionaries(
    st.builds(Partition, st.just("t"), st.integers(0, 9).map(str)), st.integers(0, 10**12)
)


def admitted(
    backlog: dict[Partition, int],
    limits: Limits,
    *,
    waited: float = math.inf,
    is_final: bool = False,
    sizes: dict[Partition, float] | None = None,
) -> Admitted:
    """What Spark's usual trigger gets: it hands our own limit back."""
    limit = limits.default_limit
    return admit(backlog, limits, limit, waited=waited, is_final=is_final, sizes=sizes)


def taken(backlog: dict[Partition, int], answer: Admitted) -> dict[Partition, int]:
    """In numbers."""
    if answer is NOTHING:
        return {}
    return backlog if isinstance(answer, Whole) else dict(answer)


@given(backlogs, st.integers(1, 10**9))
def test_a_batch_keeps_to_the_limit(backlog: dict[Partition, int], most: int) -> None:
    """Beyond it are only single records of partitions with little; and no more than there is."""
    take = taken(backlog, admitted(backlog, Limits(max_records=most)))
    assert sum(count for count in take.values() if count > 1) <= most
    assert sum(take.values()) < most + max(1, len(take))
    assert all(0 <= count <= backlog[partition] for partition, count in take.items())


@given(backlogs, st.integers(1, 10**9))
def test_no_partition_starves(backlog: dict[Partition, int], most: int) -> None:
    """Every partition with a backlog advances with every batch."""
    take = taken(backlog, admitted(backlog, Limits(max_records=most)))
    assert all(take[partition] >= 1 for partition, count in backlog.items() if count)


@given(st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 500)), st.integers(1, 50))
def test_a_backlog_is_worked_off(backlog: dict[Partition, int], most: int) -> None:
    """Batch by batch to nothing, in about as many batches as the limit asks for."""
    left = dict(backlog)
    for _ in range(2 * sum(backlog.values()) // most + 3):
        take = taken(left, admitted(left, Limits(max_records=most)))
        left = {partition: count - take.get(partition, 0) for partition, count in left.items()}
    assert not any(left.values())


def test_a_limit_is_shared_out_in_proportion() -> None:
    """A tenth of the records is a tenth of the batch; a thousandth is one record."""
    take = admitted({A: 9000, B: 999, C: 1}, Limits(max_records=100))
    assert take == {A: 90, B: 10, C: 1}


def test_a_backlog_of_whole_batches_leaves_no_rest() -> None:
    """Five times the limit waits: five batches, and no sixth of the few that rounding has left over."""
    left = {A: 1667, B: 1666, C: 1667}
    for _ in range(5):
        take = taken(left, admitted(left, Limits(max_records=1000)))
        assert sum(take.values()) == 1000
        left = {partition: count - take.get(partition, 0) for partition, count in left.items()}
    assert not any(left.values())


def test_what_fits_is_taken_whole() -> None:
    """Without rounding anything."""
    assert admitted({A: 60, B: 40}, Limits(max_records=100)) is ALL
    assert admitted({A: 60, B: 41}, Limits(max_records=100)) == {A: 59, B: 41}


def test_a_partition_without_a_backlog_takes_no_part() -> None:
    """Nor does one whose log has become shorter."""
    assert admitted({A: 500, B: 0, C: -70}, Limits(max_records=100)) == {A: 100}


def test_too_little_is_waited_for() -> None:
    """minOffsetsPerTrigger, until maxTriggerDelay has passed since the last batch."""
    limits = Limits(min_records=100, max_delay=60)
    assert admitted({A: 99}, limits, waited=59.9) is NOTHING
    assert admitted({A: 99}, limits, waited=60) is ALL
    assert admitted({A: 100}, limits, waited=0) is ALL


def test_the_first_batch_waits_for_nothing() -> None:
    """As in Spark: nobody knows how long its records have waited."""
    assert admitted({A: 1}, Limits(min_records=100)) is ALL


def test_the_last_batches_of_available_now_wait_for_nothing() -> None:
    """No more will come: else the rest would be left unread."""
    assert admitted({A: 1}, Limits(min_records=100), waited=0, is_final=True) is ALL


def test_both_limits_hold_together() -> None:
    """At least 100, at most 200."""
    limits = Limits(max_records=200, min_records=100)
    assert admitted({A: 99}, limits, waited=0) is NOTHING
    assert admitted({A: 150}, limits, waited=0) is ALL
    assert admitted({A: 1000}, limits, waited=0) == {A: 200}


def test_read_all_available_knows_no_limits() -> None:
    """Trigger.Once: the engine demands it."""
    limits = Limits(max_records=5, min_records=10**6, max_bytes=1)
    assert admit({A: 100}, limits, Limit("all"), waited=0) is ALL


def test_sparks_own_limit_counts_too() -> None:
    """Whichever is tighter."""
    assert admit({A: 100}, Limits(), Limit("max_rows", 7), waited=0) == {A: 7}
    assert admit({A: 100}, Limits(max_records=5), Limit("max_rows", 7), waited=0) == {A: 5}
    assert admit({A: 100}, Limits(), Limit("min_rows", 101), waited=0) is NOTHING
    assert admit({A: 100}, Limits(), Limit("max_files", 1), waited=0) is ALL


def test_bytes_become_records() -> None:
    """By the mean size of what waits; who cannot tell is like the others."""
    limits = Limits(max_bytes=10_000)
    assert admitted({A: 100, B: 100}, limits, sizes={A: 100.0, B: 300.0}) == {A: 25, B: 25}
    assert admitted({A: 100, B: 100}, limits, sizes={A: 100.0}) == {A: 50, B: 50}
    assert admitted({A: 100}, limits, sizes={}) == {A: 9}


def test_a_record_larger_than_the_limit_is_read() -> None:
    """One at a time, rather than never."""
    assert admitted({A: 3}, Limits(max_bytes=10), sizes={A: 1e6}) == {A: 1}


@pytest.mark.parametrize(
    "limits, limit",
    [
        (Limits(), Limit("all")),
        (Limits(max_records=5, min_records=2), Limit("max_rows", 5)),
        (Limits(min_records=2), Limit("min_rows", 2)),
        (Limits(max_bytes=9, min_records=2), Limit("max_bytes", 9)),
    ],
)
def test_spark_is_told_that_there_are_limits(limits: Limits, limit: Limit) -> None:
    """Only what is not "all" tells the two kinds of trigger apart."""
    assert limits.default_limit == limit


def test_stops_are_the_latest_positions() -> None:
    """Of partitions that have a start and are still there."""
    assert stops({A: 1, B: 2}, {A: 9, C: 5}) == {A: 9}


def test_available_now_ends_where_the_run_began() -> None:
    """Never beyond the frozen targets, never back, and not into partitions that are newer."""
    starts, latest = {A: 5, B: 5, C: 0}, {A: 100, B: 100, C: 100}
    assert stops(starts, latest, {A: 50, B: 3}) == {A: 50, B: 5, C: 0}
    assert stops({A: 5}, {A: 40}, {A: 50}) == {A: 40}


def test_a_log_that_shrank_is_not_hidden() -> None:
    """Trap 11: a topic made again ends below the start; the plan has to see that."""
    assert stops({A: 50}, {A: 7}) == {A: 7}
    assert stops({A: 50}, {A: 7}, {A: 60}) == {A: 7}


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
def test_available_now_comes_to_an_end(start: int, latest: int, target: int) -> None:
    """What was read up to a stop has that stop: the engine sees no news, and is done."""
    first = stops({A: start}, {A: latest}, {A: target})
    assert stops(first, {A: latest}, {A: target}) == first
