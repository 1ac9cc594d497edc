"""A Kafka broker that answers by a script, on a port of its own: what a real one cannot be brought to say in time."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from io import BytesIO
from typing import Any, Self

from aiokafka.protocol.admin import ApiVersionRequest_v0, ApiVersionResponse_v0
from aiokafka.protocol.api import RequestHeader_v1, RequestHeader_v2
from aiokafka.protocol.commit import OffsetFetchRequest_v1
from aiokafka.protocol.coordination import FindCoordinatorRequest_v1
from aiokafka.protocol.group import HeartbeatRequest_v1
from aiokafka.protocol.types import Int32

from consumer_sdk.adapters.kafka.client.lookups import (
    FindCoordinatorRequestV4,
    FindCoordinatorResponseV4,
    ListOffsetsRequestV4,
    ListOffsetsResponseV4,
)
from consumer_sdk.adapters.kafka.client.protocol import MetadataRequestV12, MetadataResponseV12
from consumer_sdk.adapters.kafka.share.offsets import (
    DescribeOffsetsRequestV0,
    DescribeOffsetsRequestV1,
)
from consumer_sdk.testing.servers.ports import HOST

__all__ = ["COORDINATOR", "HEARTBEAT", "LIST_OFFSETS", "METADATA", "ScriptedBroker", "topic"]

LIST_OFFSETS, METADATA, OFFSET_FETCH, COORDINATOR, HEARTBEAT, VERSIONS = 2, 3, 9, 10, 12, 18
REQUESTS: Sequence[Any] = (
    ApiVersionRequest_v0,
    DescribeOffsetsRequestV0,
    DescribeOffsetsRequestV1,
    FindCoordinatorRequest_v1,
    FindCoordinatorRequestV4,
    HeartbeatRequest_v1,
    ListOffsetsRequestV4,
    MetadataRequestV12,
    OffsetFetchRequest_v1,
)
NEWEST = {LIST_OFFSETS: 4, METADATA: 12, OFFSET_FETCH: 5, COORDINATOR: 4, HEARTBEAT: 1}

Script = Callable[[Any], Awaitable[Any]]


def topic(
    name: str,
    *leaders: tuple[int, int],
    error: int = 0,
    topic_id: bytes = b"i" * 16,
) -> tuple[Any, ...]:
    """A topic of an answer of metadata: (node, epoch) of each partition's leader."""
    partitions: list[Any] = [
        (0, number, node, epoch, [node], [node], [], {})
        for number, (node, epoch) in enumerate(leaders)
    ]
    return error, name, topic_id, False, partitions, 0, {}


class ScriptedBroker:
    """One node.

    Args:
        node: its number; it names itself as the cluster's only one.

    Attributes:
        topics: what it says of them.
        scripts: API key → what answers instead; one that returns None says nothing, one that raises closes the connection.
        newest: API key → the newest version that it knows.
        asked: how often, by API key.
        seen: the requests, but for those of the versions.
        connections: how many there have been.
    """

    def __init__(self, node: int = 1) -> None:
        self.node = node
        self.topics: list[Any] = []
        self.others: list[ScriptedBroker] = []
        self.scripts: dict[int, Script] = {}
        self.newest = dict(NEWEST)
        self.asked: Counter[int] = Counter()
        self.seen: list[Any] = []
        self.connections = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def listen(self) -> None:
        """On another port each time."""
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Ends its connections, and listens no more."""
        self._server.close()
        self.hang_up()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def hang_up(self) -> None:
        """Ends its connections."""
        for writer in list(self._writers):
            writer.close()

    @property
    def open_connections(self) -> int:
        """Those that there are now."""
        return len(self._writers)

    @property
    def address(self) -> str:
        """For ``bootstrap_servers``."""
        return f"{HOST}:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        self._writers.add(writer)
        self.connections += 1
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                while True:
                    (size,) = struct.unpack(">i", await reader.readexactly(4))
                    await self._reply(await reader.readexactly(size), writer)
        finally:
            writer.close()
            self._writers.discard(writer)
            self._tasks.discard(task)

    async def _reply(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        key, version = struct.unpack_from(">hh", data)
        kind = next(r for r in REQUESTS if (key, version) == (r.API_KEY, r.API_VERSION))
        stream = BytesIO(data)
        header = RequestHeader_v2 if kind.FLEXIBLE_VERSION else RequestHeader_v1
        (_key, _version, correlation, *_) = [f.decode(stream) for f in header.SCHEMA.fields]
        request = kind.decode(stream)
        self.asked[key] += 1
        if key != VERSIONS:
            self.seen.append(request)
        script = self.scripts.get(key) or getattr(self, f"_answer_{key}")
        answer = await script(request)
        if answer is None:
            return
        tags = b"\0" if kind.FLEXIBLE_VERSION else b""
        body = Int32.encode(correlation) + tags + answer.encode()
        writer.write(Int32.encode(len(body)) + body)

    async def _answer_18(self, _request: Any) -> Any:
        return ApiVersionResponse_v0(0, [(k, 0, newest) for k, newest in self.newest.items()])

    async def _answer_3(self, request: Any) -> Any:
        return self.metadata(request.topics)

    def metadata(self, wanted: Any = None) -> Any:
        """What it knows of some topics, or of all."""
        nodes: list[Any] = [(b.node, HOST, b.port, None, {}) for b in [self, *self.others]]
        known = {entry[1]: entry for entry in self.topics}
        names = known if wanted is None else [name for _id, name, _tags in wanted]
        told = [known.get(name) or topic(name, error=3, topic_id=bytes(16)) for name in names]
        return MetadataResponseV12(0, nodes, "cluster", self.node, told, {})

    async def _answer_10(self, request: Any) -> Any:
        (key,) = request.keys
        found: Any = (key, self.node, HOST, self.port, 0, "", {})
        return FindCoordinatorResponseV4(0, [found], {})

    async def _answer_2(self, request: Any) -> Any:
        """Each time lies at 7, in epoch 3."""
        topics = [(name, [(p, 0, -1, 7, 3) for p, *_ in ps]) for name, ps in request.topics]
        return ListOffsetsResponseV4(0, topics)

    async def _answer_12(self, request: Any) -> Any:
        return HeartbeatRequest_v1.RESPONSE_TYPE(0, 0)
