"""Which partition a record is written to."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.partitioner import murmur2 as murmur2_of_one

from consumer_sdk.adapters.kafka.producing.partitioning import LEAST_RUN, murmur2, partitions_of
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.record_writes import Outgoing


def test_keys_are_hashed_as_by_java() -> None:
    """Of every length, at any place of a column, beside nulls and long ones."""
    chance = random.Random(7)
    lengths = [*range(70), 1023, 1024, 1025, 2000]
    keys = [chance.randbytes(length) for length in lengths * 2]
    chance.shuffle(keys)
    expected = [murmur2_of_one(key) & 0xFFFFFFFF for key in keys]
    column = pa.array([None, *keys, None], pa.binary())
    assert murmur2(column)[1:-1].tolist() == expected
    assert murmur2(column.slice(11, 40)).tolist() == expected[10:50]
    assert murmur2(column.cast(pa.large_binary())).tolist()[1:-1] == expected
    assert murmur2(pa.array([], pa.binary())).tolist() == []


def test_a_records_partition_comes_before_its_key_and_that_before_its_turn() -> None:
    """Nulls let the next one choose."""
    records = Outgoing(
        "t",
        values=pa.nulls(4, pa.binary()),
        keys=pa.array([b"k", b"k", None, b""], pa.binary()),
        partitions=pa.array([2, None, None, 0], pa.int32()),
    )
    by_key = (murmur2_of_one(b"k") & 0x7FFFFFFF) % 3
    assert partitions_of(records, 3, first=1).tolist() == [2, by_key, 1, 0]


@pytest.mark.parametrize("count", [1, 3, 16, 100])
def test_keys_choose_the_same_partitions_as_in_the_client(count: int) -> None:
    """So that all records of a key are in one partition, whoever writes them."""
    chance = random.Random(5)
    keys = [chance.randbytes(length) for length in range(60)]
    available = list(range(count))
    expected = [DefaultPartitioner()(key, available, available) for key in keys]
    records = Outgoing("t", values=pa.nulls(60, pa.binary()), keys=pa.array(keys, pa.binary()))
    assert partitions_of(records, count, first=0).tolist() == expected


def test_records_without_keys_go_to_all_partitions_in_runs() -> None:
    """Few large batches; small columns begin elsewhere each time."""
    few, many = (Outgoing("t", values=pa.nulls(rows, pa.binary())) for rows in (10, 8 * LEAST_RUN))
    assert [set(partitions_of(few, 4, first).tolist()) for first in (3, 4)] == [{3}, {0}]
    found = partitions_of(many, 4, 0)
    assert [int((found == each).sum()) for each in range(4)] == [2 * LEAST_RUN] * 4
    assert int((found[1:] != found[:-1]).sum()) == 3


def test_a_null_partition_is_not_one_that_a_topic_lacks() -> None:
    """Also of a topic with a single one."""
    records = Outgoing("t", pa.nulls(2, pa.binary()), partitions=pa.array([None, 0], pa.int32()))
    assert partitions_of(records, 1, 0).tolist() == [0, 0]


@pytest.mark.parametrize("number", [-1, 3])
def test_a_partition_that_is_not_there_is_refused(number: int) -> None:
    """With those that are."""
    records = Outgoing("t", pa.nulls(1, pa.binary()), partitions=pa.array([number], pa.int32()))
    with pytest.raises(ConfigurationError, match=rf"partition {number}: .* partitions 0 to 2"):
        partitions_of(records, 3, 0)
