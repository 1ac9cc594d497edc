"""Pulsar, pulled."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from consumer_sdk.adapters.pulsar.client.ids import place_of
from consumer_sdk.checkpoints.positions import decode_message_id, encode_message_id
from consumer_sdk.testing.servers import PulsarEndpoint
from consumer_sdk.testing.servers.pulsar.endpoint import call, path_of
from tests.integration.spark_kills.sink import Row
from tests.integration.spark_kills.stage import Stage, committed_end

__all__ = ["PulsarStage"]

GROUP = "spark"
PARTITIONS = 2


class PulsarStage(Stage):
    """A topic with two partitions, of entries with one message and of such with many.

    Args:
        server: where.
        topic: a name of the test's own.
    """

    def __init__(self, server: PulsarEndpoint, topic: str) -> None:
        super().__init__()
        self.server = server
        self.topic = f"persistent://public/default/{topic}"
        address = server.service_url.removeprefix("pulsar://")
        query = f"subscription={GROUP}&admin_url={server.admin_url}"
        self.url = f"pulsar://{address}/{topic}?{query}"
        self._begins: Mapping[str, Any] = {}

    async def open(self) -> None:
        """Makes the topic, and the subscription, which keeps it from the first record on."""
        await self.server.create_topic(self.topic, PARTITIONS)
        await self.server.create_subscription(self.topic, GROUP)
        self._begins = await self.group()

    async def send(self, values: list[bytes]) -> list[Row]:
        part = self._part(self.next // len(values) % PARTITIONS)
        is_batch = self.next // len(values) % 3 == 0
        ids = await self.server.produce(part, values, batch=is_batch)
        number = part.rpartition("-")[2]
        return [
            Row(self.topic, number, encode_message_id(place_of(each)), value.decode())
            for each, value in zip(ids, values, strict=True)
        ]

    async def group(self) -> Mapping[str, Any]:
        numbers = range(PARTITIONS)
        found = await asyncio.gather(*(self._next(self._part(number)) for number in numbers))
        return {str(number): at for number, at in zip(numbers, found, strict=True)}

    def done(self, checkpoint: Path) -> Mapping[str, Any]:
        texts = committed_end(checkpoint)
        return {**self._begins, **{part: decode_message_id(text) for part, text in texts.items()}}

    async def lag(self) -> int:
        return await self.server.backlog(self.topic, GROUP)

    async def _next(self, part: str) -> tuple[int, int, int]:
        """What follows the entry that the broker has as the last one that is done."""
        path = f"{path_of(part)}/internalStats"
        found = await asyncio.to_thread(call, self.server.admin_url, "GET", path)
        ledger, entry = map(int, found["cursors"][GROUP]["markDeletePosition"].split(":"))
        return ledger, entry + 1, 0

    def _part(self, number: int) -> str:
        return f"{self.topic}-partition-{number}"
