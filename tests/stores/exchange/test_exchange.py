"""Checkpoints out of one store and into another: unchanged, and a consumer goes on from them."""

from __future__ import annotations

import asyncio
import tempfile
import uuid
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from consumer_sdk import Consumer, Message
from consumer_sdk.abc import CheckpointStore
from consumer_sdk.errors import (
    CheckpointFormatError,
    PartitionLostError,
)
from consumer_sdk.records import Checkpoint, Partition
from consumer_sdk.stores import (
    Entry,
    Imported,
    LocalStore,
    MemoryStore,
    ZooKeeperStore,
    import_checkpoints,
)
from consumer_sdk.testing import MemoryAdapter, MemoryBroker
from consumer_sdk.testing.servers import ZooKeeperEndpoint
from tests.stores.exchange_world import (
    AT_41,
    GROUP,
    SECOND,
    entries,
    entry,
    exported,
    file_of,
    opened,
    own,
    replace_text,
    stored,
)


async def into_all(found: Sequence[Entry], *stores: CheckpointStore) -> None:
    """From each store into the next one; all have the same in the end, and export the same."""
    data = b""
    for store in stores:
        if data:
            done = await import_checkpoints(store, file_of(data))
            assert done == Imported(written=len(found), kept=0)
        else:
            await import_checkpoints(store, found)
        data = await exported(store)
        partitions = [e.partition for e in found if e.id is not None]
        texts = [e.text for e in found if e.id is not None]
        assert await stored(store, partitions) == texts
        assert await store.pins(GROUP) == {e.stream: e.text for e in found if e.id is None}
        assert data == await exported(stores[0])


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(entries())
def test_checkpoints_go_through_a_file_unchanged(found: list[Entry]) -> None:
    """Byte by byte, whatever the names, positions, identities and times."""

    async def move(folder: str) -> None:
        async with opened(LocalStore(Path(folder) / "state.db")) as local:
            await into_all(found, MemoryStore(), local, MemoryStore())

    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        runner.run(move(folder))


@pytest.mark.zookeeper
@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(found=entries())
def test_checkpoints_go_through_a_real_zookeeper_unchanged(
    zookeeper_server: ZooKeeperEndpoint, found: list[Entry]
) -> None:
    """From a file into znodes, from there into a file and into memory."""

    async def move(folder: str) -> None:
        root = f"/exchange-{uuid.uuid4().hex}"
        async with AsyncExitStack() as stack:
            local, zookeeper, other = [
                await stack.enter_async_context(opened(store))
                for store in (
                    LocalStore(Path(folder) / "state.db"),
                    ZooKeeperStore(zookeeper_server.hosts, root=root),
                    LocalStore(Path(folder) / "other.db"),
                )
            ]
            await into_all(found, local, zookeeper, other, MemoryStore())

    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        runner.run(move(folder))


async def test_export_of_one_stream_leaves_the_others_out() -> None:
    """Its partitions, and the starts pinned for any identity of it and any application."""
    store, others = MemoryStore(), Partition("payments", "0")
    await own(store, entry(AT_41), entry(AT_41, others))
    for name in ("orders", "orders@abc", "payments", "payments2", "payments@abc", "payments#v2"):
        await store.pin(GROUP, name, "time:1")

    found = list(file_of(await exported(store, stream="payments")))
    assert [(e.stream, e.id) for e in found] == [
        ("payments", None),
        ("payments#v2", None),
        ("payments@abc", None),
        ("payments", "0"),
    ]


async def test_export_of_nothing_is_a_file_that_imports_nothing() -> None:
    """A group without checkpoints."""
    data = await exported(MemoryStore())

    assert await import_checkpoints(MemoryStore(), file_of(data)) == Imported(0, 0)


async def test_export_refuses_what_no_import_would_take() -> None:
    """A backup that cannot be read back is found out while there is something to back up."""
    store = MemoryStore()
    await own(store, entry(AT_41), replace_text(entry(AT_41, SECOND), "text"))

    with pytest.raises(CheckpointFormatError, match="orders/1"):
        await exported(store)


async def test_consumer_goes_on_from_what_was_imported(tmp_path: Path) -> None:
    """It reads what was settled nowhere, and no record that was settled in the other store."""
    broker = MemoryBroker()
    broker.create_stream("orders", partitions=1)
    for number in range(10):
        broker.append("orders", b"%d" % number)
    source = MemoryStore()
    settled = {b"0", b"1", b"2", b"5", b"7"}
    await consume(broker, source, lambda message: message.value in settled, 10)
    async with opened(LocalStore(tmp_path / "state.db")) as target:
        await import_checkpoints(target, file_of(await exported(source)))
        seen = await consume(broker, target, lambda _: True, 5)
    assert set(seen) == {b"3", b"4", b"6", b"8", b"9"}


async def test_running_consumer_goes_on_from_what_was_imported() -> None:
    """Its next flush is refused; it is granted the partition again, and reads on from there."""
    broker, store = MemoryBroker(), MemoryStore()
    broker.create_stream("orders", partitions=1)
    for number in range(10):
        broker.append("orders", b"%d" % number)
    consumer = Consumer(
        MemoryAdapter(broker, "orders", group=GROUP), store=store, drain_timeout=0.1
    )
    async with asyncio.timeout(300), consumer:
        first, second = [await anext(consumer) for _ in range(2)]
        first.ack()
        await consumer.flush()
        await import_checkpoints(store.handle(), [entry(Checkpoint(6, 7), broker="memory")])
        second.ack()
        with pytest.raises(PartitionLostError):
            await consumer.flush()
        assert [(await anext(consumer)).position for _ in range(3)] == [7, 8, 9]


async def consume(
    broker: MemoryBroker, store: CheckpointStore, accept: Callable[[Message], bool], count: int
) -> list[bytes]:
    """Takes ``count`` messages in a consumer of its own and settles some of them."""
    seen: list[bytes] = []
    consumer = Consumer(
        MemoryAdapter(broker, "orders", group=GROUP), store=store, drain_timeout=0.1
    )
    async with consumer:
        async for message in consumer:
            seen.append(message.value or b"")
            if accept(message):
                message.ack()
            if len(seen) == count:
                break
        await consumer.flush()
    return seen
