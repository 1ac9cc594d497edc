"""What Spark keeps in its offset log."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.checkpoints.positions import decode_offset
from consumer_sdk.range_reads import PartitionRange
from consumer_sdk.records import Partition
from consumer_sdk.spark_bridge.errors import OffsetFormatError
from consumer_sdk.spark_bridge.pull.planning.offsets import INITIAL, Offsets

A0, A1, A10, B0 = (
    Partition("a", "0"),
    Partition("a", "1"),
    Partition("a", "10"),
    Partition("b", "0"),
)

partitions = st.builds(Partition, st.text(max_size=3), st.text(max_size=3))
positions = st.dictionaries(partitions, st.integers(0, 2**63 - 1), max_size=6)


def text_of(offsets: Offsets) -> str:
    """What the engine compares."""
    return json.dumps(offsets.to_json(str))


@given(positions, positions)
def test_offsets_survive_sparks_log(at: dict[Partition, int], since: dict[Partition, int]) -> None:
    """What was written is read back, through JSON."""
    offsets = Offsets(at, since)
    assert Offsets.from_json(json.loads(text_of(offsets)), decode_offset) == offsets


@given(positions, positions, st.randoms(use_true_random=False))
def test_equal_offsets_have_equal_texts(
    at: dict[Partition, int], since: dict[Partition, int], random: Any
) -> None:
    """Trap 2: whatever the order in which partitions became known, Spark sees no news."""
    shuffled = [random.sample(sorted(each.items()), len(each)) for each in (at, since)]
    assert text_of(Offsets(*map(dict, shuffled))) == text_of(Offsets(at, since))


def test_an_offset_without_partitions_is_not_the_initial_one() -> None:
    """There were none, or all are gone: either way it has begun, and says so for good."""
    for before in (Offsets(), Offsets({A0: 4})):
        end = before.advance({}, {})
        assert text_of(end) != json.dumps(INITIAL)
        found = Offsets.from_json(json.loads(text_of(end)), decode_offset)
        assert found == end
        assert not found.is_initial
        assert found.advance({}, {}) is found


def test_the_text_is_as_it_always_was() -> None:
    """Checkpoints outlive versions: the form is frozen."""
    offsets = Offsets({B0: 5, A10: 7, A1: 2}, {B0: 4})
    assert text_of(offsets) == (
        '{"version": 1, "positions": {"a": {"1": "2", "10": "7"}, "b": {"0": "5"}}, '
        '"since": {"b": {"0": "4"}}}'
    )


def test_the_initial_offset_is_a_constant_that_knows_nothing() -> None:
    """Trap 1: however often it is asked for, and whatever the broker has by then."""
    initial = Offsets.from_json(INITIAL, decode_offset)
    assert initial.is_initial
    assert initial.to_json(str) == INITIAL == {"version": 1, "positions": {}}


def test_the_first_batch_is_planned_from_its_end_alone() -> None:
    """Trap 1: after a crash in batch 0, the log has its end: it says where the batch began."""
    end = Offsets().advance({A0: 90, A1: 7}, {A0: 40, A1: 7})
    logged = Offsets.from_json(json.loads(text_of(end)), decode_offset)
    initial = Offsets.from_json(INITIAL, decode_offset)
    ranges = [PartitionRange(A0, 40, 90), PartitionRange(A1, 7, 7)]
    assert initial.ranges_to(logged) == ranges
    assert not logged.is_initial


def test_a_start_at_latest_is_pinned_before_there_are_records() -> None:
    """Trap 1: an empty first batch is news, and makes the resolved start durable."""
    end = Offsets().advance({A0: 40}, {A0: 40})
    assert text_of(end) != text_of(Offsets())
    assert Offsets().ranges_to(end) == [PartitionRange(A0, 40, 40)]


def test_no_news_is_the_very_offset_that_it_started_from() -> None:
    """Trap 2: also after the first batch, whose end says where it began."""
    first = Offsets().advance({A0: 40}, {A0: 3})
    assert first.advance({A0: 40}, {}) is first


def test_news_says_no_more_where_known_partitions_began() -> None:
    """The end of a later batch is as small as can be."""
    first = Offsets().advance({A0: 40}, {A0: 3})
    assert first.advance({A0: 41}, {A0: 9}) == Offsets({A0: 41})


def test_what_a_start_has_read_counts_before_where_that_began() -> None:
    """The first batch's end, taken for both bounds, reads nothing again."""
    first = Offsets().advance({A0: 40}, {A0: 3})
    assert first.ranges_to(first) == [PartitionRange(A0, 40, 40)]


def test_a_new_partition_begins_where_the_log_says() -> None:
    """Trap 11: its start is pinned with the batch that reads it first, even if it is empty."""
    first = Offsets({A0: 40})
    second = first.advance({A0: 40, A1: 0}, {A1: 0})
    third = second.advance({A0: 40, A1: 6}, {})
    assert second == Offsets({A0: 40, A1: 0}, {A1: 0})
    assert second.ranges_to(third) == [PartitionRange(A0, 40, 40), PartitionRange(A1, 0, 6)]
    assert first.unknown([A1, A0]) == [A1]


def test_a_partition_that_is_gone_is_named() -> None:
    """Trap 11: it is left out of the end, and is no range."""
    end = Offsets({A0: 40, B0: 1, A1: 2}).advance({A0: 41}, {})
    assert Offsets({A0: 40, B0: 1, A1: 2}).gone_in(end) == [A1, B0]
    assert Offsets({A0: 40, B0: 1}).ranges_to(end) == [PartitionRange(A0, 40, 41)]


def test_an_end_that_does_not_say_where_it_began_is_refused() -> None:
    """A damaged checkpoint is no reason to guess."""
    with pytest.raises(OffsetFormatError, match="does not say where b/0 began"):
        Offsets({A0: 1}).ranges_to(Offsets({A0: 1, B0: 5}))


@pytest.mark.parametrize(
    "body, why",
    [
        ({"orders": {"0": 23}}, "has another form"),
        ({"next": 3}, "has another form"),
        ([1], "has another form"),
        (None, "has another form"),
        ({"version": 2, "positions": {}}, "has version 2, not 1"),
        ({"version": 1, "positions": {}, "shards": {}}, "has 'shards' too"),
        ({"version": 1, "positions": {"a": {"0": 1}}}, "a position of another kind"),
        ({"version": 1, "positions": {"a": {"0": "3:1:-1"}}}, "a position of another kind"),
        ({"version": 1, "positions": {"a": 5}}, "a position of another kind"),
        ({"version": 1, "positions": [1]}, "a position of another kind"),
        ({"version": 1, "positions": {}, "since": None}, "a position of another kind"),
    ],
)
def test_an_offset_of_another_source_is_told_apart(body: Any, why: str) -> None:
    """Spark's own Kafka source, a feed, Pulsar: the error says whose the checkpoint is not."""
    with pytest.raises(OffsetFormatError, match=why) as caught:
        Offsets.from_json(body, decode_offset)
    assert "belongs to another source" in str(caught.value)


def test_a_huge_foreign_offset_is_not_quoted_whole() -> None:
    """An error is read by people."""
    with pytest.raises(OffsetFormatError) as caught:
        Offsets.from_json({"orders": {str(n): n for n in range(5000)}}, decode_offset)
    assert len(str(caught.value)) < 500
