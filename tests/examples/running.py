"""Runs an example as a reader would run it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


@asynccontextmanager
async def example(name: str, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A running example; killed if it has not ended by itself."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(EXAMPLES / name), *arguments, stdout=asyncio.subprocess.PIPE
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
