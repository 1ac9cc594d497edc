"""A program that is sent signals: ``python -m tests.runtime.signalled_program CASE``.

It prints ``ready``, and in the end what it has heard, in order.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from typing import Any

from consumer_sdk import Consumer, Group, Message
from consumer_sdk.testing import MemoryAdapter, MemoryBroker

heard: list[str] = []


def say(*words: str) -> None:
    """Writes a line."""
    sys.stdout.write(f"{' '.join(words)}\n")
    sys.stdout.flush()


def consumer(*, records: int = 1) -> Consumer:
    """A consumer of a stream of its own."""
    broker = MemoryBroker()
    broker.create_stream("s")
    broker.append_all("s", [b"x"] * records)
    return Consumer(MemoryAdapter(broker, "s", group="g"))


async def handle(_: Message) -> None:
    """Says that it runs."""
    say("ready")


async def quiet(_: Message) -> None:
    """Does nothing."""


async def run(name: str, each: Consumer, handler: Any = quiet) -> None:
    """Notes the end of a run."""
    await each.run(handler)
    heard.append(name)


async def two() -> None:
    """Two consumers that know nothing of each other."""
    first, second = run("first", consumer()), run("second", consumer(), handle)
    await asyncio.gather(first, second)


async def busy() -> None:
    """Two whose handlers use the processor."""

    async def compute(message: Message) -> None:
        if message.position == 20:
            await handle(message)
        until = time.process_time() + 0.005
        while time.process_time() < until:
            pass

    first, second = consumer(records=20_000), consumer(records=20_000)
    await Group({first: compute, second: compute}).run()


async def served(listen: Any, name: str) -> None:
    """A server that listens before, and runs a consumer in its lifespan, as uvicorn does."""
    over = asyncio.Event()

    def leave(*_: Any) -> None:
        heard.append(name)
        asyncio.get_running_loop().call_soon_threadsafe(over.set)

    listen(leave)
    running = asyncio.create_task(run("consumer", consumer(), handle))
    await over.wait()
    await running
    assert signal.getsignal(signal.SIGTERM) is before(leave)


def before(leave: Any) -> Any:
    """What was installed: the function, or asyncio's own for its loop."""
    return leave if sys.argv[1] == "signal" else signal.getsignal(signal.SIGTERM)


async def by_signal() -> None:
    """It listens by `signal.signal`."""
    await served(lambda leave: signal.signal(signal.SIGTERM, leave), "server")


async def by_loop() -> None:
    """It listens by ``loop.add_signal_handler``."""
    loop = asyncio.get_running_loop()
    await served(lambda leave: loop.add_signal_handler(signal.SIGTERM, leave), "server")


CASES = {"two": two, "busy": busy, "signal": by_signal, "loop": by_loop}

if __name__ == "__main__":
    asyncio.run(CASES[sys.argv[1]]())
    say(*heard)
