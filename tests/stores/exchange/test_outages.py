"""Imports into a ZooKeeper that goes away in the middle."""

from __future__ import annotations

import uuid

import pytest

from consumer_sdk.errors import TransientStoreError
from consumer_sdk.records import Checkpoint, Partition
from consumer_sdk.stores import Entry, MemoryStore, ZooKeeperStore, import_checkpoints
from consumer_sdk.testing.servers import ZooKeeperEndpoint
from tests.stores.exchange_world import GROUP, entry, exported, file_of, opened, stored
from tests.stores.zookeeper_proxy import Proxy

BATCH = 50
WRITTEN = (0, 0, 0, 49, 49, 99, 99, 120)
"""Checkpoints after so many writes: a pin, then a claim and a save of each batch."""


@pytest.mark.zookeeper
@pytest.mark.parametrize(
    "write", [1, *(pytest.param(write, marks=pytest.mark.campaign) for write in (2, 4, 5, 7)), 3]
)
async def test_import_through_an_outage_is_whole_and_is_done_again(
    zookeeper_server: ZooKeeperEndpoint, write: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A typed error; each partition has all of its checkpoint or none; again, and all is there."""
    monkeypatch.setattr("consumer_sdk.stores.exchange.exchange.BATCH", BATCH)
    partitions = [Partition("orders", str(number)) for number in range(120)]
    pin = Entry("", GROUP, "orders@5f0c", None, "time:1")
    found = [entry(Checkpoint(n, n + 1, ((n + 5, n + 9),)), p) for n, p in enumerate(partitions)]
    source = MemoryStore()
    await import_checkpoints(source, [pin, *found])
    export = await exported(source)
    file = file_of(export)
    root = f"/outage-{uuid.uuid4().hex}"

    async with Proxy(zookeeper_server.hosts) as proxy:
        with pytest.raises(TransientStoreError):
            async with opened(ZooKeeperStore(proxy.hosts, root=root, session_timeout=2.0)) as store:
                proxy.go_down_at_write(write)
                await import_checkpoints(store, file)
        # A busy machine loses the session, and so ends the import, before that write.
        done = write - proxy.writes_left
        proxy.come_up()
        async with opened(ZooKeeperStore(proxy.hosts, root=root)) as store:
            texts = await stored(store, partitions)
            whole = [text == e.text for text, e in zip(texts, found, strict=True) if text]
            assert all(whole)
            assert len(whole) == WRITTEN[done]
            assert await store.pins(GROUP) == ({pin.stream: pin.text} if done else {})
            await import_checkpoints(store, file)
            assert await exported(store) == export
