"""A line to the coordinator of a group, which looks for it again while there is none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.errors import GroupCoordinatorNotAvailableError

from consumer_sdk.adapters.kafka.client.topics import describe_topics
from consumer_sdk.adapters.kafka.groups.messages import Answer, Request
from consumer_sdk.adapters.kafka.groups.structs import from_wire, to_wire

__all__ = ["TRANSIENT", "Line", "line_to"]

TRANSIENT = (14, 15, 16)
"""The coordinator loads the group, is none, or is another one: the first request of a group often finds that."""


class Line:
    """Requests to the coordinator of one group."""

    def __init__(self, client: AIOKafkaClient, group: str) -> None:
        self._client = client
        self.group = group

    async def ask(self, request: Request) -> Answer:
        """The answer, once the coordinator has one."""
        while (answer := from_wire(await self.send(to_wire(request)))).error in TRANSIENT:
            pass
        return answer

    async def send(self, request: Any) -> Any:
        """The response as the client gives it."""
        while True:
            try:
                node = await self._client.coordinator_lookup(CoordinationType.GROUP, self.group)
                await self._client.force_metadata_update()
                return await self._client.send(node, request, group=ConnectionGroup.COORDINATION)
            except GroupCoordinatorNotAvailableError:
                continue

    async def topic_id(self, topic: str) -> bytes:
        """Sixteen bytes."""
        found = (await describe_topics(self._client, [topic]))[topic].topic_id
        assert found is not None
        return found


@asynccontextmanager
async def line_to(servers: str, group: str) -> AsyncIterator[Line]:
    """A connection of its own."""
    client = AIOKafkaClient(bootstrap_servers=servers)
    await client.bootstrap()
    try:
        yield Line(client, group)
    finally:
        await client.close()
