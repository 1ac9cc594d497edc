"""Which Spark task reads what."""

from __future__ import annotations

import random
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.range_reads import PartitionRange
from consumer_sdk.records import Partition
from consumer_sdk.spark_bridge.errors import DataLossError
from consumer_sdk.spark_bridge.pull.planning.tasks import (
    TASK_RECORDS,
    ReadableRanges,
    Sizing,
    cut_sizes,
    pack,
    parts_wanted,
    readable_ranges,
)

A, B, C = (Partition("t", str(number)) for number in range(3))

sizings = st.builds(
    Sizing,
    st.none() | st.integers(1, 20),
    st.none() | st.integers(1, 10**6),
    st.none() | st.integers(1, 20),
)
counts = st.lists(st.integers(1, 200_000), min_size=1, max_size=12)


def ranges_of(counts: list[int]) -> list[PartitionRange]:
    """One range of each length, of partitions of its own."""
    return [
        PartitionRange(Partition("t", str(n)), 10, 10 + count) for n, count in enumerate(counts)
    ]


def cut(each: PartitionRange, parts: int) -> list[PartitionRange]:
    """As the I/O half does it, with a reader of integer positions."""
    bounds = [each.start, *cut_sizes(each.stop - each.start, parts)]
    lows = list(accumulate(bounds))
    highs = [*lows[1:], each.stop]
    return [PartitionRange(each.partition, *pair) for pair in zip(lows, highs, strict=True)]


def planned(counts: list[int], sizing: Sizing) -> list[list[PartitionRange]]:
    """All three steps."""
    ranges = ranges_of(counts)
    records = {each.partition: each.stop - each.start for each in ranges}
    wanted = parts_wanted(ranges, records, sizing)
    parts = [part for each, n in zip(ranges, wanted, strict=True) for part in cut(each, n)]
    return pack([(part, part.stop - part.start) for part in parts], sizing)


def size(task: list[PartitionRange]) -> int:
    """Records."""
    return sum(each.stop - each.start for each in task)


small_counts = st.lists(st.integers(1, 500), min_size=1, max_size=12)
small_sizings = st.builds(
    Sizing,
    st.none() | st.integers(1, 20),
    st.none() | st.integers(1, 300),
    st.none() | st.integers(1, 20),
)


@given(small_counts, small_sizings)
def test_a_plan_covers_each_record_exactly_once(counts: list[int], sizing: Sizing) -> None:
    """Whatever is cut and packed, nothing is left out, read twice or empty."""
    tasks = planned(counts, sizing)
    places = [(r.partition, n) for task in tasks for r in task for n in range(r.start, r.stop)]
    wanted = [(r.partition, n) for r in ranges_of(counts) for n in range(r.start, r.stop)]
    assert sorted(places) == sorted(wanted)
    assert all(size(task) for task in tasks)


@given(small_counts, small_sizings)
def test_there_are_at_least_the_tasks_that_were_asked_for(
    counts: list[int], sizing: Sizing
) -> None:
    """The option minPartitions holds, if there are as many records."""
    assert len(planned(counts, sizing)) >= min(sizing.min_tasks or 1, sum(counts))


@given(small_counts, small_sizings)
def test_no_task_is_larger_than_was_asked_for(counts: list[int], sizing: Sizing) -> None:
    """The option maxRecordsPerPartition holds, whatever else is asked for."""
    assert all(size(task) <= (sizing.max_records or 10**9) for task in planned(counts, sizing))


@given(counts, st.integers(1, 20))
def test_there_are_at_most_the_tasks_that_were_asked_for(counts: list[int], most: int) -> None:
    """``tasks`` holds where nothing asks for more."""
    assert len(planned(counts, Sizing(tasks=most))) <= most


@given(counts, sizings, st.integers())
def test_equal_ranges_make_equal_plans(counts: list[int], sizing: Sizing, seed: int) -> None:
    """In whichever order the reader has answered."""
    parts = [(each, each.stop - each.start) for each in ranges_of(counts)]
    shuffled = random.Random(seed).sample(parts, len(parts))
    assert pack(shuffled, sizing) == pack(parts, sizing)


@given(counts, st.integers(1, 8))
def test_tasks_are_about_equally_large(counts: list[int], most: int) -> None:
    """Graham's bound for equal machines: at most 4/3 of the best, which is at least these two."""
    tasks = planned(counts, Sizing(tasks=most))
    best = max(sum(counts) / len(tasks), *counts, 0)
    if len(counts) > len(tasks):
        second = sorted(counts, reverse=True)
        best = max(best, second[len(tasks) - 1] + second[len(tasks)])
    assert max(map(size, tasks)) <= best * 4 / 3


@pytest.mark.parametrize(
    "counts, tasks",
    [
        ([1] * 48, 1),
        ([TASK_RECORDS], 1),
        ([TASK_RECORDS // 2] * 4, 2),
        ([TASK_RECORDS, 1], 2),
        ([TASK_RECORDS * 10] * 3, 3),
        ([], 0),
    ],
)
def test_small_ranges_share_a_task(counts: list[int], tasks: int) -> None:
    """A task costs about 20 ms: it has to be worth it, and is never empty."""
    assert len(planned(counts, Sizing())) == tasks


def test_large_ranges_are_cut_where_tasks_are_asked_for() -> None:
    """The largest first; the small ones stay whole."""
    ranges = ranges_of([900, 100, 2])
    records = {each.partition: each.stop - each.start for each in ranges}
    assert parts_wanted(ranges, records, Sizing(min_tasks=6)) == [4, 1, 1]
    assert parts_wanted(ranges, records, Sizing(max_records=300)) == [3, 1, 1]
    assert parts_wanted(ranges, records, Sizing(tasks=6)) == [1, 1, 1]


@given(st.integers(1, 10**9), st.integers(1, 50))
def test_parts_differ_by_one_record_at_most(records: int, parts: int) -> None:
    """The last one, which takes what is left, is no larger."""
    parts = min(records, parts)
    sizes = cut_sizes(records, parts)
    sizes.append(records - sum(sizes))
    assert len(sizes) == parts
    assert 1 <= max(sizes) <= min(sizes) + 1


def test_no_more_parts_than_records() -> None:
    """Else some would be empty."""
    ranges = ranges_of([2, 3])
    records = {each.partition: each.stop - each.start for each in ranges}
    assert parts_wanted(ranges, records, Sizing(min_tasks=1000)) == [2, 3]


def test_ranges_that_nobody_can_count_are_not_cut_and_get_tasks() -> None:
    """Pulsar without admin_url: each may be large, so that each is worth a task."""
    ranges = ranges_of([5, 5, 5])
    assert parts_wanted(ranges, {}, Sizing(min_tasks=6)) == [1, 1, 1]
    parts = [(each, None) for each in ranges]
    assert len(pack(parts, Sizing())) == 3
    assert len(pack(parts, Sizing(tasks=2))) == 2


def test_counting_is_asked_for_only_where_ranges_may_be_cut() -> None:
    """A broker that cannot count is then no hindrance."""
    assert not Sizing(tasks=3).needs_records
    assert Sizing(min_tasks=3).needs_records
    assert Sizing(max_records=3).needs_records


def test_empty_ranges_are_no_tasks_and_no_loss() -> None:
    """Even of a partition that is gone, or whose log begins later now."""
    ranges = [PartitionRange(A, 5, 5), PartitionRange(B, 5, 5), PartitionRange(C, 5, 6)]
    assert readable_ranges(ranges, {B: 9, C: 0}, fail=True) == ReadableRanges(
        [PartitionRange(C, 5, 6)], []
    )


LOSSES = [
    (PartitionRange(A, 5, 9), {A: 7}, [PartitionRange(A, 7, 9)], "t/0 begins at 7, above 5"),
    (PartitionRange(A, 5, 9), {A: 9}, [], "t/0 begins at 9, above 5"),
    (PartitionRange(A, 5, 9), {A: 20}, [], "t/0 begins at 20, above 5"),
    (PartitionRange(A, 5, 3), {A: 0}, [], "t/0 ends at 3, below 5"),
    (PartitionRange(A, 5, 9), {A: None}, [], "t/0 is gone"),
    (PartitionRange(A, 5, 9), {}, [], "t/0 is gone"),
]


@pytest.mark.parametrize("each, earliest, kept, complaint", LOSSES)
def test_a_loss_fails_the_query(
    each: PartitionRange,
    earliest: dict[Partition, int | None],
    kept: list[PartitionRange],
    complaint: str,
) -> None:
    """Traps 1, 8 and 11: it says what is lost, and how to go on."""
    with pytest.raises(DataLossError, match=f"{complaint}.*failOnDataLoss=false"):
        readable_ranges([each], earliest, fail=True)


@pytest.mark.parametrize("each, earliest, kept, complaint", LOSSES)
def test_an_accepted_loss_is_a_warning(
    each: PartitionRange,
    earliest: dict[Partition, int | None],
    kept: list[PartitionRange],
    complaint: str,
) -> None:
    """What is left is read, and nothing twice."""
    judged = readable_ranges([each], earliest, fail=False)
    assert judged.ranges == kept
    assert [complaint in warning for warning in judged.warnings] == [True]


CUT_SHORT = [
    (PartitionRange(A, 5, 9), 7, [PartitionRange(A, 5, 7)]),
    (PartitionRange(A, 2, 9), 7, [PartitionRange(A, 3, 7)]),
    (PartitionRange(A, 5, 9), 5, []),
    (PartitionRange(A, 5, 9), 4, []),
]


@pytest.mark.parametrize("each, last, kept", CUT_SHORT)
def test_a_log_that_ends_below_the_stop_is_a_loss(
    each: PartitionRange, last: int, kept: list[PartitionRange]
) -> None:
    """A topic made again, or cut short by an election: what is missing never comes."""
    with pytest.raises(DataLossError, match=f"t/0 ends at {last}, below 9"):
        readable_ranges([each], {A: 3}, latest={A: last}, fail=True)
    judged = readable_ranges([each], {A: 3}, latest={A: last}, fail=False)
    assert judged.ranges == kept
    assert len(judged.warnings) == 1


def test_a_log_that_ends_at_the_stop_is_whole() -> None:
    """Nor does an end say anything that is not a number: it may lie in another ledger."""
    each = PartitionRange(A, 5, 9)
    assert readable_ranges([each], {A: 0}, latest={A: 9}, fail=True) == ReadableRanges([each], [])
    ledger = PartitionRange(A, (5, 0, 0), (6, 2, 0))
    assert readable_ranges(
        [ledger], {A: (5, 0, 0)}, latest={A: (6, 0, 0)}, fail=True
    ) == ReadableRanges([ledger], [])


def test_partitions_that_vanished_are_losses() -> None:
    """Trap 11: nobody knows what they still had."""
    with pytest.raises(DataLossError, match="t/1 is gone"):
        readable_ranges([], {}, [B], fail=True)
    assert readable_ranges([], {}, [B], fail=False) == ReadableRanges([], ["t/1 is gone"])


def test_many_losses_are_not_all_named() -> None:
    """An error is read by people."""
    gone = [Partition("t", f"{number:03}") for number in range(500)]
    with pytest.raises(DataLossError, match=r"t/009 is gone; and 490 more") as caught:
        readable_ranges([], {}, gone, fail=True)
    assert "t/010" not in str(caught.value)


def test_a_start_before_a_deleted_ledger_is_a_doubt_alone() -> None:
    """Pulsar deletes a ledger that was read to its end: the reader knows whether that is a loss."""
    each = PartitionRange(A, (5, 9, 1), (6, 2, 0))
    judged = readable_ranges([each], {A: (6, 0, 0)}, fail=True)
    assert judged.ranges == [each]
    assert len(judged.warnings) == 1
    kept = [PartitionRange(A, (6, 0, 0), (6, 2, 0))]
    assert readable_ranges([each], {A: (6, 0, 0)}, fail=False).ranges == kept


def test_sound_ranges_are_sorted_and_unchanged() -> None:
    """The usual case has no warnings."""
    ranges = [PartitionRange(B, 5, 9), PartitionRange(A, 0, 3)]
    assert readable_ranges(ranges, {A: 0, B: 5}, fail=True) == ReadableRanges(sorted(ranges), [])
