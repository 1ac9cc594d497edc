"""A server of ready-made answers: what the client sends, and what it makes of what it gets."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from consumer_sdk.adapters.kinesis.service.client import ClientService
from consumer_sdk.adapters.kinesis.service.connection import Connection
from consumer_sdk.testing.servers.ports import HOST

__all__ = [
    "ARN",
    "SUMMARY",
    "Answer",
    "Answering",
    "answering",
    "connection_to",
    "error",
    "gone",
    "opened",
]

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
SUMMARY = {
    "StreamDescriptionSummary": {
        "StreamName": "orders",
        "StreamARN": ARN,
        "StreamStatus": "ACTIVE",
        "StreamCreationTimestamp": 1_700_000_000.25,
        "RetentionPeriodHours": 24,
        "EnhancedMonitoring": [],
        "OpenShardCount": 1,
    }
}

Answer = dict[str, Any] | bytes | tuple[int, dict[str, Any] | bytes]
"""A body, with its status where that is not 200."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Answering:
    """Gives each operation its answers in order, the last of them for ever.

    Attributes:
        asked: the requests, as operation and parameters.
        headers: sent with each answer.
        url: where it is.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.headers: dict[str, str] = {}
        self.url = ""
        self._answers: dict[str, deque[Answer | Handler]] = {}

    def on(self, operation: str, *answers: Answer | Handler) -> None:
        """Sets what an operation, such as ``"GetRecords"``, is answered with."""
        self._answers[operation] = deque(answers)

    def count(self, operation: str) -> int:
        """How often it was asked for."""
        return sum(name == operation for name, _ in self.asked)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answers one request."""
        operation = request.headers["X-Amz-Target"].partition(".")[2]
        self.asked.append((operation, json.loads(await request.read())))
        answers = self._answers[operation]
        answer = answers.popleft() if len(answers) > 1 else answers[0]
        if callable(answer):
            return await answer(request)
        return self._response(answer)

    def _response(self, answer: Answer) -> web.Response:
        status, body = answer if isinstance(answer, tuple) else (200, answer)
        return web.Response(
            status=status,
            body=body if isinstance(body, bytes) else json.dumps(body).encode(),
            headers={"Content-Type": "application/x-amz-json-1.1", **self.headers},
        )


def error(code: str, message: str = "no", status: int = 400) -> Answer:
    """The answer of a service that refuses."""
    return status, {"__type": f"com.amazonaws.kinesis.v20131202#{code}", "message": message}


async def gone(request: web.Request) -> None:
    """Returns when the client has closed the connection of a request."""
    while request.transport is not None and not request.transport.is_closing():
        await asyncio.sleep(0.005)


@asynccontextmanager
async def answering() -> AsyncIterator[Answering]:
    """A server that runs; it knows a stream ``orders``, and nothing else yet."""
    server = Answering()
    server.on("DescribeStreamSummary", SUMMARY)
    app = web.Application(client_max_size=2**25)  # requests of 10 MiB, in base64
    app.router.add_post("/", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, HOST, 0)
    await site.start()
    server.url = site.name
    try:
        yield server
    finally:
        await runner.cleanup()


@asynccontextmanager
async def opened(url: str, stream: str = "orders", **options: Any) -> AsyncIterator[ClientService]:
    """A service that is open, with credentials and a region."""
    service = ClientService(stream, connection_to(url, **options))
    try:
        await service.open()
        yield service
    finally:
        await service.aclose()


def connection_to(url: str, **options: Any) -> Connection:
    """A connection with credentials and a region."""
    given = {
        "endpoint_url": url,
        "region_name": "us-east-1",
        "aws_access_key_id": "key",
        "aws_secret_access_key": "secret",
    }
    return Connection(**{**given, **options})
