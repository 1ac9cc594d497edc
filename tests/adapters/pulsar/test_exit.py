"""Programs that end, on a real Pulsar: the client's threads end before the interpreter does."""

from __future__ import annotations

import asyncio
import sys
import uuid
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import PulsarServer

pytestmark = pytest.mark.pulsar

CLOSED = """
import asyncio
from consumer_sdk import Consumer
from consumer_sdk.adapters import PulsarAdapter

async def main():
    adapter = PulsarAdapter({topic!r}, service_url={url!r}, subscription="s", type="shared")
    async with Consumer(adapter):
        await asyncio.sleep(0.1)

asyncio.run(main())
"""
NOT_CLOSED = CLOSED.replace(
    "    async with Consumer(adapter):", "    await adapter.open(None)\n    if 1:"
)


async def end_of(code: str) -> tuple[int | None, bytes]:
    """The exit status of a program, and what it wrote to stderr."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stderr=pipe)
    _, errors = await process.communicate()
    return process.returncode, errors


@pytest.mark.parametrize("program", [CLOSED, NOT_CLOSED], ids=["closed", "not closed"])
async def test_programs_end_by_themselves_and_not_by_an_abort(
    pulsar_server: PulsarServer, program: str
) -> None:
    """Pulsar trap 6: one in ten was killed by a thread of the client that was late."""
    topic = f"exit-{uuid.uuid4().hex[:8]}"
    code = program.format(topic=topic, url=pulsar_server.service_url)
    for _ in range(8):
        ends = await asyncio.gather(*(end_of(code) for _ in range(3)))
        assert [status for status, _ in ends] == [0] * 3, ends
