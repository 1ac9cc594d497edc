"""Storm's checkpoints in a real ZooKeeper: imported, and left as they are."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from consumer_sdk.checkpoints.positions import LAST_SUB_SEQUENCE, POSITION_READERS
from consumer_sdk.errors import (
    CheckpointFormatError,
    CheckpointMismatchError,
    ConfigurationError,
    StoreError,
    TransientStoreError,
)
from consumer_sdk.records import Checkpoint, Partition
from consumer_sdk.stores import (
    Imported,
    ImportRefusedError,
    LocalStore,
    ZooKeeperStore,
    import_checkpoints,
    read_kinesis_spout,
    read_storm_kafka,
)
from consumer_sdk.testing.servers import ZooKeeperEndpoint
from consumer_sdk.trackers import decode_checkpoint
from tests.stores.exchange.test_legacy_znodes import storm
from tests.stores.exchange_world import GROUP, SEQUENCE, entry, opened, own, stored

pytestmark = pytest.mark.zookeeper

SHARDS = [f"shardId-{number:012}" for number in range(4)]


@pytest.fixture
def shell(zookeeper_server: ZooKeeperEndpoint) -> Iterator[Any]:
    """What Storm's Curator does."""
    client = KazooClient(zookeeper_server.hosts)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


@pytest.fixture
def root() -> str:
    """A place of the test's own."""
    return f"/storm-{uuid.uuid4().hex}"


def write(shell: Any, znodes: dict[str, bytes]) -> None:
    """As ``creatingParentsIfNeeded`` does."""
    for path, data in znodes.items():
        shell.create(path, data, makepath=True)


def everything(shell: Any, path: str) -> dict[str, Any]:
    """All znodes from a path on: their data, and when and how often each was written."""
    data, stat = shell.get(path)
    found = {path: (data, stat.mzxid, stat.version, stat.cversion, stat.pzxid)}
    for name in shell.get_children(path):
        found |= everything(shell, f"{path}/{name}")
    return found


def read(text: str | None, broker: str, partition: Partition) -> Checkpoint:
    """A stored checkpoint."""
    assert text is not None
    return decode_checkpoint(
        text,
        broker=broker,
        partition=partition,
        identity=None,
        decode_position=POSITION_READERS[broker],
    )


def kinesis(shell: Any, base: str, *, shard_list: bool = True) -> None:
    """Four shards; of one nothing was done, and of one there is not even a znode."""
    states = {SHARDS[n]: SEQUENCE + n for n in range(2)}
    write(
        shell,
        {
            f"{base}/{shard}/state": json.dumps({"checkpoint": str(sequence)}).encode()
            for shard, sequence in states.items()
        },
    )
    write(shell, {f"{base}/{SHARDS[2]}/state": b'{"checkpoint":""}'})
    if shard_list:
        write(shell, {f"{base}/shardList": json.dumps({"shardList": SHARDS}).encode()})


async def test_kafka_offsets_are_taken_over(
    zookeeper_server: ZooKeeperEndpoint, shell: Any, root: str, tmp_path: Path
) -> None:
    """Into SQLite and back into the same ZooKeeper; Storm's znodes stay untouched."""
    hosts = zookeeper_server.hosts
    offsets = {0: 0, 1: 42, 2: 2**40, 10: 7}
    write(
        shell,
        {
            f"{root}/spout/partition_{n}": storm(partition=n, offset=offset)
            for n, offset in offsets.items()
        },
    )
    before = everything(shell, root)
    async with (
        opened(LocalStore(tmp_path / "state.db")) as local,
        opened(ZooKeeperStore(hosts, root=f"/sdk{root}")) as zookeeper,
    ):
        found = await read_storm_kafka(hosts, root, "spout", topic="orders", group=GROUP)
        assert found.skipped == {}
        for store in (local, zookeeper):
            assert await import_checkpoints(store, found.entries) == Imported(4, 0)
            for number, offset in offsets.items():
                partition = Partition("orders", str(number))
                (text,) = await stored(store, [partition])
                watermark = offset - 1 if offset else None
                assert read(text, "kafka", partition) == Checkpoint(watermark, offset)
            assert await import_checkpoints(store, found.entries) == Imported(0, 4)
    assert everything(shell, root) == before


async def test_kafka_offsets_below_a_topic_are_taken_over(
    zookeeper_server: ZooKeeperEndpoint, shell: Any, root: str
) -> None:
    """A spout with a wildcard keeps a level for each topic; other topics are left, and said."""
    for topic in ("orders", "payments"):
        path = f"{root}/spout/{topic}/partition_0"
        write(shell, {path: storm(partition=0, topic=topic)})

    found = await read_storm_kafka(
        zookeeper_server.hosts, root, "spout", topic="orders", group=GROUP
    )
    assert [e.partition for e in found.entries] == [Partition("orders", "0")]
    assert list(found.skipped) == [f"{root}/spout/payments"]


async def test_kafka_offset_behind_the_store_is_refused(
    zookeeper_server: ZooKeeperEndpoint, shell: Any, root: str, tmp_path: Path
) -> None:
    """Imported again after consumers went on, nothing moves back."""
    write(shell, {f"{root}/spout/partition_0": storm(partition=0)})
    found = await read_storm_kafka(
        zookeeper_server.hosts, root, "spout", topic="orders", group=GROUP
    )
    async with opened(LocalStore(tmp_path / "state.db")) as store:
        await own(store, entry(Checkpoint(99, 100)))
        with pytest.raises(ImportRefusedError, match=f"{root}/spout/partition_0.*is ahead"):
            await import_checkpoints(store, found.entries)


@pytest.mark.parametrize(
    "data, error",
    [
        (storm(partition=0, topic="payments"), CheckpointMismatchError),
        (storm(partition=1), CheckpointMismatchError),
        (b"garbage", CheckpointFormatError),
        (b"", CheckpointFormatError),
        (b"\x00" * 1_000_000, CheckpointFormatError),
    ],
    ids=["another topic", "another partition", "garbage", "nothing", "zeros"],
)
async def test_hostile_offset_is_refused_with_its_path(
    zookeeper_server: ZooKeeperEndpoint,
    shell: Any,
    root: str,
    data: bytes,
    error: type[StoreError],
) -> None:
    """Of good znodes beside it nothing is imported either."""
    write(shell, {f"{root}/spout/partition_0": data})
    write(shell, {f"{root}/spout/partition_1": storm(partition=1)})
    with pytest.raises(error, match=f"{root}/spout/partition_0"):
        await read_storm_kafka(zookeeper_server.hosts, root, "spout", topic="orders", group=GROUP)


@pytest.mark.parametrize("shard_list", [True, False])
async def test_kinesis_sequences_are_taken_over(
    zookeeper_server: ZooKeeperEndpoint, shell: Any, root: str, tmp_path: Path, *, shard_list: bool
) -> None:
    """Also of a topology that was stopped, whose list of shards is deleted; nothing is touched."""
    base = f"{root}/orders-topology/clicks"
    kinesis(shell, base, shard_list=shard_list)
    before = everything(shell, root)

    found = await read_kinesis_spout(
        zookeeper_server.hosts, root, "orders-topology", "clicks", group=GROUP
    )
    skipped = SHARDS[2:] if shard_list else SHARDS[2:3]
    assert sorted(found.skipped) == [f"{base}/{shard}/state" for shard in skipped]
    async with opened(LocalStore(tmp_path / "state.db")) as store:
        assert await import_checkpoints(store, found.entries) == Imported(2, 0)
        partitions = [Partition("clicks", shard) for shard in SHARDS]
        assert await store.list(GROUP) == partitions[:2]
        texts = await stored(store, partitions[:2])
    for number, (text, partition) in enumerate(zip(texts, partitions, strict=False)):
        position = (SEQUENCE + number, LAST_SUB_SEQUENCE)
        assert read(text, "kinesis", partition) == Checkpoint(position, position)
    assert everything(shell, root) == before


@pytest.mark.parametrize("path", ["shardList", f"{SHARDS[0]}/state"])
async def test_hostile_state_of_a_shard_is_refused_with_its_path(
    zookeeper_server: ZooKeeperEndpoint, shell: Any, root: str, path: str
) -> None:
    """Damaged lists and states."""
    base = f"{root}/topology/clicks"
    kinesis(shell, base)
    shell.set(f"{base}/{path}", b'{"checkpoint":"TRIM_HORIZON"}')
    with pytest.raises(CheckpointFormatError, match=f"{base}/{path}"):
        await read_kinesis_spout(zookeeper_server.hosts, root, "topology", "clicks", group=GROUP)


async def test_wrong_path_is_an_error_and_makes_nothing(
    zookeeper_server: ZooKeeperEndpoint, shell: Any, root: str
) -> None:
    """A typing error in the root must not look like a spout that has done nothing."""
    hosts = zookeeper_server.hosts
    with pytest.raises(StoreError, match="zkRoot and id"):
        await read_storm_kafka(hosts, root, "spout", topic="orders", group=GROUP)
    with pytest.raises(StoreError, match="zookeeperPrefix"):
        await read_kinesis_spout(hosts, root, "topology", "clicks", group=GROUP)
    with pytest.raises(ConfigurationError, match="absolute path"):
        await read_storm_kafka(hosts, f"{root}/..", "spout", topic="orders", group=GROUP)
    assert shell.exists(root) is None


async def test_slashes_around_names_mean_nothing(
    zookeeper_server: ZooKeeperEndpoint, shell: Any, root: str
) -> None:
    """A zkRoot may be empty, or have slashes at its ends."""
    write(shell, {f"{root}/partition_0": storm(partition=0)})
    for zk_root in ("", "/"):
        found = await read_storm_kafka(
            zookeeper_server.hosts, zk_root, f"{root}/", topic="orders", group=GROUP
        )
        assert [e.where for e in found.entries] == [f"{root}/partition_0"]


async def test_zookeeper_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transient one, after the time that a session may take."""
    monkeypatch.setattr("consumer_sdk.stores.exchange.legacy.SESSION_TIMEOUT", 0.2)
    with pytest.raises(TransientStoreError, match="no connection"):
        await read_storm_kafka("127.0.0.1:1", "/", "spout", topic="orders", group=GROUP)


@pytest.mark.parametrize("name", ["my spout", "zahlungen größer", "注文", "a+b %41~#?"])
async def test_names_of_any_letters_are_found(
    name: str, zookeeper_server: ZooKeeperEndpoint, shell: Any, root: str
) -> None:
    """A spout's id, topology or prefix is what somebody called it; ZooKeeper takes them."""
    hosts = zookeeper_server.hosts
    write(shell, {f"{root}/{name}/partition_0": storm(partition=0)})
    kinesis(shell, f"{root}/{name}/clicks")
    spout = await read_storm_kafka(hosts, root, name, topic="orders", group=GROUP)
    assert [each.where for each in spout.entries] == [f"{root}/{name}/partition_0"]
    below = await read_kinesis_spout(hosts, root, name, "clicks", group=GROUP)
    assert len(below.entries) == 2
