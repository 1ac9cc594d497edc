"""Where a Pulsar consumer starts: a store's checkpoint, a time, a position; topics that are new."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk import AtPosition, AtTime, Consumer, Message, Ordering
from consumer_sdk.adapters import PulsarAdapter
from consumer_sdk.adapters.pulsar.client.topics import partition_of
from consumer_sdk.adapters.pulsar.consumer.session import Session
from consumer_sdk.stores import LocalStore
from consumer_sdk.testing.servers import PulsarServer
from tests.adapters.pulsar.scripted import Owner
from tests.integration.pulsar_field import (
    GROUP,
    PATIENCE,
    Field,
    Handled,
    numbers,
    running,
    until,
)

pytestmark = pytest.mark.pulsar


async def test_restart_with_a_store_delivers_the_holes_alone_and_leaves_no_backlog(
    pulsar_server: PulsarServer, tmp_path: Path
) -> None:
    """Pulsar trap 20: the seek to a checkpoint leaves no entry behind that nobody acks."""
    field = await Field(pulsar_server, "holes").create()
    await field.produce(numbers(10))
    await field.produce(numbers(10, 10), batch=True)
    async with Consumer(field.adapter("exclusive"), store=LocalStore(tmp_path / "c.db")) as first:
        messages = aiter(first)
        held = [await anext(messages) for _ in range(20)]
        for message in held:
            if message.value not in {b"4", b"7", b"12"}:
                message.ack()
        await first.flush()
    await field.produce(numbers(5, 20))
    handled = Handled()
    again = Consumer(field.adapter("exclusive"), store=LocalStore(tmp_path / "c.db"))
    async with running(again, handled, Ordering.KEY):
        await until(lambda: handled.has(numbers(5, 20)))
        await field.until_acked()
    assert handled.calls == [b"4", b"7", b"12", *numbers(5, 20)]


async def test_restart_after_everything_was_settled_delivers_nothing_old(
    pulsar_server: PulsarServer, tmp_path: Path
) -> None:
    """The checkpoint's own entry, which the broker sends again, is suppressed and acked."""
    field = await Field(pulsar_server, "resume").create()
    handled = Handled()
    for part in range(3):
        await field.produce(numbers(10, part * 10), batch=part == 1)
        store = LocalStore(tmp_path / "c.db")
        async with running(Consumer(field.adapter("exclusive"), store=store), handled):
            await until(lambda part=part: handled.has(numbers(10, part * 10)))  # type: ignore[misc]
            await field.until_acked()
    assert Counter(handled.calls) == Counter(numbers(30))


async def _new(server: PulsarServer, name: str) -> Field:
    """A topic whose records are kept for another subscription, without one of ours."""
    field = Field(server, name)
    await server.create_topic(field.topic)
    await server.create_subscription(field.topic, "keeper")
    return field


@pytest.mark.parametrize("with_store", [False, True])
async def test_new_subscription_starts_at_a_time(
    pulsar_server: PulsarServer, tmp_path: Path, *, with_store: bool
) -> None:
    """Exactly at the first record of then; a second start goes on where the first one ended."""
    field = await _new(pulsar_server, "time")
    await field.produce(numbers(10))
    await asyncio.sleep(0.1)
    then = time.time()
    await asyncio.sleep(0.1)
    await field.produce(numbers(10, 10))
    handled = Handled()
    for part in range(2):
        store = LocalStore(tmp_path / "c.db") if with_store else None
        consumer = Consumer(field.adapter("exclusive"), store=store, start=AtTime(then))
        async with running(consumer, handled, Ordering.PARTITION):
            await until(lambda part=part: handled.has(numbers(10, 10 + part * 10)))  # type: ignore[misc]
            await consumer.flush()
        await field.produce(numbers(10, 20 + part * 10))
    assert handled.calls == numbers(20, 10)


async def _take(opening: asyncio.Task[Consumer], count: int) -> list[Message]:
    messages = aiter(await opening)
    return [await anext(messages) for _ in range(count)]


@pytest.mark.parametrize(
    "kind, is_timed", [("failover", False), ("failover", True), ("exclusive", True)]
)
async def test_standby_of_a_new_subscription_goes_on_where_the_first_consumer_was(
    pulsar_server: PulsarServer, kind: str, *, is_timed: bool
) -> None:
    """Both were opened when there was no subscription, and a start counts once."""
    field = await _new(pulsar_server, "standby")
    await field.produce(numbers(10))
    await asyncio.sleep(0.1)
    start: Any = AtTime(time.time()) if is_timed else "latest"
    await asyncio.sleep(0.1)
    both = [Consumer(field.adapter(kind), start=start) for _ in range(2)]
    openings = [asyncio.create_task(each.__aenter__()) for each in both]
    await asyncio.wait(openings, return_when=asyncio.FIRST_COMPLETED)
    await field.produce(numbers(30, 10))
    takers = [asyncio.create_task(_take(opening, 20)) for opening in openings]
    ended, _ = await asyncio.wait(takers, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
    (done,) = ended
    held = done.result()
    assert [message.value for message in held] == numbers(20, 10)
    for message in held:
        message.ack()
    first = both.pop(takers.index(done))
    await first.flush()
    await first.aclose()
    await field.produce(numbers(10, 40))
    (standby,) = set(takers) - {done}
    rest = await asyncio.wait_for(standby, PATIENCE)
    assert [message.value for message in rest] == numbers(20, 30)
    for message in rest:
        message.ack()
    await both[0].aclose()


async def test_consumer_that_died_before_it_began_has_not_used_up_the_start(
    pulsar_server: PulsarServer,
) -> None:
    """What was written since it was opened is not passed over, and what is older does not come."""
    field = await _new(pulsar_server, "died")
    await field.produce(numbers(10))
    died = Session(field.adapter("failover")._options, Owner())
    await died._add(partition_of(field.topic), is_discovered=False)
    await died._leave()
    await field.produce(numbers(10, 10))
    handled = Handled()
    async with running(
        Consumer(field.adapter("failover"), start="latest"), handled, Ordering.PARTITION
    ):
        await until(lambda: handled.has(numbers(10, 10)))
    assert handled.calls == numbers(10, 10)


async def test_new_subscription_starts_at_a_position(pulsar_server: PulsarServer) -> None:
    """Inclusive."""
    field = await _new(pulsar_server, "position")
    await field.produce(numbers(10))
    async with Consumer(field.adapter("exclusive", consumer_name="scout")) as scout:
        messages = aiter(scout)
        held = [await anext(messages) for _ in range(5)]
    await pulsar_server.reset_cursor(field.topic, GROUP, "earliest")
    adapter = PulsarAdapter(
        field.topic,
        service_url=pulsar_server.service_url,
        admin_url=pulsar_server.admin_url,
        subscription="another",
    )
    handled = Handled()
    async with running(
        Consumer(adapter, start=AtPosition(held[3].position)), handled, Ordering.PARTITION
    ):
        await until(lambda: handled.has([b"9"]))
    assert handled.calls == numbers(7, 3)


async def test_restart_from_start_reads_anew_once_for_each_application(
    pulsar_server: PulsarServer, tmp_path: Path
) -> None:
    """What is still stored comes again; the same application resumes afterwards."""
    field = await _new(pulsar_server, "anew")
    await field.produce(numbers(10))
    calls: list[list[bytes]] = []
    for application in ("one", "two", "two"):
        handled = Handled()
        consumer = Consumer(
            field.adapter("exclusive"),
            store=LocalStore(tmp_path / "c.db"),
            restart="from_start",
            application_id=application,
        )
        async with running(consumer, handled, Ordering.PARTITION):
            if len(calls) == 2:
                await field.produce(numbers(1, 10))
            await until(lambda: handled.has(numbers(1, 10 if len(calls) == 2 else 9)))  # noqa: B023 - awaited here
            await consumer.flush()
        calls.append(handled.calls)
    assert calls == [numbers(10), numbers(10), numbers(1, 10)]


@pytest.mark.parametrize("position", ["earliest", "latest"])
async def test_partitions_that_a_topic_gains_are_read_from_their_first_record(
    pulsar_server: PulsarServer, position: str
) -> None:
    """The client's own discovery takes a minute, and with latest loses what came before."""
    field = Field(pulsar_server, "grows", 1)
    await pulsar_server.create_topic(field.topic, 1)
    handled = Handled()
    adapter = field.adapter("shared", discovery_interval=2, initial_position=position)
    consumer = Consumer(adapter)
    async with running(consumer, handled):
        await until(lambda: len(consumer.stats().partitions) == 1)
        await _grow(pulsar_server, field.topic, 3)
        for part in range(3):
            topic = f"{field.topic}-partition-{part}"
            await pulsar_server.produce(topic, numbers(5, part * 5))
        await until(lambda: handled.has(numbers(15)))
        assert len(consumer.stats().partitions) == 3


async def _grow(server: Any, topic: str, partitions: int) -> None:
    path = topic.replace("persistent://", "persistent/")
    await server._ask("POST", f"{path}/partitions", partitions)


async def test_pattern_finds_new_topics_from_their_first_record(
    pulsar_server: PulsarServer,
) -> None:
    """Also those whose records are older than the discovery, with latest."""
    field = await _new(pulsar_server, "pattern")
    handled = Handled()
    adapter = PulsarAdapter(
        pattern=f"{field.topic}.*",
        service_url=pulsar_server.service_url,
        admin_url=pulsar_server.admin_url,
        subscription=GROUP,
        type="shared",
        initial_position="latest",
        discovery_interval=1,
    )
    consumer = Consumer(adapter)
    async with running(consumer, handled):
        await until(lambda: len(consumer.stats().partitions) == 1)
        new = f"{field.topic}-more"
        await pulsar_server.create_topic(new, 2)
        await pulsar_server.create_subscription(new, "keeper")
        await pulsar_server.produce(new, numbers(10))
        await until(lambda: handled.has(numbers(10)))
        assert len(consumer.stats().partitions) == 3


async def test_terminated_topic_is_read_to_its_end_and_the_others_go_on(
    pulsar_server: PulsarServer,
) -> None:
    """It is no error; the client shows timeouts alone."""
    ends = await Field(pulsar_server, "ends").create()
    goes_on = await Field(pulsar_server, "goes-on").create()
    await ends.produce(numbers(10))
    await pulsar_server.terminate(ends.topic)
    handled = Handled()
    adapter = PulsarAdapter(
        ends.topic, goes_on.topic, service_url=pulsar_server.service_url, subscription=GROUP
    )
    async with running(Consumer(adapter), handled):
        await goes_on.produce(numbers(10, 10))
        await until(lambda: handled.has(numbers(20)))
        await ends.until_acked()
        await goes_on.until_acked()
    assert Counter(handled.calls) == Counter(numbers(20))
