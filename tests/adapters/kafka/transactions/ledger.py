"""What somebody sees who reads ``read_committed``, and a consumer that sends one output for each record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from consumer_sdk import Consumer, Message
from consumer_sdk.adapters import KafkaAdapter, KafkaTransactions
from tests.adapters.kafka.harness import KafkaHarness
from tests.adapters.kafka.world import numbered

__all__ = ["Stage", "outputs_of", "until"]


async def outputs_of(servers: str, topic: str, *, is_committed: bool = True) -> list[Any]:
    """All records of a topic up to where it ends now, by partition and offset."""
    level = "read_committed" if is_committed else "read_uncommitted"
    reader = AIOKafkaConsumer(bootstrap_servers=servers, isolation_level=level)
    async with reader:
        known = await reader._client.fetch_all_metadata()
        tps = [TopicPartition(topic, n) for n in sorted(known.partitions_for_topic(topic) or ())]
        if not tps:
            return []
        reader.assign(tps)
        await reader.seek_to_beginning(*tps)
        found: dict[TopicPartition, list[Any]] = {tp: [] for tp in tps}
        ends = await reader.end_offsets(tps)
        while any([await reader.position(tp) < ends[tp] for tp in tps]):
            for tp, records in (await reader.getmany(timeout_ms=200)).items():
                found[tp] += records
    return [record for tp in tps for record in found[tp]]


async def until(
    happened: Callable[[], Awaitable[bool]], running: asyncio.Task[None] | None = None
) -> None:
    """Looks again and again; a consumer that ends raises what it ended with."""
    while not await happened():
        if running is not None and running.done():
            running.result()
            raise AssertionError("the consumer ended by itself")
        await asyncio.sleep(0.05)


class Stage:
    """A topic to read, one to write, and a group.

    Attributes:
        source, target: names of topics.
        seen: positions of all deliveries.
    """

    def __init__(self, kafka: KafkaHarness) -> None:
        self.kafka = kafka
        self.group = "g"
        self.source = self.target = ""
        self.seen: list[tuple[str, int]] = []

    async def build(self, records: int = 0, partitions: int = 1) -> Stage:
        """Makes the topics; record n of a partition has the value n."""
        self.source = await self.kafka.create_stream(partitions)
        self.target = await self.kafka.create_stream(2)
        for partition in range(partitions):
            await self.kafka.append(self.source, numbered(0, records), partition)
        return self

    @property
    def name(self) -> str:
        """A transactional id of this test's own."""
        return f"tx-{self.source}"

    def adapter(self, **options: Any) -> KafkaAdapter:
        """Of the group."""
        return self.kafka.make_adapter(self.source, self.group, **options)

    def consumer(self, adapter: KafkaAdapter | None = None, **options: Any) -> Consumer:
        """Flushes often."""
        return Consumer(adapter or self.adapter(), **({"flush_interval": 0.02} | options))

    def transactions(self, **options: Any) -> KafkaTransactions:
        """Of one consumer."""
        return KafkaTransactions(**({"transactional_id": self.name} | options))

    async def echo(self, message: Message) -> None:
        """Sends where the record comes from."""
        self.seen.append((message.partition.id, message.position))
        message.send(self.target, self.mark(message), key=message.key, headers=[("n", b"1")])

    @staticmethod
    def mark(message: Message) -> bytes:
        """Names a record."""
        return f"{message.partition.id}:{message.position}".encode()

    @asynccontextmanager
    async def running(
        self,
        handler: Callable[[Message], Awaitable[None]] | None = None,
        consumer: Consumer | None = None,
        transactions: KafkaTransactions | None = None,
        **options: Any,
    ) -> AsyncIterator[asyncio.Task[None]]:
        """A consumer that runs, and is stopped in the end."""
        consumer = consumer or self.consumer()
        run = consumer.run(
            handler or self.echo,
            transactions=transactions or self.transactions(),
            handle_signals=False,
            **options,
        )
        task = asyncio.create_task(run)
        try:
            yield task
        finally:
            consumer.stop()
            await asyncio.wait({task})
        task.result()

    async def committed(self) -> dict[int, int]:
        """Where the group stands."""
        return {n: at.offset for n, at in (await self.commits()).items() if at.offset >= 0}

    async def commits(self) -> dict[int, Any]:
        """The group's commits, by partition."""
        group = f"{self.group}-{self.kafka.uid}"
        try:
            found = await self.kafka.admin.list_consumer_group_offsets(group)
        except KafkaError:  # the broker makes its topic for groups
            return {}
        return {tp.partition: at for tp, at in found.items()}

    async def is_at(self, offset: int, partitions: int = 1) -> bool:
        """The group has settled so many records of each partition."""
        return await self.committed() == dict.fromkeys(range(partitions), offset)

    async def ledger(self, *, is_committed: bool = True) -> list[str]:
        """The values that were written."""
        found = await outputs_of(self.kafka.servers, self.target, is_committed=is_committed)
        return [record.value.decode() for record in found]

    def marks(self, records: int, partitions: int = 1) -> list[str]:
        """Of all records, sorted as texts."""
        return sorted(f"{p}:{n}" for p in range(partitions) for n in range(records))
