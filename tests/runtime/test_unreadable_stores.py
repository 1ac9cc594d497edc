"""A store that cannot be read at the start stops the consumer; it never means "start at latest"."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from consumer_sdk import CheckpointFormatError, Consumer, StoreError
from consumer_sdk.abc import CheckpointStore, StoreItem
from consumer_sdk.records import Assignment, Partition
from consumer_sdk.stores import LocalStore, MemoryStore, ZooKeeperStore
from consumer_sdk.testing import Faults
from consumer_sdk.testing.memory import MemoryAdapter, MemoryBroker
from consumer_sdk.testing.servers import ZooKeeperEndpoint

pytestmark = pytest.mark.asyncio

MakeStore = Callable[[], CheckpointStore]
PARTITION = Partition("s", "0")


@pytest.fixture
def broker() -> MemoryBroker:
    """A stream with three records."""
    broker = MemoryBroker()
    broker.create_stream("s")
    broker.append_all("s", [b"0", b"1", b"2"])
    return broker


@pytest.fixture(params=["memory", "local", pytest.param("zookeeper", marks=pytest.mark.zookeeper)])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """Makes handles on one store of each kind."""
    if request.param == "memory":
        return MemoryStore().handle
    if request.param == "local":
        return lambda: LocalStore(tmp_path / "state.db")
    server: ZooKeeperEndpoint = request.getfixturevalue("zookeeper_server")
    root = f"/unreadable-{uuid.uuid4().hex}"
    return lambda: ZooKeeperStore(server.hosts, root=root)


async def plant(make_store: MakeStore, text: str) -> None:
    """Another program has saved this as the checkpoint."""
    store, assignment = make_store(), Assignment(PARTITION, 1)
    await store.open()
    await store.claim("g", [assignment])
    await store.save("g", [StoreItem(assignment, text)])
    await store.aclose()


async def read_in_vain(broker: MemoryBroker, store: CheckpointStore, reason: str) -> None:
    """No record is handed out, the group's position stays, and the reason is raised."""
    seen: list[object] = []

    async def handle(message: object) -> None:
        seen.append(message)

    consumer = Consumer(MemoryAdapter(broker, "s", group="g"), store=store, start="latest")
    with pytest.raises(StoreError, match=reason):
        async with asyncio.timeout(300):
            await consumer.run(handle, handle_signals=False)
    assert (seen, broker.committed("g", "s")) == ([], {})


@pytest.mark.parametrize("text", ["garbage", "", "{}", "\x00", "[" * 10_000])
async def test_checkpoint_that_is_none_stops_the_consumer(
    broker: MemoryBroker, make_store: MakeStore, text: str
) -> None:
    """It stays for whoever looks, and stops the next one too."""
    await plant(make_store, text)
    for _ in range(2):
        await read_in_vain(broker, make_store(), "checkpoint")
    store = make_store()
    await store.open()
    assert await store.peek("g", [PARTITION]) == {PARTITION: text}
    await store.aclose()


async def test_memory_store_that_fails_for_good_stops_the_consumer(broker: MemoryBroker) -> None:
    """An error where no retry helps is raised."""
    faults = Faults(error=lambda _: CheckpointFormatError("the disk has rotted"))
    faults.fail_next("claim")
    await read_in_vain(broker, MemoryStore(faults=faults), "the disk has rotted")


async def test_file_that_is_no_database_stops_the_consumer(
    broker: MemoryBroker, tmp_path: Path
) -> None:
    """And stays as it is."""
    path = tmp_path / "state.db"
    path.write_bytes(b"these are not the bytes of a database" * 100)
    await read_in_vain(broker, LocalStore(path), "state.db")
    assert path.read_bytes().startswith(b"these are not")


async def test_folder_that_is_not_there_stops_the_consumer(
    broker: MemoryBroker, tmp_path: Path
) -> None:
    """The error names it."""
    await read_in_vain(broker, LocalStore(tmp_path / "absent" / "state.db"), "absent")


async def test_zookeeper_that_nobody_answers_for_stops_the_consumer(broker: MemoryBroker) -> None:
    """Port 1 of this host is nobody's."""
    store = ZooKeeperStore("127.0.0.1:1", session_timeout=1.0)
    await read_in_vain(broker, store, "no connection to ZooKeeper at 127.0.0.1:1")
