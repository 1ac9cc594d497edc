"""What Storm's spouts write in znodes: read as what it says, or refused with its path."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.checkpoints.positions import LAST_SUB_SEQUENCE
from consumer_sdk.errors import CheckpointFormatError, CheckpointMismatchError, StoreError
from consumer_sdk.records import Checkpoint
from consumer_sdk.stores.exchange.legacy import (
    partition_of,
    read_offset,
    read_sequence,
    read_shard_list,
)

PATH = "/kafkastorm/orders-spout/partition_3"
SEQUENCE = 49590338271490256608559692538361571095921575989136588898
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=9,
)


def storm(**fields: Any) -> bytes:
    """What PartitionManager.commit writes, with other fields; ``...`` removes one."""
    body = {
        "topology": {"id": "8a2c6f9e-4be5-4a51-bc07-6a0d3b0ee4c1", "name": "orders"},
        "offset": 42,
        "partition": 3,
        "broker": {"host": "kafka1", "port": 9092},
        "topic": "orders",
    } | fields
    return json.dumps({n: value for n, value in body.items() if value is not ...}).encode()


def offset_of(data: bytes) -> Checkpoint:
    """Read for partition 3 of orders."""
    return read_offset(data, PATH, topic="orders", partition=3)


def test_offset_is_the_first_that_is_not_done() -> None:
    """All before it is: the record at the offset is delivered next."""
    checkpoint = offset_of(storm())

    assert checkpoint == Checkpoint(watermark=41, resume=42)
    assert checkpoint.is_settled(41)
    assert not checkpoint.is_settled(42)


def test_offset_zero_has_nothing_done() -> None:
    """The spout has begun, and finished no record."""
    assert offset_of(storm(offset=0)) == Checkpoint(watermark=None, resume=0)


@pytest.mark.parametrize("field, value", [("topic", "payments"), ("partition", 4)])
def test_offset_of_another_partition_is_refused(field: str, value: object) -> None:
    """PartitionManager took it for its own when two spouts had one id."""
    with pytest.raises(CheckpointMismatchError, match=f"{PATH} belongs to {field} {value!r}"):
        offset_of(storm(**{field: value}))


BAD_OFFSETS = {
    "nothing": b"",
    "text": b"42",
    "a list": b"[]",
    "cut": storm()[:-1],
    "a name twice": b'{"offset":1,' + storm()[1:],
    "not UTF-8": b"\xff",
    "nested deeply": b"[" * 100_000,
    "no offset": storm(offset=...),
    "an offset of text": storm(offset="42"),
    "an offset that is true": storm(offset=True),
    "a fraction": storm(offset=42.0),
    "a time": storm(offset=-1),
    "too large": storm(offset=2**63),
    "endless": storm().replace(b"42", b"4" * 5000),
    "no topic": storm(topic=...),
    "no partition": storm(partition=None),
    "a partition that is true": storm(partition=True),
}


@pytest.mark.parametrize("what", BAD_OFFSETS)
def test_other_data_is_no_offset(what: str) -> None:
    """A typed error that names the znode."""
    with pytest.raises(CheckpointFormatError, match=f"{PATH} is not what the spout writes"):
        offset_of(BAD_OFFSETS[what])


@given(st.binary() | JSON.map(lambda body: json.dumps(body).encode()))
def test_any_data_is_a_typed_error(data: bytes) -> None:
    """Of each of the three kinds of znodes."""
    for read in (
        offset_of,
        lambda data: read_sequence(data, PATH),
        lambda data: read_shard_list(data, PATH),
    ):
        with pytest.raises(StoreError, match=PATH):
            read(data)


@pytest.mark.parametrize(
    "name, number",
    [
        ("partition_0", 0),
        ("partition_17", 17),
        ("5", 5),
        ("partition_", None),
        ("partition_01", None),
        ("partition_-1", None),
        ("orders", None),
        ("kafka1:9092:0", None),
        ("partition_1\n", None),
    ],
)
def test_partition_is_in_the_name_of_the_znode(name: str, number: int | None) -> None:
    """With the spout's prefix, or without as older ones wrote it."""
    assert partition_of(name) == number


def test_sequence_covers_the_whole_kinesis_record() -> None:
    """The old spout knew no sub-sequence numbers: all that was aggregated in it is done."""
    checkpoint = read_sequence(json.dumps({"checkpoint": str(SEQUENCE)}).encode(), PATH)

    assert checkpoint == Checkpoint((SEQUENCE, LAST_SUB_SEQUENCE), (SEQUENCE, LAST_SUB_SEQUENCE))
    assert all(checkpoint.is_settled((SEQUENCE, sub)) for sub in (0, 1, 10_000))
    assert not checkpoint.is_settled((SEQUENCE + 1, 0))


def test_empty_sequence_is_no_checkpoint() -> None:
    """What the spout takes for "nothing yet"."""
    assert read_sequence(b'{"checkpoint":""}', PATH) is None


@pytest.mark.parametrize(
    "checkpoint", [None, 7, True, "TRIM_HORIZON", "-1", "1.5", " 1", "01", "9" * 130, ["1"]]
)
def test_other_data_is_no_sequence(checkpoint: object) -> None:
    """A typed error that names the znode."""
    with pytest.raises(CheckpointFormatError, match=PATH):
        read_sequence(json.dumps({"checkpoint": checkpoint}).encode(), PATH)


def test_shard_list_is_read() -> None:
    """In its order."""
    shards = ["shardId-000000000001", "shardId-000000000000"]

    assert read_shard_list(json.dumps({"shardList": shards}).encode(), PATH) == shards


@pytest.mark.parametrize("shards", [None, "shardId-0", [7], ["a/b"], [""], ["../up"], ["x" * 129]])
def test_other_data_is_no_shard_list(shards: object) -> None:
    """A name that would lead elsewhere among them."""
    with pytest.raises(CheckpointFormatError, match=PATH):
        read_shard_list(json.dumps({"shardList": shards}).encode(), PATH)
