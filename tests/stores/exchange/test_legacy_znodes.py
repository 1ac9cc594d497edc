"""What Storm's spouts write in znodes: read as what it says, or refused with its path."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.checkpoints.positions import LAST_SUB_SEQUENCE, encode_sequence
from consumer_sdk.errors import (
    CheckpointFormatError,
    CheckpointMismatchError,
    ConfigurationError,
    StoreError,
)
from consumer_sdk.records import Checkpoint, Partition, Position
from consumer_sdk.stores.exchange import legacy
from consumer_sdk.stores.exchange.legacy import (
    partition_of,
    read_kinesis_spout,
    read_offset,
    read_sequence,
    read_shard_list,
    read_storm_kafka,
)
from consumer_sdk.stores.zookeeper.tree import Znode
from consumer_sdk.trackers import encode_checkpoint
from tests.stores.fake_zookeeper import FakeBridge, FakeZooKeeper

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


def test_largest_offset_of_a_log_is_read() -> None:
    """Kafka counts with 63 bits."""
    assert offset_of(storm(offset=2**63 - 1)) == Checkpoint(2**63 - 2, 2**63 - 1)


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


# -- what lies below a spout's path ----------------------------------------------------------------


class Spout(FakeBridge):
    """A ZooKeeper in which a spout has left these znodes, and those above them.

    Attributes:
        opened, closed: how often its reader has done so.
    """

    def __init__(self, znodes: dict[str, bytes]) -> None:
        super().__init__(FakeZooKeeper())
        self.opened = self.closed = 0
        for path in znodes:
            parts = path.split("/")
            above = ["/".join(parts[:end]) for end in range(2, len(parts))]
            self.server.znodes |= {each: Znode(b"", 0) for each in above}
        self.server.znodes |= {path: Znode(data, 0) for path, data in znodes.items()}

    def open(self, _maker: object, _timeout: float) -> Spout:
        """Stands in for the class of bridges."""
        self.opened += 1
        return self

    async def aclose(self) -> None:
        """Counts."""
        self.closed += 1


@pytest.fixture
def spout(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[dict[str, bytes]], None]]:
    """Lets the readers find these znodes; what they open they close."""
    made: list[Spout] = []

    def leave(znodes: dict[str, bytes]) -> None:
        made.append(Spout(znodes))
        monkeypatch.setattr(legacy, "Bridge", made[-1].open)

    yield leave
    assert [each.closed for each in made] == [each.opened for each in made]


def text_of(checkpoint: Checkpoint, broker: str, partition: Partition) -> str:
    """As a store keeps it."""

    def encode(position: Position) -> str:
        return str(position) if broker == "kafka" else encode_sequence(position)

    return encode_checkpoint(
        checkpoint, broker=broker, partition=partition, encode_position=encode
    )[0]


async def kafka(topic: str = "orders", zk_root: str = "/storm/", spout_id: str = "a spout") -> Any:
    """What is found of a Kafka spout."""
    return await read_storm_kafka("fake:1", zk_root, spout_id, topic=topic, group="g")


async def kinesis(prefix: str = "spouts", topology: str = "topology") -> Any:
    """What is found of a Kinesis spout."""
    return await read_kinesis_spout("fake:1", prefix, topology, "clicks", group="g")


async def test_kafka_spouts_offsets_are_found_at_both_levels(spout: Any) -> None:
    """Beside the topic's own level, and within it; another topic's is said, and not read."""
    base = "/storm/a spout"
    places = {f"{base}/7": 7, f"{base}/orders/partition_3": 3}
    spout(
        {path: storm(partition=number) for path, number in places.items()}
        | {f"{base}/payments/partition_0": b"", f"{base}/orders/lock": b""}
    )
    found = await kafka()
    assert [(e.where, e.group, e.partition, e.text) for e in found.entries] == [
        (path, "g", partition, text_of(Checkpoint(41, 42), "kafka", partition))
        for path, number in places.items()
        for partition in [Partition("orders", str(number))]
    ]
    why = "it is named after no partition of the topic"
    assert found.skipped == {f"{base}/orders/lock": why, f"{base}/payments": why}


async def test_topic_that_is_named_by_a_number_is_no_partition(spout: Any) -> None:
    """Its level is named as an older spout's partition; as that it has data, and nothing below it."""
    spout({"/storm/a spout/5/partition_0": storm(topic="5", partition=0)})
    found = await kafka("5")
    assert [e.partition for e in found.entries] == [Partition("5", "0")]
    assert found.skipped == {}
    spout({"/storm/a spout/5": storm(topic="5", partition=5)})
    assert [e.partition for e in (await kafka("5")).entries] == [Partition("5", "5")]


async def test_kinesis_spouts_sequences_are_found_of_listed_shards_and_others(spout: Any) -> None:
    """A shard of which nothing was done is said, and so is one that is only listed."""
    base = "/spouts/topology/clicks"
    spout(
        {
            f"{base}/a/state": json.dumps({"checkpoint": str(SEQUENCE)}).encode(),
            f"{base}/b/state": b'{"checkpoint":""}',
            f"{base}/shardList": b'{"shardList":["a","c"]}',
        }
    )
    found = await kinesis()
    position, shard = (SEQUENCE, LAST_SUB_SEQUENCE), Partition("clicks", "a")
    assert [(e.where, e.group, e.partition, e.text) for e in found.entries] == [
        (f"{base}/a/state", "g", shard, text_of(Checkpoint(position, position), "kinesis", shard))
    ]
    why = "the spout has no checkpoint of this shard"
    assert found.skipped == {f"{base}/b/state": why, f"{base}/c/state": why}


async def test_path_with_nothing_below_it_is_an_error(spout: Any) -> None:
    """A typing error must not look like a spout that has done nothing."""
    spout({"/storm/a spout/orders": b"", "/spouts/topology/clicks": b""})
    with pytest.raises(StoreError, match=r"below /storm/a spout: .*zkRoot and id"):
        await kafka()
    with pytest.raises(StoreError, match=r"below /spouts/topology/clicks: .*zookeeperPrefix"):
        await kinesis()


async def test_bad_znode_ends_the_import_and_the_connection(spout: Any) -> None:
    """Nothing of the good ones beside it is taken."""
    spout(
        {
            "/storm/a spout/partition_0": storm(partition=0),
            "/storm/a spout/partition_1": storm(partition=0),
            "/spouts/topology/clicks/a/state": b"{}",
        }
    )
    with pytest.raises(CheckpointMismatchError, match="/storm/a spout/partition_1"):
        await kafka()
    with pytest.raises(CheckpointFormatError, match="/spouts/topology/clicks/a/state"):
        await kinesis()


@pytest.mark.parametrize("name", [".", "..", "a//b", "a\0b", "a\nb", "\ud800", "\U0001f600"])
@pytest.mark.parametrize("root", ["", "/storm"])
async def test_name_that_zookeeper_takes_in_no_path_is_refused(root: str, name: str) -> None:
    """Before anything is asked, wherever in the path it is."""
    with pytest.raises(ConfigurationError, match="absolute path"):
        await kafka(zk_root=root, spout_id=name)
    with pytest.raises(ConfigurationError, match="absolute path"):
        await kinesis(root, name)


async def test_path_of_no_name_is_refused() -> None:
    """The root of the ZooKeeper is no spout's."""
    with pytest.raises(ConfigurationError, match="absolute path"):
        await kafka(zk_root="/", spout_id="")
