"""What acks of each sort leave behind on a real Pulsar."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pulsar
import pytest

from consumer_sdk import Consumer, Message
from consumer_sdk.testing.servers import PulsarServer
from tests.integration.pulsar_field import Field, Handled, numbers, running, until

pytestmark = pytest.mark.pulsar


async def _read(consumer: Consumer, count: int) -> list[Message]:
    messages = aiter(consumer)
    async with asyncio.timeout(300):
        return [await anext(messages) for _ in range(count)]


@pytest.mark.parametrize("is_batch", [False, True])
@pytest.mark.parametrize("delay", [0, 0.11, 0.15, 0.19])
async def test_cumulative_acks_that_an_unload_swallows_are_made_again(
    pulsar_server: PulsarServer, delay: float, *, is_batch: bool
) -> None:
    """Pulsar trap 5, trap 14: the client takes them for done, and hides what comes again.

    The delays are around the times at which we and the client send.
    """
    field = await Field(pulsar_server, "lost").create()
    await field.produce(numbers(40), batch=is_batch)
    async with Consumer(field.adapter("exclusive", cumulative_acks=True)) as consumer:
        for message in await _read(consumer, 40):
            message.ack()
        await asyncio.sleep(delay)
        await field.server.unload(field.topic)
        await field.until_acked()
        assert consumer.stats().fetched == 40


@pytest.mark.parametrize("is_batch", [False, True])
async def test_cumulative_acks_keep_the_holes(
    pulsar_server: PulsarServer, *, is_batch: bool
) -> None:
    """Pulsar trap 14: only what is settled without a hole is acked with one command."""
    field = await Field(pulsar_server, "holes").create()
    await field.produce(numbers(20), batch=is_batch)
    async with Consumer(field.adapter("exclusive", cumulative_acks=True)) as consumer:
        for message in await _read(consumer, 20):
            if message.value not in {b"5", b"11"}:
                message.ack()
        await consumer.flush()
    handled = Handled()
    async with running(Consumer(field.adapter("exclusive", cumulative_acks=True)), handled):
        await field.until_acked()
    assert Counter(handled.calls) == Counter([b"5", b"11"])


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
async def test_chunked_messages_are_acked_each_by_itself(
    pulsar_server: PulsarServer, kind: str
) -> None:
    """Pulsar trap 15: of messages whose chunks lie in each other, one is acked, and one comes again."""
    field = await Field(pulsar_server, "chunks").create()
    await asyncio.to_thread(_send_chunked, field, 4)
    async with Consumer(field.adapter(kind)) as consumer:
        first = await _read(consumer, 4)
        first[-1].ack()  # cumulatively it would take the others along
        await consumer.flush()
    handled = Handled()
    async with running(Consumer(field.adapter(kind)), handled):
        await field.until_acked()
    assert {len(value) for value in handled.calls} == {SIZE}
    sent = {bytes([n]) * 3 for n in range(4)}
    assert {value[:3] for value in handled.calls} == sent - {(first[-1].value or b"")[:3]}


SIZE = 11 << 20
"""Bytes: three chunks."""


def _send_chunked(field: Field, count: int) -> None:
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(field.server.service_url, logger=logger)
    results: list[str] = []
    try:
        producers = [
            client.create_producer(field.topic, batching_enabled=False, chunking_enabled=True)
            for _ in range(count)
        ]
        for n, producer in enumerate(producers):
            producer.send_async(bytes([n]) * SIZE, lambda result, _: results.append(result.name))
        until_time = time.monotonic() + 300
        while len(results) < count and time.monotonic() < until_time:
            time.sleep(0.02)
    finally:
        client.close()
    assert results == ["Ok"] * count


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
async def test_ack_and_nack_of_one_delivery_the_first_counts(
    pulsar_server: PulsarServer, kind: str
) -> None:
    """Pulsar trap 9: the other is ignored, and counted; nothing comes twice for it."""
    field = await Field(pulsar_server, "both").create()
    await field.produce(numbers(2))
    async with Consumer(field.adapter(kind)) as consumer:
        one, two = await _read(consumer, 2)
        assert (one.nack(delay=0.2), one.ack()) == (True, False)
        assert (two.ack(), two.nack(delay=0)) == (True, False)
        (again,) = await _read(consumer, 1)
        assert (again.value, again.attempt) == (one.value, 2)
        again.ack()
        await field.until_acked()
        assert (consumer.stats().redelivered, consumer.stats().ignored) == (1, 2)


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
async def test_ack_timeout_counts_from_the_hand_out(pulsar_server: PulsarServer, kind: str) -> None:
    """Pulsar trap 21: what waits in a queue burns no time; the client's timeout is ten seconds at least."""
    field = await Field(pulsar_server, "timeout").create()
    await field.produce(numbers(3))
    async with Consumer(field.adapter(kind), ack_timeout=0.5) as consumer:
        messages = aiter(consumer)
        one = await anext(messages)
        await asyncio.sleep(1.5)
        found = []
        for _ in range(3):
            found.append(await anext(messages))
            found[-1].ack()
        await field.until_acked()
        assert consumer.stats().failed == 1
    assert Counter((m.value, m.attempt) for m in found) == Counter(
        [(one.value, 2), *((value, 1) for value in numbers(3) if value != one.value)]
    )


async def test_many_holes_are_kept_over_an_unload(pulsar_server: PulsarServer) -> None:
    """Pulsar trap 25: every second record of many is acked, and the others come again."""
    field = await Field(pulsar_server, "many").create()
    await field.produce(numbers(4000))
    async with Consumer(field.adapter("shared"), flush_interval=0.05) as consumer:
        found = await _read(consumer, 4000)
        for message in found[::2]:
            message.ack()
        await consumer.flush()
        await field.server.unload(field.topic)
        await until(lambda: consumer.stats().suppressed >= 2000)
        for message in found[1::2]:
            message.ack()
        await field.until_acked()
        assert consumer.stats().fetched == 4000
