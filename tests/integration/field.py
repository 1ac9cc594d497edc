"""One topic and one group on a real Kafka, and whole consumers on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.structs import OffsetAndMetadata

from consumer_sdk import Consumer, Message, Partition, RetryPolicy
from consumer_sdk.adapters.kafka.commits.metadata import read_metadata
from consumer_sdk.records import Checkpoint
from consumer_sdk.testing.conformance.adapters import Record
from tests.adapters.kafka.consumer_groups import member_ids
from tests.adapters.kafka.harness import KafkaHarness

__all__ = ["PATIENCE", "Field", "Place", "place", "until"]

PATIENCE = 300.0
"""Seconds until something that has to happen counts as missing; a busy machine is slow."""

Place = tuple[int, int]
"""A record's partition and offset."""


def place(message: Message) -> Place:
    """Where a message's record lies."""
    return int(message.partition.id), message.position


async def until(is_so: Callable[[], bool], what: str, *running: asyncio.Task[None]) -> None:
    """Waits for something to become true while these tasks go on."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while not is_so():
        for task in running:
            assert not task.done(), f"ended before {what}: {task.exception()!r}"
        assert asyncio.get_running_loop().time() < deadline, f"never: {what}"
        await asyncio.sleep(0.02)


class Field:
    """What one test needs of a Kafka.

    Attributes:
        kafka: makes topics and records.
        topic: the test's topic.
        seen_commits: every position of the group that `committed` has seen, by partition.
    """

    def __init__(self, kafka: KafkaHarness) -> None:
        self.kafka = kafka
        self.topic = ""
        self.seen_commits: dict[int, list[int]] = {}

    @property
    def group(self) -> str:
        """The group's name at the broker."""
        return f"g-{self.kafka.uid}"

    async def create(self, partitions: int = 1, **config: str) -> str:
        """Makes the test's topic."""
        self.topic = await self.kafka.create_stream(partitions, **config)
        return self.topic

    async def append(self, count: int, *, partition: int = 0, keys: int = 10) -> set[Place]:
        """Appends so many numbered records; returns where they lie."""
        rows = [Record(b"%d" % n, key=b"k%d" % (n % keys)) for n in range(count)]
        offsets = await self.kafka.append(self.topic, rows, partition)
        return {(partition, offset) for offset in offsets}

    def consumer(
        self,
        *topics: str,
        group: str = "g",
        adapter: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Consumer:
        """A consumer of the topic; ``adapter`` has the adapter's options."""
        adapter_options = {"session_timeout": 30.0, "rebalance_timeout": 20.0} | dict(adapter or {})
        made = self.kafka.make_adapter(self.topic, group, topics=topics, **adapter_options)
        options.setdefault("retry", RetryPolicy(max_attempts=3, initial=0.05, jitter=0.0))
        options.setdefault("flush_interval", 0.02)
        return Consumer(made, **options)

    @asynccontextmanager
    async def running(
        self,
        consumer: Consumer,
        handler: Callable[[Message], Awaitable[None]],
        **options: Any,
    ) -> AsyncIterator[asyncio.Task[None]]:
        """Runs the consumer in a task; stops it in the end, and raises what it raised."""
        task = asyncio.create_task(consumer.run(handler, handle_signals=False, **options))
        try:
            yield task
        finally:
            consumer.stop()
            async with asyncio.timeout(PATIENCE):
                await task

    async def committed(self) -> dict[int, int]:
        """The group's positions, as Kafka's own tools see them."""
        found = await self.kafka.admin.list_consumer_group_offsets(self.group)
        at = {tp.partition: each.offset for tp, each in found.items() if tp.topic == self.topic}
        for partition, offset in at.items():
            self.seen_commits.setdefault(partition, []).append(offset)
        return at

    async def commit(self, partition: int = 0) -> OffsetAndMetadata:
        """The group's commit, as Kafka's own tools see it."""
        tp = TopicPartition(self.topic, partition)
        found = await self.kafka.admin.list_consumer_group_offsets(self.group, partitions=[tp])
        return found[tp]

    async def checkpoint(self, partition: int = 0) -> Checkpoint:
        """What the group's commit says, as the next owner of the partition reads it."""
        found = await self.commit(partition)
        committed, _ = read_metadata(
            found.metadata,
            found.offset,
            group=self.group,
            partition=Partition(self.topic, str(partition)),
            identity=None,
        )
        return committed.checkpoint

    async def until_committed(self, wanted: Mapping[int, int]) -> None:
        """Waits until the group stands there."""
        async with asyncio.timeout(PATIENCE):
            while await self.committed() != wanted:
                await asyncio.sleep(0.02)

    async def state(self) -> str:
        """The group's state."""
        (answer,) = await self.kafka.admin.describe_consumer_groups([self.group])
        return str(answer.groups[0][2])

    async def until_state(self, wanted: str) -> None:
        """Waits until the group is in a state."""
        async with asyncio.timeout(PATIENCE):
            while await self.state() != wanted:
                await asyncio.sleep(0.02)

    async def until_members(self, count: int) -> None:
        """Waits until the group knows so many members; a classic one has shared the partitions out, too."""
        admin = self.kafka.admin
        async with asyncio.timeout(PATIENCE):
            while True:
                (answer,) = await admin.describe_consumer_groups([self.group])
                _, _, state, _, _, members, *_ = answer.groups[0]
                if (state, len(members)) == ("Stable", count):
                    return
                if not members and len(await member_ids(admin, self.group)) == count:
                    return
                await asyncio.sleep(0.02)

    async def commit_as_another(self, offset: int, metadata: str = "", group: str = "g") -> None:
        """Another program commits for the group, which has no members."""
        tp = TopicPartition(self.topic, 0)
        stranger = AIOKafkaConsumer(
            bootstrap_servers=self.kafka.servers,
            group_id=f"{group}-{self.kafka.uid}",
            enable_auto_commit=False,
        )
        await stranger.start()
        try:
            stranger.assign([tp])
            await stranger.commit({tp: OffsetAndMetadata(offset, metadata)})
        finally:
            await stranger.stop()

    async def read_all(self, topic: str, count: int) -> Sequence[Any]:
        """The first ``count`` records of a topic that may not be there yet."""
        async with asyncio.timeout(PATIENCE):
            while topic not in await self.kafka.admin.list_topics():
                await asyncio.sleep(0.02)
            reader = AIOKafkaConsumer(
                topic, bootstrap_servers=self.kafka.servers, auto_offset_reset="earliest"
            )
            await reader.start()
            try:
                return [await reader.getone() for _ in range(count)]
            finally:
                await reader.stop()
