"""A client of admin servers that sends exactly what a test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

POST = {"x-consumer-sdk": "1"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(address: str) -> Streams:
    """To ``http://host:port/`` or ``unix:/path``."""
    if address.startswith("unix:"):
        return await asyncio.open_unix_connection(address.removeprefix("unix:"))
    found = urlsplit(address)
    return await asyncio.open_connection(found.hostname, found.port)


async def ask(
    address: str,
    path: str,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> Answer:
    """One request on a connection of its own."""
    reader, writer = await connect(address)
    writer.write(request(path, method, {"connection": "close", **(headers or {})}, body))
    raw = await reader.read()
    writer.close()
    await writer.wait_closed()
    return _parsed(raw)


def request(path: str, method: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """As it is sent."""
    given = {"host": "localhost", "content-length": str(len(body)), **headers}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {text}" for name, text in given.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


def _parsed(raw: bytes) -> Answer:
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    pairs = (line.split(": ", 1) for line in lines)
    headers = {name.lower(): text for name, text in pairs}
    if headers.get("transfer-encoding") == "chunked":
        body = b"".join(_chunks(body))
    return Answer(int(first.split()[1]), headers, body)


def _chunks(body: bytes) -> Iterator[bytes]:
    while body:
        size, _, body = body.partition(b"\r\n")
        yield body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]


@asynccontextmanager
async def watching(address: str, prefix: str = "") -> AsyncIterator[AsyncIterator[Any]]:
    """The frames that a viewer gets; ends when the server ends the stream."""
    reader, writer = await connect(address)
    writer.write(request(f"{prefix}/api/events", "GET", {}))
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in head.splitlines()[0], head

    async def frames() -> AsyncIterator[Any]:
        async for line in reader:
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))
            elif line == b"0\r\n":
                return

    try:
        yield frames()
    finally:
        writer.close()
