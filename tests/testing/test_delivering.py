"""`deliver`: what is told of each value."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from consumer_sdk import Batch, Consumer, Group, Hooks, Message, Reject, Retry, RetryPolicy
from consumer_sdk.errors import ConfigurationError, HandlerError
from consumer_sdk.telemetry import traced
from consumer_sdk.testing import (
    MemoryAdapter,
    MemoryBroker,
    Simulation,
    SimulationTimeoutError,
    deliver,
    simulate,
)


def test_each_value_is_acked_retried_or_dead() -> None:
    """As it was given: bytes, texts, tombstones, and what JSON is made of; hours take no time."""
    seen: list[tuple[bytes | None, int]] = []

    async def handle(message: Message) -> None:
        seen.append((message.value, message.attempt))
        await asyncio.sleep(60)
        if message.value == b"text":
            raise Reject("no texts")
        if message.value == b"[1]" and message.attempt < 3:
            raise Retry("later", delay=60)
        if message.value == b"bytes":
            raise ValueError("never")

    delivered = deliver(
        handle, b"bytes", "text", None, [1], retry=RetryPolicy(max_attempts=3, initial=1.0)
    )
    assert delivered.acked == [None, [1]]
    assert sorted(map(str, delivered.retried)) == ["[1]", "[1]", "b'bytes'", "b'bytes'"]
    assert [(each.value, each.error) for each in delivered.dead] == [
        (b"text", "no texts"),
        (b"bytes", "ValueError: never"),
    ]
    assert len(seen) == 8


def test_what_a_handler_sends_is_told_once() -> None:
    """As with transactions: nothing of a delivery that failed."""

    async def handle(message: Message) -> None:
        message.send("out", message.value, key=b"k", headers=[("a", None)])
        if message.attempt == 1:
            raise ValueError("again")

    (sent,) = deliver(handle, "text").sent
    assert (sent.stream, sent.value, sent.key) == ("out", b"text", b"k")
    assert sent.headers == (("a", None),)


def test_no_value_calls_nobody() -> None:
    """And does not wait for one."""

    async def handle(message: Message) -> None:
        raise AssertionError

    assert deliver(handle).acked == []


def test_batches_and_middleware_are_those_of_run() -> None:
    """With their mistakes."""
    sizes: list[int] = []

    async def handle(batch: Batch) -> None:
        sizes.append(len(batch))

    assert deliver(handle, 1, 2, 3, batch_size=2).acked == [1, 2, 3]
    assert sizes == [2, 1]
    with pytest.raises(ConfigurationError, match="it takes a batch"):
        deliver(handle, 1)


def test_record_that_nobody_settles_ends_in_an_error() -> None:
    """A tree with a branch that is never acked, say."""

    async def handle(message: Message) -> None:
        message.tree().branch()

    with pytest.raises(SimulationTimeoutError):
        deliver(handle, 1, time_limit=60)


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("decode", [None, bytes.decode])
def test_handler_that_returns_a_consumer_handles_nothing(
    batch_size: int | None, decode: Callable[[bytes], str] | None
) -> None:
    """It makes one, so that it is no handler: the run ends, and no record is settled."""
    settled: list[Message] = []

    class Seen(Hooks):
        def settled(self, message: Message) -> None:
            settled.append(message)

    async def main(simulation: Simulation) -> None:
        broker = MemoryBroker()
        broker.create_stream("orders")
        broker.append_all("orders", [b"1", b"2"])
        adapter = MemoryAdapter(broker, "orders", group="g")
        consumer = Consumer(adapter, hooks=Seen(), decode=decode, clock=simulation.clock)

        async def make(given: Any) -> Group:
            del given
            return Group()

        run: Any = consumer.run
        with pytest.raises(HandlerError, match="makes a consumer, and is no handler"):
            await run(make, batch_size=batch_size, around=[traced()])

    simulate(main)
    assert settled == []


async def test_deliver_within_an_event_loop_says_how_to_call_it() -> None:
    """And leaves no coroutine that nobody awaits."""

    async def handle(message: Message) -> None:
        raise AssertionError

    with pytest.raises(ConfigurationError, match=r"asyncio\.to_thread\(deliver"):
        deliver(handle, 1)
