"""`FakeKinesis` over HTTP, for any client of Kinesis; with a plan of what goes wrong.

SubscribeToShard answers with an event stream. A frame of it is its length, the length of its
headers, a checksum of both, the headers, the payload, and a checksum of all
(https://smithy.io/2.0/aws/amazon-eventstream.html).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import zlib
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from email.utils import formatdate
from functools import cache, cached_property
from typing import Any, Literal, Self

from aiobotocore.session import get_session
from aiohttp import web

from consumer_sdk.testing.kinesis.errors import RefusedError
from consumer_sdk.testing.kinesis.fanout import Subscription, follow
from consumer_sdk.testing.kinesis.model import FakeKinesis
from consumer_sdk.testing.kinesis.operations import Operations
from consumer_sdk.testing.kinesis.shapes import event_shape
from consumer_sdk.testing.servers.kinesis.endpoint import KinesisEndpoint

__all__ = ["FakeKinesisServer"]

CONTENT_TYPE = "application/x-amz-json-1.1"
STRING = 7
"""The type number of a header whose value is text."""

OVERHEAD = 16
"""Bytes of a frame beside headers and payload."""


def _event_frame(name: str, payload: Mapping[str, Any]) -> bytes:
    """An event of that type."""
    headers = {":event-type": name, ":content-type": CONTENT_TYPE, ":message-type": "event"}
    return _frame(headers, payload)


def _exception_frame(code: str, message: str) -> bytes:
    """An error in the midst of a stream; it is the last frame."""
    headers = {
        ":exception-type": code,
        ":content-type": CONTENT_TYPE,
        ":message-type": "exception",
    }
    return _frame(headers, {"message": message})


def _frame(headers: Mapping[str, str], payload: Mapping[str, Any]) -> bytes:
    head = b"".join(_header(name, value) for name, value in headers.items())
    body = json.dumps(payload).encode()
    prelude = struct.pack(">II", OVERHEAD + len(head) + len(body), len(head))
    checked = prelude + struct.pack(">I", zlib.crc32(prelude)) + head + body
    return checked + struct.pack(">I", zlib.crc32(checked))


def _header(name: str, value: str) -> bytes:
    return (
        struct.pack(">B", len(name))
        + name.encode()
        + struct.pack(">BH", STRING, len(value))
        + value.encode()
    )


INITIAL_RESPONSE = _event_frame("initial-response", {})
"""What a client waits for before the first event."""


Kind = Literal["refuse", "drop", "lose", "stall"]


@dataclass(frozen=True, slots=True)
class _Trouble:
    """One thing to go wrong.

    Attributes:
        kind: ``"refuse"``: an error is answered; ``"drop"``: the connection breaks before
            anything is done; ``"lose"``: it breaks when all is done; ``"stall"``: no answer comes.
        code: AWS's name of the error.
        status: of HTTP; 500 and above are errors of the server.
    """

    kind: Kind
    code: str = ""
    status: int = 400


class _Troubles:
    """Plans, by the operation's name; each is used once."""

    def __init__(self) -> None:
        self._plans: dict[str, deque[_Trouble]] = {}

    def add(self, operation: str, trouble: _Trouble, times: int) -> None:
        """Plans it for the next requests."""
        self._plans.setdefault(operation, deque()).extend([trouble] * times)

    def take(self, operation: str) -> _Trouble | None:
        """What is to go wrong with this request."""
        plan = self._plans.get(operation)
        return plan.popleft() if plan else None


async def _inject(request: web.Request, trouble: _Trouble | None) -> None:
    """Does what is planned to go wrong before the effect.

    Raises:
        RefusedError: an error is to be answered.
    """
    if trouble is None or trouble.kind == "lose":
        return
    if trouble.kind == "refuse":
        raise RefusedError(trouble.code, "injected")
    if trouble.kind == "drop":
        _break_connection(request)
    await asyncio.get_running_loop().create_future()  # cancelled when the client has gone


def _break_connection(request: web.Request) -> None:
    """Cuts it off, without a word."""
    if request.transport is not None:
        request.transport.abort()


JSON = "application/x-amz-json-1.1"
EVENTS = "application/vnd.amazon.eventstream"
SUBSCRIBE = "SubscribeToShard"
EVENT = "SubscribeToShardEvent"
SERVER_ERRORS = {"InternalFailure", "InternalFailureException", "ServiceUnavailable"}
MOST_BODY = 32 * 1024 * 1024
PATIENCE = 0.1
"""Real seconds that open requests are given when the server closes."""


class FakeKinesisServer(KinesisEndpoint):
    """A Kinesis on a free port of 127.0.0.1, in the event loop of the test.

    ::

        async with FakeKinesisServer() as server:
            server.kinesis.create_stream("orders", shards=4)
            server.fail_next("GetRecords", "ProvisionedThroughputExceededException")

    Args:
        kinesis: the model that it serves; one of its own by default.
        sends_initial_response: whether a subscription begins with the frame that AWS begins with.

    Attributes:
        calls: how often each operation was asked for.
    """

    def __init__(
        self, kinesis: FakeKinesis | None = None, *, sends_initial_response: bool = True
    ) -> None:
        self.kinesis = kinesis or FakeKinesis()
        self.calls: dict[str, int] = {}
        self._operations = Operations(self.kinesis)
        self._sends_initial_response = sends_initial_response
        self._troubles = _Troubles()
        self._runner: web.AppRunner | None = None
        self._url: str | None = None

    @property
    def endpoint_url(self) -> str:
        """``http://127.0.0.1:port`` for clients, once the server is open.

        Raises:
            RuntimeError: it never was.
        """
        if self._url is None:
            raise RuntimeError("the server is not open: use it with `async with`")
        return self._url

    async def open(self) -> None:
        """Listens."""
        app = web.Application(client_max_size=MOST_BODY)
        app.router.add_post("/", self._answer)
        # A handler is cancelled when its client goes away: the subscription ends with it.
        self._runner = web.AppRunner(
            app, handler_cancellation=True, shutdown_timeout=PATIENCE, access_log=None
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self._url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def aclose(self) -> None:
        """Breaks all connections. Idempotent."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def fail_next(self, operation: str, code: str, *, times: int = 1) -> None:
        """Refuses the next requests; ``"SubscribeToShardEvent"`` fails within a subscription.

        Args:
            operation: such as ``"GetRecords"``.
            code: AWS's name of an error; ``"InternalFailure"`` has status 500.
            times: how many requests.
        """
        trouble = _Trouble("refuse", code, 500 if code in SERVER_ERRORS else 400)
        self._troubles.add(operation, trouble, times)

    def break_next(self, operation: str, how: Kind = "drop", *, times: int = 1) -> None:
        """Gives the next requests no answer.

        Args:
            how: ``"drop"``: the connection breaks before anything is done, ``"lose"``: after it;
                ``"stall"``: nothing comes until the client gives up or the server closes. For
                ``"SubscribeToShardEvent"`` it is the subscription that breaks or falls silent.
        """
        self._troubles.add(operation, _Trouble(how), times)

    @cached_property
    def _session(self) -> Any:
        # Servers are made by the test, and each session reads a large model.
        return _session()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        operation = request.headers.get("X-Amz-Target", "").rpartition(".")[2]
        self.calls[operation] = self.calls.get(operation, 0) + 1
        content = await request.read()
        trouble = self._troubles.take(operation)
        try:
            body = _parsed(content)
            await _inject(request, trouble)
            if operation == SUBSCRIBE:
                return await self._subscribed(request, self._operations.subscribe(body))
            answer = self._operations.answer(operation, body)
        except RefusedError as error:
            return self._refusal(error, trouble.status if trouble else 400)
        if trouble is not None and trouble.kind == "lose":
            _break_connection(request)
        return self._response(answer)

    async def _subscribed(
        self, request: web.Request, subscription: Subscription
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers=self._headers(EVENTS))
        # A client that has gone is no error: it has unsubscribed.
        with contextlib.suppress(ConnectionError):
            await response.prepare(request)
            if self._sends_initial_response:
                await response.write(INITIAL_RESPONSE)
            async with aclosing(self._frames(request, subscription)) as frames:
                async for frame in frames:
                    await response.write(frame)
            await response.write_eof()
        return response

    async def _frames(
        self, request: web.Request, subscription: Subscription
    ) -> AsyncGenerator[bytes, None]:
        try:
            async with aclosing(follow(subscription)) as events:
                async for event in events:
                    await _inject(request, self._troubles.take(EVENT))
                    yield _event_frame(EVENT, event_shape(event))
        except RefusedError as error:
            yield _exception_frame(error.code, error.message)

    def _response(self, answer: Any) -> web.Response:
        body = b"" if answer is None else json.dumps(answer).encode()
        return web.Response(body=body, headers=self._headers(JSON))

    def _refusal(self, error: RefusedError, status: int) -> web.Response:
        body = json.dumps({"__type": error.code, "message": error.message}).encode()
        return web.Response(body=body, status=status, headers=self._headers(JSON))

    def _headers(self, content_type: str) -> dict[str, str]:
        date = formatdate(self.kinesis.clock.wall(), usegmt=True)
        return {"Content-Type": content_type, "Date": date, "x-amzn-RequestId": "fake"}


@cache
def _session() -> Any:
    return get_session()


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content or b"{}")
    except ValueError as error:
        raise RefusedError("SerializationException", str(error)) from error
