"""What is counted, of all partitions and of each."""

from __future__ import annotations

from dataclasses import asdict

from consumer_sdk.records import Partition
from consumer_sdk.runtime.observing.stats import REMEMBERED, PartitionTotals


def test_counts_begin_at_zero() -> None:
    """Each of them."""
    totals = PartitionTotals(list)
    assert set(asdict(totals.of(Partition("s", "0"))).values()) == {0}


def test_counts_of_a_partition_go_on_when_it_comes_back() -> None:
    """Those of the held ones are never forgotten, of the others the ones that left first."""
    held = {Partition("s", "held")}
    totals = PartitionTotals(lambda: held)
    kept = totals.of(Partition("s", "held"))
    for number in range(3 * REMEMBERED):
        totals.of(Partition("s", str(number))).fetched = number
        assert Partition("s", str(max(number + 1 - REMEMBERED, 0))) in totals.all
    assert totals.of(Partition("s", "held")) is kept
    last = 3 * REMEMBERED - 1
    assert totals.of(Partition("s", str(last))).fetched == last
    assert totals.of(Partition("s", "0")).fetched == 0
    assert REMEMBERED < len(totals.all) <= 2 * REMEMBERED + 2
    assert totals.of(Partition("s", str(last - REMEMBERED + 2))).fetched == last - REMEMBERED + 2
