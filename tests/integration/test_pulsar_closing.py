"""The end of a Pulsar consumer: closed, signalled, forked, forgotten. On a real Pulsar."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from consumer_sdk import Consumer, Message
from consumer_sdk.testing.servers import PulsarServer
from tests.integration.pulsar_exits import HOWS
from tests.integration.pulsar_field import Child, Field, Handled, numbers, running, until

pytestmark = pytest.mark.pulsar


@pytest.mark.parametrize("how", list(HOWS))
async def test_process_with_an_open_consumer_ends_and_does_not_abort(
    pulsar_server: PulsarServer, how: str
) -> None:
    """Pulsar trap 3, trap 6, trap 27, trap 28: the client's own asyncio consumer aborts (SIGABRT)."""
    field = await Field(pulsar_server, "exits").create()
    await field.produce(numbers(40))
    for _ in range(3):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.integration.pulsar_exits", how),
            *(pulsar_server.service_url, field.topic),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, error = await asyncio.wait_for(process.communicate(), 30)
        finally:
            if process.returncode is None:
                process.kill()
        assert (process.returncode, b"good" in out) == (0, True), error.decode()
        if how == "fork":
            break
    handled = Handled()
    async with running(Consumer(field.adapter("shared")), handled):
        await field.until_acked()
    assert len(handled.calls) == len(set(handled.calls))


async def test_sigterm_drains_and_acks_before_the_end(
    pulsar_server: PulsarServer, tmp_path: Path
) -> None:
    """Pulsar trap 6: nothing that was handled is handled again."""
    field = await Field(pulsar_server, "sigterm").create()
    await field.produce(numbers(2000))
    child = Child(tmp_path / "handled")
    for part in (100, 800):
        await child.start(field, "shared")
        await child.until(lambda lines, part=part: len(lines) > part)  # type: ignore[misc]
        child.signal(signal.SIGTERM)
        assert child.process is not None
        assert await asyncio.wait_for(child.process.wait(), 30) == 0
    handled = Handled()
    async with running(Consumer(field.adapter("shared")), handled):
        await field.until_acked()
    values = [line.split()[1].encode() for line in child.lines()]
    assert Counter([*values, *handled.calls]) == Counter(numbers(2000))


async def test_close_ends_a_pending_receive_at_once(pulsar_server: PulsarServer) -> None:
    """Pulsar trap 4: whoever waits for a record that does not come learns of the end."""
    field = await Field(pulsar_server, "pending").create()
    loop = asyncio.get_running_loop()
    for kind in ("exclusive", "shared"):
        consumer = Consumer(field.adapter(kind))
        await consumer._open()
        waiting = asyncio.create_task(_one(consumer))
        await asyncio.sleep(0.3)  # the pump's receive is under way
        began = loop.time()
        await consumer.aclose()
        assert await waiting is None
        assert loop.time() - began < 5


async def _one(consumer: Consumer) -> Message | None:
    return await anext(aiter(consumer), None)


async def test_closed_consumers_leave_no_threads_behind(pulsar_server: PulsarServer) -> None:
    """Pulsar trap 26: also of several at once, each with a client of its own."""
    field = await Field(pulsar_server, "threads").create()
    await field.produce(numbers(100))

    def pumps() -> list[threading.Thread]:
        return [t for t in threading.enumerate() if field.topic in t.name]

    first, second = Handled(), Handled()
    async with (
        running(Consumer(field.adapter("shared")), first),
        running(Consumer(field.adapter("shared")), second),
    ):
        await until(lambda: len({*first.calls, *second.calls}) == 100)
        assert len(pumps()) == 2
    await until(lambda: not pumps(), 10)


def test_consumers_of_two_loops_in_two_threads_do_not_meet(pulsar_server: PulsarServer) -> None:
    """Pulsar trap 26: each loop has a client of its own."""
    seen: list[Counter[bytes]] = []

    async def work() -> None:
        field = await Field(pulsar_server, "loops").create()
        await field.produce(numbers(200))
        handled = Handled()
        async with running(Consumer(field.adapter("shared")), handled):
            await field.until_acked()
        seen.append(Counter(handled.calls))

    threads = [threading.Thread(target=asyncio.run, args=(work(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert seen == [Counter(numbers(200))] * 2
