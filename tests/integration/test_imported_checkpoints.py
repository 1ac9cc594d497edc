"""A consumer on a real Kafka goes on from what was imported into its store."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from consumer_sdk.abc import CheckpointStore
from consumer_sdk.records import Checkpoint, Partition
from consumer_sdk.stores import LocalStore, ZooKeeperStore, import_checkpoints, read_storm_kafka
from consumer_sdk.testing.servers import ZooKeeperEndpoint
from tests.integration.field import PATIENCE, Field
from tests.stores.exchange.test_legacy_znodes import storm
from tests.stores.exchange_world import entry, exported, file_of, opened

pytestmark = [pytest.mark.kafka, pytest.mark.zookeeper]


async def taken(field: Field, store: CheckpointStore, count: int) -> list[int]:
    """The offsets of the first records that a new consumer is given, all acked."""
    async with asyncio.timeout(PATIENCE), field.consumer(store=store) as consumer:
        messages = [await anext(consumer) for _ in range(count)]
        assert all(message.ack() for message in messages)
        await consumer.flush()
    return [message.position for message in messages]


async def test_consumer_goes_on_where_a_storm_spout_has_stopped(
    field: Field, zookeeper_server: ZooKeeperEndpoint, tmp_path: Path
) -> None:
    """The first record is the one at the spout's offset."""
    topic, root = await field.create(), f"/storm-{uuid.uuid4().hex}"
    await field.append(20)
    shell = KazooClient(zookeeper_server.hosts)
    shell.start()
    try:
        data = storm(topic=topic, partition=0, offset=12)
        shell.create(f"{root}/spout/partition_0", data, makepath=True)
    finally:
        shell.stop()
        shell.close()
    found = await read_storm_kafka(
        zookeeper_server.hosts, root, "spout", topic=topic, group=field.group
    )
    path = tmp_path / "state.db"
    async with opened(LocalStore(path)) as store:
        await import_checkpoints(store, found.entries)

    assert await taken(field, LocalStore(path), 8) == list(range(12, 20))


async def test_group_moves_from_a_file_to_zookeeper_and_keeps_its_holes(
    field: Field, zookeeper_server: ZooKeeperEndpoint, tmp_path: Path
) -> None:
    """Only what was unsettled in the old store is read, and then what is new."""
    topic, path = await field.create(), tmp_path / "state.db"
    await field.append(20)
    with_holes = entry(
        Checkpoint(9, 10, ((11, 14), (16, 18))), Partition(topic, "0"), group=field.group
    )
    async with opened(LocalStore(path)) as old:
        await import_checkpoints(old, [with_holes])
        data = await exported(old, field.group)
    root = f"/sdk-{uuid.uuid4().hex}"
    async with opened(ZooKeeperStore(zookeeper_server.hosts, root=root)) as new:
        await import_checkpoints(new, file_of(data))

    store = ZooKeeperStore(zookeeper_server.hosts, root=root)
    assert await taken(field, store, 3) == [10, 15, 19]
