"""The end of a Pulsar consumer: closed, signalled, forked, forgotten. On a real Pulsar."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from consumer_sdk import Consumer, Message
from consumer_sdk.testing.servers import PulsarServer
from tests.integration.process_report import report
from tests.integration.pulsar_exits import LONG, SHAPES
from tests.integration.pulsar_field import PATIENCE, Child, Field, Handled, numbers, running, until

pytestmark = pytest.mark.pulsar


@pytest.mark.parametrize("by_signal", [False, True], ids=["stop", "SIGTERM"])
async def test_stop_ends_an_opening_that_waits_for_a_busy_subscription(
    pulsar_server: PulsarServer, caplog: pytest.LogCaptureFixture, *, by_signal: bool
) -> None:
    """Not only when the other process has gone, or ``busy_timeout`` has passed."""
    caplog.set_level(logging.INFO, "consumer_sdk.adapters.pulsar.consumer.session")
    field = await Field(pulsar_server, "busy").create()
    async with Consumer(field.adapter("exclusive")):
        waits = Consumer(field.adapter("exclusive", busy_timeout=10 * PATIENCE))
        opening = asyncio.create_task(waits.run(Handled()))
        await until(lambda: "trying again" in caplog.text)
        if by_signal:
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            waits.stop()
        await asyncio.wait_for(opening, PATIENCE)


A_FEW = ["close_loop", "collect", "daemon_run", "fork", "leave", "stop_and_leave"]


@pytest.mark.parametrize(
    "shapes",
    [
        pytest.param([f"{how}-working" for how in A_FEW], id="a few"),
        # Two hundred processes in all.
        *(
            pytest.param(
                list(SHAPES), id=f"all, turn {turn}", marks=pytest.mark.campaign(minutes=2)
            )
            for turn in range(1, 7)
        ),
    ],
)
async def test_processes_with_an_open_consumer_end_and_do_not_abort(
    pulsar_server: PulsarServer, shapes: list[str]
) -> None:
    """Pulsar trap 3, trap 6, trap 27, trap 28: threads come out of the client at the end: SIGABRT.

    One that hangs is killed after five minutes; what it did meanwhile is in the assertion.
    """
    field = await Field(pulsar_server, "exits").create()
    await field.produce(numbers(100 * len(shapes)))
    turns = asyncio.Semaphore(3)
    ends = await asyncio.gather(*(_end_of(field, shape, turns) for shape in shapes))
    assert [end for end in ends if end[1:3] != (0, True)] == []
    handled = Handled()
    async with running(Consumer(field.adapter("shared")), handled):
        await field.until_acked()
    assert len(handled.calls) == len(set(handled.calls))


async def _end_of(
    field: Field, shape: str, turns: asyncio.Semaphore
) -> tuple[str, int | None, bool, str]:
    """A shape, how its process has ended, whether it said that all was good, and its last words.

    With these is what it did whenever `LONG` had passed: the stacks are Python's, from itself, and
    the threads' times and native stacks, from outside.
    """
    async with turns:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.integration.pulsar_exits", shape),
            *(field.server.service_url, field.topic),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        reports: list[str] = []
        watching = asyncio.create_task(_report(process.pid, reports))
        speaking = asyncio.create_task(process.communicate())
        try:
            await asyncio.wait({speaking}, timeout=PATIENCE)
        finally:
            watching.cancel()
            if process.returncode is None:
                process.kill()
        out, error = await speaking
    words = "\n".join([*reports, error.decode(errors="replace")[-WORDS:]])
    return shape, process.returncode, b"good" in out, words


WORDS = 20_000
"""Characters of what a process has said last that are kept."""


async def _report(pid: int, reports: list[str]) -> None:
    while True:
        await asyncio.sleep(LONG)
        reports.append(await report(pid))


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
        assert await asyncio.wait_for(child.process.wait(), 300) == 0
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
        assert loop.time() - began < 20


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
        await until(lambda: len(pumps()) == 2)  # one of them may read all before the other starts
    await until(lambda: not pumps())


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
        thread.join(PATIENCE)
    assert seen == [Counter(numbers(200))] * 2
