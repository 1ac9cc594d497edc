"""Kafka, pulled."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupCoordinatorNotAvailableError

from consumer_sdk.testing.servers import ExternalKafka, KafkaServer
from tests.integration.spark_kills.processes import PATIENCE
from tests.integration.spark_kills.sink import Row
from tests.integration.spark_kills.stage import Stage, committed_end

__all__ = ["Kafka", "KafkaStage"]

Kafka = KafkaServer | ExternalKafka
PARTITIONS = 3


class KafkaStage(Stage):
    """A topic with three partitions; its group has its name.

    Args:
        server: where.
        topic: a name of the test's own.
    """

    def __init__(self, server: Kafka, topic: str) -> None:
        super().__init__()
        self.server = server
        self.servers = server.bootstrap_servers
        self.topic = topic
        self.url = f"kafka://{self.servers}/{topic}?group={topic}"
        self._producer = AIOKafkaProducer(
            bootstrap_servers=self.servers, enable_idempotence=True, request_timeout_ms=120_000
        )
        self._admin = AIOKafkaAdminClient(bootstrap_servers=self.servers)

    async def open(self) -> None:
        """Makes the topic."""
        await self.server.create_topic(self.topic, PARTITIONS)
        await self._producer.start()
        await self._admin.start()
        await self._until_coordinated()

    async def aclose(self) -> None:
        """Disconnects."""
        await self._admin.close()
        await self._producer.stop()

    async def send(self, values: list[bytes]) -> list[Row]:
        sends = [
            await self._producer.send(self.topic, value, partition=at % PARTITIONS)
            for at, value in enumerate(values)
        ]
        found = await asyncio.gather(*sends)
        return [
            Row(self.topic, str(at.partition), str(at.offset), value.decode())
            for at, value in zip(found, values, strict=True)
        ]

    async def group(self) -> Mapping[str, Any]:
        found = await self._admin.list_consumer_group_offsets(self.topic)
        return {str(tp.partition): each.offset for tp, each in found.items() if each.offset >= 0}

    async def _until_coordinated(self) -> None:
        """A broker's first group waits until the broker has made the topic of all groups."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await self.group()
                except GroupCoordinatorNotAvailableError:
                    await asyncio.sleep(0.1)
                else:
                    return

    def done(self, checkpoint: Path) -> Mapping[str, Any]:
        return {partition: int(text) for partition, text in committed_end(checkpoint).items()}

    async def lag(self) -> int:
        partitions = [TopicPartition(self.topic, n) for n in range(PARTITIONS)]
        async with AIOKafkaConsumer(bootstrap_servers=self.servers) as consumer:
            ends = await consumer.end_offsets(partitions)
        group = await self.group()
        return sum(end - group.get(str(tp.partition), 0) for tp, end in ends.items())
