"""An operator sets a subscription's cursor back while a consumer runs: on a real Pulsar."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from consumer_sdk import Consumer, Ordering, RetryPolicy
from consumer_sdk.adapters import PulsarAdapter
from consumer_sdk.records import Position
from consumer_sdk.stores import LocalStore
from consumer_sdk.testing.servers import PulsarServer
from consumer_sdk.trackers import QueueTracker
from tests.integration.pulsar_field import GROUP, Field, Handled, numbers, running, until

pytestmark = pytest.mark.pulsar

SOON = 0.4
"""Seconds after which acks count as written down; no broker is killed here."""


async def _until_old(adapter: PulsarAdapter, position: Position) -> None:
    """Waits until what is settled up to ``position`` counts as written down."""
    assert adapter._opened is not None
    (subscriber,) = adapter._opened.subscribers.values()

    def is_old() -> bool:
        written = subscriber.resets and subscriber.resets.written
        return bool(written and written >= position)

    await until(is_old)


@pytest.mark.parametrize("with_store", [False, True])
@pytest.mark.parametrize(
    "kind", ["exclusive", pytest.param("failover", marks=pytest.mark.campaign)]
)
async def test_cursor_that_is_set_back_is_followed_once_and_again(
    pulsar_server: PulsarServer, tmp_path: Path, kind: str, *, with_store: bool
) -> None:
    """All from there on comes again, in order, is settled, and known to be after a restart."""
    field = await Field(pulsar_server, "reset").create()
    await field.produce(numbers(10))
    handled = Handled()
    for part in range(2):
        adapter = field.adapter(kind, persist_time=SOON)
        store = LocalStore(tmp_path / "c.db") if with_store else None
        consumer = Consumer(adapter, store=store)
        async with running(consumer, handled, Ordering.PARTITION):
            if part == 1:
                await field.produce([b"end"])
                await until(lambda: handled.has([b"end"]))
                break
            for target, times in ((4, 2), (1, 3)):
                await until(lambda times=times: handled.calls.count(b"9") == times - 1)  # type: ignore[misc]
                await field.until_acked()
                place = handled.places[target][1]
                await _until_old(adapter, handled.places[9][1] if times == 2 else place)
                await pulsar_server.reset_cursor(field.topic, GROUP, place[:2])
            await until(lambda: handled.calls.count(b"9") == 3)
            await field.until_acked()
            assert consumer.stats().resets == 2 * with_store
    assert handled.calls == [*numbers(10), *numbers(6, 4), *numbers(9, 1), b"end"]


@pytest.mark.parametrize(
    "kind", ["exclusive", pytest.param("failover", marks=pytest.mark.campaign)]
)
async def test_reset_under_load_loses_nothing_and_leaves_nothing_out(
    pulsar_server: PulsarServer, tmp_path: Path, kind: str
) -> None:
    """With batches that are half done, retries that wait, acks in the air, and records received."""
    field = await Field(pulsar_server, "load").create()
    handled = Handled(_fail_at_first)
    adapter = field.adapter(kind, persist_time=SOON)
    policy = RetryPolicy(initial=0.05, jitter=0)
    consumer = Consumer(adapter, store=LocalStore(tmp_path / "c.db"), retry=policy)
    async with running(consumer, handled, Ordering.KEY), asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(field.load(3000))
        await until(lambda: len(handled.calls) > 1000)
        ledger, entry, _ = handled.places[100][1]
        await _until_old(adapter, (ledger, entry + 1, 0))
        before = set(handled.places)
        await pulsar_server.reset_cursor(field.topic, GROUP, (ledger, entry))
        handled.places.clear()
        await sending
        await until(lambda: handled.has(numbers(3000)))
        await field.until_acked()
    assert consumer.stats().resets == 1
    to_come_again = {place for place in before if place[1] >= (ledger, entry, 0)}
    assert to_come_again <= set(handled.places)


def _fail_at_first(value: bytes, before: int) -> None:
    if int(value) % 50 == 3 and before == 0:
        raise RuntimeError(value.decode())


async def test_what_is_settled_lately_is_suppressed_after_a_reset(
    pulsar_server: PulsarServer,
) -> None:
    """It might come of a broker that was killed; what is open goes on."""
    field = await Field(pulsar_server, "recent").create()
    await field.produce(numbers(10))
    handled = Handled()
    consumer = Consumer(field.adapter("exclusive"))
    async with running(consumer, handled):
        await until(lambda: handled.has(numbers(10)))
        await field.until_acked()
        await pulsar_server.reset_cursor(field.topic, GROUP, "earliest")
        await field.produce(numbers(1, 10))
        await until(lambda: handled.has(numbers(1, 10)) and consumer.stats().suppressed == 10)
        await field.until_acked()
    assert Counter(handled.calls) == Counter(numbers(11))


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
async def test_reset_of_an_idle_queue_is_followed_when_its_acks_are_old(
    pulsar_server: PulsarServer, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Without traffic too: nothing else is acked, and nothing comes, between the acks and the reset."""
    assert QueueTracker.__init__.__kwdefaults__ is not None
    monkeypatch.setitem(QueueTracker.__init__.__kwdefaults__, "proof_age", SOON)
    field = await Field(pulsar_server, "idle").create()
    await field.produce(numbers(10))
    handled = Handled()
    consumer = Consumer(field.adapter(kind))
    async with running(consumer, handled):
        await until(lambda: handled.has(numbers(10)))
        await field.until_acked()
        await consumer.flush()  # of what the broker has heard, we may not be told yet
        await asyncio.sleep(3 * SOON)  # a generation of acks is forgotten after twice its age
        await pulsar_server.reset_cursor(field.topic, GROUP, "earliest")
        await until(lambda: len(handled.calls) == 20)
        await field.until_acked()
    assert Counter(handled.calls) == Counter(numbers(10) * 2)


@pytest.mark.campaign
async def test_what_a_killed_broker_sends_again_is_no_reset(
    own_pulsar_server: PulsarServer,
) -> None:
    """Its acks were in memory; they are made again, and nobody is handed anything twice."""
    field = await Field(own_pulsar_server, "killed").create()
    handled = Handled()
    consumer = Consumer(field.adapter("exclusive"))
    async with running(consumer, handled):
        for part in range(2):  # it writes the first acks down, and those of a moment later not yet
            await field.produce(numbers(10, part * 10))
            await until(lambda part=part: handled.has(numbers(10, part * 10)))  # type: ignore[misc]
            await field.until_acked()
        await own_pulsar_server.kill()
        await own_pulsar_server.restart()
        await until(lambda: consumer.stats().suppressed == 10)
    assert Counter(handled.calls) == Counter(numbers(20))


@pytest.mark.parametrize("keeps", ["nothing", "checkpoint", "deleted checkpoint"])
async def test_reset_while_no_consumer_runs_is_followed_unless_a_store_knows_better(
    pulsar_server: PulsarServer, tmp_path: Path, keeps: str
) -> None:
    """A checkpoint does not say how long something has been settled; without it, the cursor counts."""
    field = await Field(pulsar_server, "stopped").create()
    await field.produce(numbers(5))
    handled = Handled()
    for part in range(2):
        store = None if keeps == "nothing" else LocalStore(tmp_path / "c.db")
        consumer = Consumer(field.adapter("exclusive", persist_time=SOON), store=store)
        async with running(consumer, handled, Ordering.PARTITION):
            await until(lambda part=part: handled.has(numbers(5 + part)))  # type: ignore[misc]
            await field.until_acked()
        if part == 0:
            await pulsar_server.reset_cursor(field.topic, GROUP, handled.places[2][1][:2])
            await field.produce(numbers(1, 5))
            if keeps.startswith("deleted"):
                (tmp_path / "c.db").unlink()
    again = [] if keeps == "checkpoint" else numbers(3, 2)
    assert handled.calls == [*numbers(5), *again, b"5"]
