"""A stream that was deleted and made again stops its consumers, with an error that helps."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path

import pytest

from consumer_sdk import CheckpointMismatchError, Consumer
from consumer_sdk.cli import main
from consumer_sdk.stores import LocalStore
from consumer_sdk.testing import MemoryAdapter, MemoryBroker

GUARD = 300


async def read(broker: MemoryBroker, path: Path, count: int) -> list[bytes | None]:
    """So many records of two streams, acked."""
    adapter = MemoryAdapter(broker, "old orders", "others", group="it's")
    async with (
        asyncio.timeout(GUARD),
        Consumer(adapter, store=LocalStore(path)) as consumer,
    ):
        found = []
        for _ in range(count):
            message = await anext(consumer)
            message.ack()
            found.append(message.value)
        await consumer.flush()
    return found


def test_error_names_the_command_that_lets_the_consumers_go_on(tmp_path: Path) -> None:
    """What it says can be pasted; the other stream's checkpoints stay."""
    path, broker = tmp_path / "state.db", MemoryBroker()
    for stream in ("old orders", "others"):
        broker.create_stream(stream)
        broker.append(stream, stream.encode())
    assert sorted(asyncio.run(read(broker, path, 2)), key=str) == [b"old orders", b"others"]
    broker.delete_stream("old orders")
    broker.create_stream("old orders")
    broker.append("old orders", b"new")

    with pytest.raises(CheckpointMismatchError, match=r"^old orders/0: .*made again") as raised:
        asyncio.run(read(broker, path, 1))
    found = re.search(r"run `(consumer-sdk .*)`, and start them", str(raised.value))
    assert found
    program, *arguments = shlex.split(found[1].replace("STORE_URL", f"sqlite://{path}"))
    assert program == "consumer-sdk"
    assert main(arguments) == 0
    assert asyncio.run(read(broker, path, 1)) == [b"new"]
