"""The thread that receives, with a native consumer that is scripted: no broker."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import _pulsar
import pytest

from consumer_sdk.adapters.pulsar.consumer.messages import Delivery
from consumer_sdk.adapters.pulsar.consumer.pump import Pump
from consumer_sdk.adapters.pulsar.options import POSTED


def raw(entry: int) -> Any:
    """A native message that holds its number."""
    builder = _pulsar.MessageBuilder()
    builder.content(str(entry).encode())
    return builder.build()


class Native:
    """A native consumer: ``receive`` blocks as the client's does, batches are what is there."""

    def __init__(self) -> None:
        self.queue: queue.Queue[Any] = queue.Queue()
        self.is_entered = threading.Event()
        self.batch_error: Exception | None = None

    def put(self, *entries: int) -> None:
        """The broker sends these."""
        for entry in entries:
            self.queue.put(raw(entry))

    def receive(self, milliseconds: int) -> Any:
        """The next; waits longer than any test, where the client would time out."""
        del milliseconds
        self.is_entered.set()
        found = self.queue.get(timeout=300)
        if isinstance(found, Exception):
            raise found
        return found

    def batch_receive(self) -> list[Any]:
        """All that is there."""
        if self.batch_error is not None:
            raise self.batch_error
        found = []
        while not self.queue.empty():
            found.append(self.queue.get())
        return found


class Bench:
    """A pump, and what came out of it."""

    def __init__(self) -> None:
        self.native = Native()
        self.entries: list[int] = []
        self.errors: list[Exception] = []
        self.news = asyncio.Event()
        self.pump = Pump(self.native, "test", self._deliver, self._failed)

    def _deliver(self, deliveries: list[Delivery]) -> None:
        for part in deliveries:
            self.entries += [int(message.value or b"") for message in part.messages]
        self.news.set()

    def _failed(self, error: Exception) -> None:
        self.errors.append(error)
        self.news.set()

    async def until(self, count: int) -> None:
        """Waits for so many messages."""
        async with asyncio.timeout(300):
            while len(self.entries) < count:
                self.news.clear()
                await self.news.wait()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """A pump that rests; its thread is over after the test."""
    made = Bench()
    yield made
    made.pump.stop()
    made.native.queue.put(_pulsar.Timeout())
    await asyncio.to_thread(made.pump._thread.join, 300)
    assert not made.pump._thread.is_alive()


async def test_messages_come_in_order_and_once(bench: Bench) -> None:
    """One wake-up carries all that was there."""
    bench.native.put(*range(500))
    bench.pump.go()
    await bench.until(500)
    assert bench.entries == list(range(500))


async def test_pump_that_rests_receives_nothing(bench: Bench) -> None:
    """Before it is told to go, and after it has come to rest, the broker keeps the messages."""
    bench.native.put(0, 1)
    await bench.pump.hold()
    assert not bench.native.is_entered.is_set()
    bench.pump.go()
    await bench.until(2)
    await _held(bench)
    bench.native.put(9)
    await bench.pump.hold()
    assert bench.entries == [0, 1]


async def _held(bench: Bench) -> None:
    """At rest: the receive that is under way gets nothing."""
    holding = asyncio.create_task(bench.pump.hold())
    await asyncio.sleep(0)
    bench.native.queue.put(_pulsar.Timeout())
    await holding


async def test_hold_waits_for_the_receive_that_is_under_way(bench: Bench) -> None:
    """A batch of before a seek never comes out after it, however often it went and rested.

    The loop is blocked meanwhile, so that whatever the thread posts comes later than it should.
    """
    for n in range(50):
        bench.pump.go()
        _until_entered(bench)
        bench.pump.rest()
        bench.native.queue.put(_pulsar.Timeout())
        time.sleep(0.002)  # noqa: ASYNC251 - the thread comes to rest, and the loop is not told
        bench.pump.go()
        _until_entered(bench)
        await asyncio.sleep(0)
        holding = asyncio.create_task(bench.pump.hold())
        await asyncio.sleep(0)
        assert not holding.done()
        bench.native.put(n)
        await holding
        assert bench.entries == list(range(n + 1))


def _until_entered(bench: Bench) -> None:
    assert bench.native.is_entered.wait(300)
    bench.native.is_entered.clear()


async def test_batch_that_times_out_keeps_its_first_message(bench: Bench) -> None:
    """Dropped, it would be a gap, and the records after it would settle it."""
    bench.native.batch_error = _pulsar.Timeout()
    bench.native.put(0, 1, 2)
    bench.pump.go()
    await bench.until(3)
    assert bench.entries == [0, 1, 2]


async def test_loop_that_is_blocked_is_sent_a_few_batches_only(bench: Bench) -> None:
    """What it cannot take would fill the memory; the rest comes once it goes on."""
    bench.native.batch_error = _pulsar.Timeout()  # batches of one message
    bench.native.put(*range(100))
    bench.pump.go()
    while bench.native.queue.qsize() > 100 - POSTED:
        time.sleep(0.001)  # noqa: ASYNC251 - a handler that does not yield
    time.sleep(0.1)  # noqa: ASYNC251 - the thread could take all
    assert bench.native.queue.qsize() == 100 - POSTED
    await bench.until(100)
    assert bench.entries == list(range(100))


async def test_error_of_the_client_is_told_once_and_ends_the_thread(bench: Bench) -> None:
    """The owner decides what then."""
    bench.pump.go()
    bench.native.queue.put(_pulsar.AlreadyClosed())
    async with asyncio.timeout(300):
        await bench.news.wait()
    await asyncio.to_thread(bench.pump._thread.join, 300)
    assert len(bench.errors) == 1
    assert "AlreadyClosed" in str(bench.errors[0])


def test_loop_closed_under_the_thread_ends_it() -> None:
    """Pulsar trap 3: a delivery to a loop that is gone neither aborts nor raises."""
    native = Native()
    came: list[list[Delivery]] = []

    async def begin() -> Pump:
        pump = Pump(native, "test", came.append, lambda _: None)
        pump.go()
        await asyncio.to_thread(native.is_entered.wait, 300)
        return pump

    pump = asyncio.run(begin())
    native.put(1)
    pump._thread.join(300)
    assert not pump._thread.is_alive()
    assert came == []
