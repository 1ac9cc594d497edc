"""A topic is unloaded, a producer's batch is half done, a record is nacked: on a real Pulsar."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from consumer_sdk import Consumer, Message, Ordering, RetryPolicy
from consumer_sdk.dead_letters import MemoryDeadLetters
from consumer_sdk.testing.servers import PulsarServer
from tests.integration.pulsar_field import Field, Handled, numbers, running, until

pytestmark = pytest.mark.pulsar

TYPES = ("exclusive", "failover", "shared", "key_shared")
QUICK = RetryPolicy(initial=0.05, jitter=0)


def _fail(values: set[bytes], times: int) -> Handled:
    def fail(value: bytes, before: int) -> None:
        if value in values and before < times:
            raise RuntimeError(value.decode())

    return Handled(fail)


@pytest.mark.parametrize("kind", TYPES)
async def test_acked_while_disconnected_is_handled_once_and_acked_in_the_end(
    pulsar_server: PulsarServer, kind: str
) -> None:
    """Pulsar trap 5, trap 19: the client drops such acks without a word; they are made again."""
    field = await Field(pulsar_server, "offline", 1 if kind == "failover" else 0).create()
    await field.produce(numbers(40))
    messages: list[Message] = []
    async with Consumer(field.adapter(kind)) as consumer:
        async for message in consumer:
            messages.append(message)
            if len(messages) == 40:
                break
        unloading = asyncio.create_task(field.server.unload(field.topic))
        for message in messages:  # before, while and after the connection is away
            message.ack()
            await asyncio.sleep(0.01)
        await unloading
        await field.until_acked()
        stats = consumer.stats()
    assert Counter(m.value for m in messages) == Counter(numbers(40))
    assert (stats.fetched, stats.settled) == (40, 40)


@pytest.mark.parametrize("kind", TYPES)
async def test_nacked_record_of_a_batch_comes_again_alone(
    pulsar_server: PulsarServer, kind: str
) -> None:
    """Pulsar trap 11, trap 16: four of five are acked, and the nacked one is a retry of ours."""
    field = await Field(pulsar_server, "batch").create()
    await field.produce(numbers(5), batch=True)
    handled = _fail({b"2"}, 2)
    async with running(Consumer(field.adapter(kind), retry=QUICK), handled):
        await field.until_acked()
    assert Counter(handled.calls) == Counter([*numbers(5), b"2", b"2"])
    assert [attempt for value, attempt in handled.attempts if value == b"2"] == [1, 2, 3]


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
async def test_poison_of_a_batch_is_dead_lettered_alone(
    pulsar_server: PulsarServer, kind: str
) -> None:
    """Pulsar trap 10, trap 11: exactly the bad one, after exactly so many attempts."""
    field = await Field(pulsar_server, "poison").create()
    await field.produce(numbers(5), batch=True)
    letters = MemoryDeadLetters()
    handled = _fail({b"3"}, 99)
    policy = RetryPolicy(max_attempts=3, initial=0.05, jitter=0)
    consumer = Consumer(field.adapter(kind), retry=policy, dead_letters=letters)
    async with running(consumer, handled):
        await field.until_acked()
    assert [(letter.value, letter.attempts) for letter in letters.letters] == [(b"3", 3)]
    assert Counter(handled.calls) == Counter([*numbers(5), b"3", b"3"])


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
@pytest.mark.parametrize("size", [1, 63, 64, 65, 1000])
async def test_batches_of_any_size_are_acked_whole_index_by_index(
    pulsar_server: PulsarServer, kind: str, size: int
) -> None:
    """Pulsar trap 13: at the edges of the words of an ack set, out of order."""
    field = await Field(pulsar_server, "sizes").create()
    await field.produce(numbers(size), batch=True)
    adapter = field.adapter(kind)
    async with Consumer(adapter) as consumer:
        found = [await anext(aiter(consumer)) for _ in range(size)]
        for message in found[::2] + found[1::2]:
            message.ack()
        await field.until_acked()
    assert [m.value for m in found] == numbers(size)


@pytest.mark.parametrize("kind", TYPES)
async def test_entry_half_acked_before_an_unload_is_acked_whole_after_it(
    pulsar_server: PulsarServer, kind: str
) -> None:
    """Pulsar trap 11, trap 19: the broker forgets the acked indexes; they are acked again, unseen."""
    field = await Field(pulsar_server, "whole").create()
    await field.produce(numbers(70), batch=True)
    async with Consumer(field.adapter(kind)) as consumer:
        found = [await anext(aiter(consumer)) for _ in range(70)]
        for message in found[:66]:
            message.ack()
        await consumer.flush()
        await field.server.unload(field.topic)
        await until(lambda: consumer.stats().suppressed >= 70)
        for message in found[66:]:
            message.ack()
        await field.until_acked()
        stats = consumer.stats()
    assert (stats.fetched, stats.settled, stats.in_flight) == (70, 70, 0)


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
async def test_attempts_are_kept_over_an_unload(pulsar_server: PulsarServer, kind: str) -> None:
    """Pulsar trap 10: the broker's count is gone, ours is not: one dead letter, three attempts."""
    field = await Field(pulsar_server, "attempts").create()
    await field.produce(numbers(3))
    letters = MemoryDeadLetters()
    handled = _fail({b"1"}, 99)
    policy = RetryPolicy(max_attempts=4, initial=0.4, multiplier=1, jitter=0)
    consumer = Consumer(field.adapter(kind), retry=policy, dead_letters=letters)
    async with running(consumer, handled):
        await until(lambda: handled.calls.count(b"1") == 2)
        await field.server.unload(field.topic)
        await field.until_acked()
    assert [attempt for value, attempt in handled.attempts if value == b"1"] == [1, 2, 3, 4]
    assert [(letter.value, letter.attempts) for letter in letters.letters] == [(b"1", 4)]


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
async def test_steady_nacks_come_again_on_time(pulsar_server: PulsarServer, kind: str) -> None:
    """Pulsar trap 7, trap 8: the client's timer would starve, ours is each record's own."""
    field = await Field(pulsar_server, "nacks").create()
    await field.produce(numbers(60))
    due: dict[bytes, float] = {}
    late: list[float] = []
    loop = asyncio.get_running_loop()
    async with Consumer(field.adapter(kind)) as consumer:
        async for message in consumer:
            value = message.value or b""
            if message.attempt == 1:
                wait = 0.3 if int(value) % 2 else 200.0
                message.nack(delay=wait)
                due[value] = loop.time() + wait
                await asyncio.sleep(0.02)  # nacks go on while others are due
            else:
                late.append(loop.time() - due[value])
                message.ack()
                if len(late) == 30:
                    break
    assert min(late) >= -0.01
    assert max(late) < 100.0  # the long ones hold none up


@pytest.mark.parametrize(
    "kind",
    [
        "exclusive",
        pytest.param("failover", marks=pytest.mark.campaign),
        pytest.param("key_shared", marks=pytest.mark.campaign),
        "shared",
    ],
)
async def test_unloads_under_load_lose_nothing(pulsar_server: PulsarServer, kind: str) -> None:
    """Pulsar trap 19: each record is handled by the one consumer, once, whatever comes again."""
    field = await Field(pulsar_server, "load").create()
    count, handled = 4000, Handled()
    ordering = Ordering.NONE if kind == "shared" else Ordering.KEY
    async with running(Consumer(field.adapter(kind)), handled, ordering), asyncio.TaskGroup() as tg:
        sending = tg.create_task(field.load(count))
        for part in range(4):
            await until(lambda part=part: len(handled.calls) > part * 1000)  # type: ignore[misc]
            await field.server.unload(field.topic)
        await sending
        await until(lambda: handled.has(numbers(count)))
        await field.until_acked()
    assert len(handled.places) == len(set(handled.places))
    if kind != "shared":
        handled.check_order()
