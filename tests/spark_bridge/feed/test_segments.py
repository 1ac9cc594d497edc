"""Spreading segments over tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.spark_bridge.feed.segments import SegmentFile, pack
from tests.spark_bridge.unhurried import unhurried

MIB = 2**20


@unhurried
@given(st.lists(st.integers(1, 64 * MIB)), st.integers(1, 8))
def test_every_segment_is_in_one_task_in_order(sizes: list[int], most: int) -> None:
    """Packing loses nothing, repeats nothing, keeps the order, and makes no empty task."""
    files = [SegmentFile(str(at), size, 0) for at, size in enumerate(sizes)]
    parts = pack(files, most)
    assert [file for part in parts for file in part] == files
    assert len(parts) <= most
    assert all(parts)


def test_large_segments_are_spread_evenly() -> None:
    """Tasks get about the same bytes."""
    files = [SegmentFile(str(at), 32 * MIB, 0) for at in range(10)]
    assert [len(part) for part in pack(files, 2)] == [5, 5]
