"""A line to the coordinator of a group, which looks for it again while there is none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiokafka.errors import GroupCoordinatorNotAvailableError

from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.client.lookups import Coordinator
from consumer_sdk.adapters.kafka.client.topics import describe_topics
from consumer_sdk.adapters.kafka.groups.messages import Answer, Request
from consumer_sdk.adapters.kafka.groups.structs import from_wire, to_wire

__all__ = ["TRANSIENT", "Line", "line_to"]

TRANSIENT = (14, 15, 16)
"""The coordinator loads the group, is none, or is another one: the first request of a group often finds that."""


class Line:
    """Requests to the coordinator of one group."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self.group = group

    async def ask(self, request: Request) -> Answer:
        """The answer, once the coordinator has one."""
        while (answer := from_wire(await self.send(to_wire(request)))).error in TRANSIENT:
            pass
        return answer

    async def send(self, request: Any) -> Any:
        """The response as it comes."""
        while True:
            try:
                return await self._cluster.send(Coordinator(self.group), request)
            except GroupCoordinatorNotAvailableError:
                continue

    async def topic_id(self, topic: str) -> bytes:
        """Sixteen bytes."""
        found = (await describe_topics(self._cluster, [topic]))[topic].topic_id
        assert found is not None
        return found


@asynccontextmanager
async def line_to(servers: str, group: str) -> AsyncIterator[Line]:
    """A connection of its own."""
    cluster = Cluster({"bootstrap_servers": servers})
    try:
        await cluster.open(60.0)
        yield Line(cluster, group)
    finally:
        await cluster.aclose()
