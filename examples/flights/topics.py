"""The demo's topics: created at the start, counted, deleted at the end."""

from __future__ import annotations

import secrets
from contextlib import AsyncExitStack
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from consumer_sdk.testing.servers import KafkaEndpoint
from examples.flights.ledger import Origin
from examples.flights.produce import PARTITIONS

GROUP = "delays"


class Topics:
    """A new topic for the flights and one for their dead letters, where the consumer puts them.

    Attributes:
        server: the server's address.
        flights: the name of the topic.
        dead_letters: the name of the other one.
        dead: the origins of the dead letters read so far.
    """

    def __init__(self, kafka: KafkaEndpoint) -> None:
        self.server = kafka.bootstrap_servers
        self.flights = f"flights-{secrets.token_hex(4)}"
        self.dead: set[Origin] = set()
        self.dead_letters = f"{self.flights}-{GROUP}-DLQ"
        self._kafka = kafka
        self._stack = AsyncExitStack()
        self._reader: Any = None

    async def __aenter__(self) -> Self:
        """Makes the topics."""
        async with AsyncExitStack() as stack:
            for name in (self.flights, self.dead_letters):
                await self._kafka.create_topic(name, partitions=PARTITIONS)
            stack.push_async_callback(self._delete)
            self._reader = AIOKafkaConsumer(
                bootstrap_servers=self.server,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
            stack.push_async_callback(self._reader.stop)
            await self._reader.start()
            self._reader.assign(_partitions(self.dead_letters))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Deletes the topics."""
        await self._stack.aclose()

    async def _delete(self) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.server)
        await admin.start()
        await admin.delete_topics([self.flights, self.dead_letters])
        await admin.close()

    async def refresh(self) -> None:
        """Reads new dead letters."""
        for letters in (await self._reader.getmany(timeout_ms=0)).values():
            self.dead.update(origin(letter.headers) for letter in letters)

    async def ends(self) -> dict[int, int]:
        """The number of flights in each partition."""
        ends = await self._reader.end_offsets(_partitions(self.flights))
        return {at.partition: end for at, end in ends.items()}


def _partitions(topic: str) -> list[Any]:
    return [TopicPartition(topic, partition) for partition in range(PARTITIONS)]


def origin(headers: Any) -> Origin:
    """Where a dead letter comes from: partition and offset."""
    facts = dict(headers)
    return int(facts["dlq.partition"]), int(facts["dlq.position"])
