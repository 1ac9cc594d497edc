"""Runs an example as a reader would run it."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str, *arguments: str) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    """A running example; killed if it has not ended by itself."""
    return program(sys.executable, str(EXAMPLES / name), *arguments)


@asynccontextmanager
async def program(*command: str, **options: Any) -> AsyncIterator[asyncio.subprocess.Process]:
    """Any other program, likewise; options are those of `create_subprocess_exec`."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, **options
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def lines(process: asyncio.subprocess.Process, count: int) -> list[str]:
    """The next lines that it prints."""
    assert process.stdout is not None
    return [(await process.stdout.readline()).decode().rstrip() for _ in range(count)]


@contextmanager
def held_port() -> Iterator[str]:
    """A port that nobody else finds free, and that a server with ``SO_REUSEADDR`` may listen on."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield str(holder.getsockname()[1])
