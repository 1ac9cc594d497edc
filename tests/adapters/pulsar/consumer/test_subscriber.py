"""One topic partition's consumer, with a native client that is scripted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import _pulsar
import pytest

from consumer_sdk.adapters.pulsar.consumer import subscriber as module
from consumer_sdk.adapters.pulsar.consumer.subscriber import Subscriber
from consumer_sdk.errors import TransientAdapterError
from consumer_sdk.records import StartPoint
from tests.adapters.pulsar.scripted import Client, Native, begin, subscriber_on

TOPIC = "persistent://public/default/t"


@pytest.fixture
async def subscriber() -> AsyncIterator[Subscriber]:
    """It is subscribed."""
    made = subscriber_on(Client(), TOPIC)
    await made.subscribe()
    yield made
    await made.unsubscribe_natively()


def native_of(subscriber: Subscriber) -> Native:
    """Its native consumer."""
    native = subscriber.native
    assert isinstance(native, Native)
    return native


async def test_end_while_the_start_is_sought_opens_nothing(subscriber: Subscriber) -> None:
    """(1) The seek begins; (2) the assignment is lost; (3) the seek ends."""
    subscriber.offer()
    beginning = asyncio.create_task(begin(subscriber, StartPoint.LATEST))
    await asyncio.sleep(0)
    subscriber.end()
    await beginning
    assert not subscriber.is_open
    assert not subscriber.has_run


async def test_end_before_the_start_is_known_opens_nothing(subscriber: Subscriber) -> None:
    """The owner takes its time to say where to start."""
    subscriber.offer()
    subscriber.end()
    await begin(subscriber, StartPoint.BROKER)
    assert not subscriber.is_open


async def test_offer_of_another_epoch_closes_the_one_before(subscriber: Subscriber) -> None:
    """Nothing is fetched until the owner has said where to start."""
    subscriber.offer()
    await begin(subscriber, StartPoint.BROKER)
    assert subscriber.is_open
    subscriber.offer()
    assert not subscriber.is_open


async def test_seek_without_an_answer_is_given_up() -> None:
    """The partition's start is tried again."""
    subscriber = subscriber_on(Client(), TOPIC, operation_timeout=1.0)
    await subscriber.subscribe()
    native_of(subscriber).is_silent = True
    subscriber.offer()
    with pytest.raises(TransientAdapterError, match=r"seeking in .*: no answer"):
        await begin(subscriber, StartPoint.LATEST)
    assert not subscriber.is_open
    await subscriber.unsubscribe_natively()


async def test_acks_without_an_answer_are_tried_again_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One topic that is stuck holds up the flush of all, and must not do so for half a minute."""
    monkeypatch.setattr(module, "CONFIRM", 0.01)
    subscriber = subscriber_on(Client(), TOPIC)
    await subscriber.subscribe()
    native_of(subscriber).is_silent = True
    async with asyncio.timeout(25):
        with pytest.raises(TransientAdapterError, match="no answer after acks"):
            await subscriber.confirm()
    await subscriber.unsubscribe_natively()


async def test_receiving_that_fails_is_a_fault_until_another_subscription(
    subscriber: Subscriber,
) -> None:
    """Nobody else would notice: the consumer is connected."""
    assignment = subscriber.offer().assignment
    await begin(subscriber, StartPoint.BROKER)
    native_of(subscriber).queue.put(_pulsar.AlreadyClosed())
    async with asyncio.timeout(25):
        while subscriber.deaf_since is None:
            await asyncio.sleep(0.01)
    run = subscriber.take(1, 1)
    assert run.assignment is assignment
    assert isinstance(run.fault, TransientAdapterError)
    await subscriber.subscribe()
    assert subscriber.deaf_since is None


async def test_standby_whose_receiving_fails_waits_no_longer(subscriber: Subscriber) -> None:
    """It would never hear that it has become the active one."""
    native_of(subscriber).queue.put(_pulsar.AlreadyClosed())
    async with asyncio.timeout(25):
        await subscriber.active()
    assert subscriber.deaf_since is not None
