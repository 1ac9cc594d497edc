"""A consumer under load whose checkpoints are in ZooKeeper, and what must hold meanwhile."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from consumer_sdk import Consumer, Message
from consumer_sdk.abc import Adapter
from consumer_sdk.errors import TransientStoreError
from consumer_sdk.records import Partition
from consumer_sdk.stores import ZooKeeperStore
from consumer_sdk.testing import MemoryAdapter, MemoryBroker
from consumer_sdk.trackers import decode_checkpoint

SESSION_TIMEOUT = 6.0


class Load:
    """Records that are appended without a pause, a consumer of them, and what it saw.

    Args:
        hosts: of the ZooKeeper that has the checkpoints; it may have those of another load too.
    """

    partitions: Sequence[Partition] = [Partition("orders", str(number)) for number in range(4)]
    broker_kind = "memory"

    def __init__(self, hosts: str) -> None:
        self.hosts = hosts
        self.group = f"g-{uuid.uuid4().hex}"
        self.broker = MemoryBroker()
        self.broker.create_stream("orders", len(self.partitions))
        self.appended = 0
        self.is_appending = True
        self.seen: dict[tuple[str, int], int] = {}
        self.watermarks = dict.fromkeys(self.partitions, -1)

    def store(self) -> ZooKeeperStore:
        """A session of its own."""
        return ZooKeeperStore(self.hosts, session_timeout=SESSION_TIMEOUT)

    async def append(self) -> None:
        """Goes on until it is told to stop."""
        while self.is_appending:
            await self.append_some()
            await asyncio.sleep(0.01)

    async def append_some(self) -> None:
        """A few records."""
        self.broker.append_all("orders", [b"%d" % n for n in range(20)])
        self.appended += 20

    async def see(self, message: Message) -> None:
        """A handler that is in no hurry."""
        await asyncio.sleep(0.001)
        place = (message.partition.id, message.position)
        self.seen[place] = self.seen.get(place, 0) + 1

    async def watch(self) -> None:
        """Looks at the checkpoints whenever they can be read: none moves back."""
        store = self.store()
        await store.open()
        try:
            while True:
                with suppress(TransientStoreError):
                    await self.look(store)
                await asyncio.sleep(0.02)
        finally:
            await store.aclose()

    def watermark(self, partition: Partition, text: str) -> int:
        """What a checkpoint says is settled; -1 for nothing."""
        checkpoint = decode_checkpoint(
            text,
            broker=self.broker_kind,
            partition=partition,
            identity=None,
            decode_position=int,
        )
        return -1 if checkpoint.watermark is None else int(checkpoint.watermark)

    async def look(self, store: ZooKeeperStore) -> None:
        """Each watermark is at least what it was, and everything below it was processed."""
        for partition, text in (await store.peek(self.group, self.partitions)).items():
            at = -1 if text is None else self.watermark(partition, text)
            assert at >= self.watermarks[partition], f"{partition} moved back to {at}"
            self.watermarks[partition] = at
            assert all((partition.id, p) in self.seen for p in range(at + 1)), "skipped"

    def consumer(self, store: ZooKeeperStore) -> Consumer:
        """A member of the group."""
        return Consumer(self.adapter(), store=store, flush_interval=0.02, drain_timeout=1.0)

    def adapter(self) -> Adapter:
        """What it reads from."""
        return MemoryAdapter(self.broker, "orders", group=self.group)

    async def advances(self) -> None:
        """Waits until every partition's checkpoint has moved."""
        before = dict(self.watermarks)
        await until(lambda: all(self.watermarks[p] > before[p] for p in self.partitions))

    @asynccontextmanager
    async def running(self, store: ZooKeeperStore | None = None) -> AsyncIterator[None]:
        """Consumes, appends and watches; at the end everything is processed and durable."""
        consumer = self.consumer(store or self.store())
        async with asyncio.TaskGroup() as group:
            run = group.create_task(consumer.run(self.see, concurrency=50))
            append = group.create_task(self.append())
            watch = group.create_task(self.watch())
            await self.advances()
            yield
            await self.advances()
            self.is_appending = False
            await append
            await until(lambda: sum(at + 1 for at in self.watermarks.values()) == self.appended)
            consumer.stop()
            await run
            watch.cancel()
        assert len(self.seen) == self.appended


async def until(is_so: Callable[[], bool], patience: float = 300.0) -> None:
    """Waits for something that has to happen."""
    deadline = time.monotonic() + patience
    while not is_so():
        assert time.monotonic() < deadline, "never happened"
        await asyncio.sleep(0.02)


async def expire(store: ZooKeeperStore) -> None:
    """Ends a session behind its owner's back: somebody with the same id closes it.

    The two throw each other off the server, which may take more than one try.
    """
    assert store._bridge is not None
    client = store._bridge._client
    session = client.client_id
    while client.client_id == session:
        with suppress(KazooTimeoutError):
            await asyncio.to_thread(_close, KazooClient(store._hosts, client_id=session))
        await asyncio.sleep(0.2)


def _close(twin: KazooClient) -> None:
    try:
        twin.start(timeout=5)
        twin.stop()
    finally:
        twin.close()
