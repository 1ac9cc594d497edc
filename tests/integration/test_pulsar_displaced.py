"""Who has a subscription: consumers that wait, stand by, are deposed, or were frozen meanwhile."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path

import pytest

from consumer_sdk import Consumer, Message, Ordering, RetryPolicy
from consumer_sdk.errors import AdapterError
from consumer_sdk.stores import LocalStore
from consumer_sdk.testing.servers import PulsarServer
from tests.integration.faults.losses import stop_between_transactions
from tests.integration.pulsar_field import Child, Field, Handled, numbers, running, until

pytestmark = pytest.mark.pulsar


async def test_exclusive_second_consumer_waits_until_the_first_has_gone(
    pulsar_server: PulsarServer,
) -> None:
    """ConsumerBusy is no error while there is time: the second goes on where the first ended."""
    field = await Field(pulsar_server, "waits").create()
    await field.produce(numbers(20))
    first, second = Handled(), Handled()
    waiting = Consumer(field.adapter("exclusive"))
    async with asyncio.TaskGroup() as tasks:
        async with running(Consumer(field.adapter("exclusive")), first):
            await until(lambda: first.has(numbers(20)))
            task = tasks.create_task(waiting.run(second, handle_signals=False))
            await field.produce(numbers(20, 20))
            await until(lambda: first.has(numbers(40)))
            assert not second.calls
        await field.produce(numbers(20, 40))
        await until(lambda: second.has(numbers(20, 40)))
        waiting.stop()
        await task
    assert Counter(first.calls) == Counter(numbers(40))
    assert Counter(second.calls) == Counter(numbers(20, 40))


async def test_exclusive_second_consumer_says_who_is_in_the_way_when_its_time_is_up(
    pulsar_server: PulsarServer,
) -> None:
    """An error with the reason, not a wait for ever; a type that differs is the same to the broker."""
    field = await Field(pulsar_server, "busy").create()
    async with Consumer(field.adapter("exclusive")):
        for kind in ("exclusive", "shared"):
            with pytest.raises(AdapterError, match="another consumer has the subscription"):
                async with Consumer(field.adapter(kind, busy_timeout=1)):
                    pass


@pytest.mark.campaign
async def test_frozen_process_that_was_displaced_is_fenced_and_waits_for_its_turn(
    pulsar_server: PulsarServer, tmp_path: Path
) -> None:
    """What comes after the other has taken over is handled by the other alone; nothing is lost."""
    field = await Field(pulsar_server, "frozen").create()
    store = str(tmp_path / "checkpoints.db")
    child = Child(tmp_path / "handled")
    await child.start(field, "exclusive", store)
    try:
        await field.produce(numbers(100))
        await child.until(lambda lines: len(lines) >= 20)
        stop_between_transactions(child.pid, store)
        other = Handled()
        consumer = Consumer(
            field.adapter("exclusive"), store=LocalStore(store), flush_interval=0.05
        )
        async with running(consumer, other, Ordering.KEY):
            await until(lambda: bool(consumer.stats().partitions))
            child.signal(signal.SIGCONT)
            await field.produce(numbers(100, 100))
            await until(lambda: other.has(numbers(100, 100)))
            await asyncio.sleep(6)  # time enough to notice, and to do harm
            await field.produce(numbers(100, 200))
            await until(lambda: other.has(numbers(100, 200)))
            await consumer.flush()
            assert not {*_values(child)} & {*numbers(200, 100)}
            assert {*_values(child), *other.calls} >= {*numbers(300)}
        await field.produce(numbers(50, 300))
        await child.until(lambda _: {*_values(child)} >= {*numbers(50, 300)})
        await field.until_acked()
    finally:
        await child.kill()


def _values(child: Child) -> list[bytes]:
    return [line.split()[1].encode() for line in child.lines() if len(line.split()) == 3]


async def test_failover_standby_goes_on_where_the_active_one_left(
    pulsar_server: PulsarServer,
) -> None:
    """Pulsar trap 32: at once, and nothing that was acked comes again."""
    field = await Field(pulsar_server, "standby", partitions=1).create()
    await field.produce(numbers(50))
    first, second = Handled(), Handled()
    standby = Consumer(field.adapter("failover", consumer_name="b"))
    async with asyncio.TaskGroup() as tasks:
        async with running(Consumer(field.adapter("failover", consumer_name="a")), first):
            await until(lambda: first.has(numbers(50)))
            task = tasks.create_task(
                standby.run(second, ordering=Ordering.KEY, handle_signals=False)
            )
            await field.produce(numbers(50, 50))
            await until(lambda: first.has(numbers(100)))
            assert not second.calls
        await field.produce(numbers(50, 100))
        await until(lambda: second.has(numbers(50, 100)))
        await field.until_acked()
        standby.stop()
        await task
    assert Counter(first.calls) == Counter(numbers(100))
    assert Counter(second.calls) == Counter(numbers(50, 100))


@pytest.mark.parametrize("with_store", [False, True])
async def test_failover_deposed_consumer_learns_it_and_its_late_acks_count_for_nothing(
    pulsar_server: PulsarServer, tmp_path: Path, *, with_store: bool
) -> None:
    """The broker would take them: it fences nothing."""
    field = await Field(pulsar_server, "deposed", partitions=1).create()

    def consumer(name: str) -> Consumer:
        store = LocalStore(tmp_path / "checkpoints.db") if with_store else None
        adapter = field.adapter("failover", consumer_name=name)
        return Consumer(adapter, store=store, flush_interval=0.05)

    await field.produce(numbers(10))
    async with consumer("b") as deposed:
        messages = aiter(deposed)
        held = [await anext(messages) for _ in range(10)]
        for message in held[:3]:
            message.ack()
        await deposed.flush()
        handled = Handled()
        async with running(consumer("a"), handled, Ordering.KEY):
            await until(lambda: handled.has(numbers(7, 3)))
            await until(lambda: not deposed.stats().partitions)
            assert [message.ack() for message in held[3:]] == [False] * 7
            assert deposed.stats().ignored == 7
            await field.until_acked()
    assert Counter(handled.calls) == Counter(numbers(7, 3))


async def test_key_shared_keeps_each_key_with_one_consumer_at_a_time(
    pulsar_server: PulsarServer,
) -> None:
    """Pulsar trap 29: one that leaves hands on what it has not acked; keys stay in order."""
    field = await Field(pulsar_server, "keys").create()
    log: list[tuple[str, bytes]] = []

    def handler(name: str) -> object:
        async def handle(message: Message) -> None:
            await asyncio.sleep(0.001)
            log.append((name, message.value or b""))

        return handle

    one, two = (Consumer(field.adapter("key_shared")) for _ in "ab")
    async with running(one, handler("a"), Ordering.KEY):
        async with running(two, handler("b"), Ordering.KEY):
            await until(lambda: all(each.stats().partitions for each in (one, two)))
            sending = asyncio.create_task(field.load(2000))
            await until(lambda: len(log) > 500 and {name for name, _ in log} == {"a", "b"})
        await sending
        await until(lambda: {value for _, value in log} >= set(numbers(2000)))
        await field.until_acked()
    assert len(log) == 2000


async def test_shared_consumer_that_leaves_hands_on_what_it_was_sent(
    pulsar_server: PulsarServer,
) -> None:
    """Pulsar trap 32: what the first never saw, and what it did not ack, comes to the second."""
    field = await Field(pulsar_server, "leaves").create()
    await field.produce(numbers(200))
    async with Consumer(field.adapter("shared"), max_in_flight=20) as first:
        messages = aiter(first)
        held = [await anext(messages) for _ in range(20)]
        for message in held[:10]:
            message.ack()
        await first.flush()
    handled = Handled()
    async with running(Consumer(field.adapter("shared")), handled):
        await field.until_acked()
    acked = {message.value for message in held[:10]}
    assert Counter(handled.calls) == Counter(set(numbers(200)) - acked)


async def test_unacked_limit_of_the_broker_is_refused_before_it_is_reached(
    pulsar_server: PulsarServer,
) -> None:
    """Pulsar trap 22: dispatch would stop for all consumers of the subscription."""
    field = Field(pulsar_server, "limit")
    with pytest.raises(ValueError, match="give less"):
        Consumer(field.adapter("shared"), max_in_flight=45_000, retry=RetryPolicy())


async def test_unacked_records_up_to_our_limit_do_not_stop_the_flow(
    pulsar_server: PulsarServer,
) -> None:
    """Pulsar trap 22: fetching stops at our limit, and goes on as soon as something is acked."""
    field = await Field(pulsar_server, "flow").create()
    await field.produce(numbers(6000), batch=True)
    async with Consumer(field.adapter("shared"), max_in_flight=1000) as consumer:
        messages = aiter(consumer)
        held = [await anext(messages) for _ in range(1000)]
        while len(held) < 6000:
            for message in held[-500:]:
                message.ack()
            held += [await anext(messages) for _ in range(500)]
        for message in held:
            message.ack()
        await field.until_acked()
    assert len({message.value for message in held}) == 6000
