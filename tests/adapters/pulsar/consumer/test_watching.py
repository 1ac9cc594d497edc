"""What is watched, with a native client that is scripted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from consumer_sdk.adapters.assignment_book import GrantState
from consumer_sdk.adapters.pulsar.client.admin import Admin
from consumer_sdk.adapters.pulsar.consumer import watching
from consumer_sdk.adapters.pulsar.consumer.subscriber import Subscriber
from consumer_sdk.adapters.pulsar.consumer.watching import Watch
from consumer_sdk.errors import AdapterError
from consumer_sdk.records import StartPoint
from tests.adapters.pulsar.scripted import Client, begin, subscriber_on


class Answers(Admin):
    """An admin API that says what a test wants.

    Attributes:
        meanwhile: done while it is asked.
    """

    def __init__(self) -> None:
        self.meanwhile: Callable[[], object] = lambda: None
        self.error: Exception | None = None

    async def active_consumer(self, topic: str, subscription: str) -> str | None:
        """Another one."""
        del topic, subscription
        await asyncio.sleep(0)
        self.meanwhile()
        if self.error is not None:
            raise self.error
        return "another"


class Bench:
    """A watch of one subscriber, which reads."""

    def __init__(self) -> None:
        self.subscriber = subscriber_on(Client(), "t", type="failover")
        self.admin = Answers()
        self.lost: list[Subscriber] = []
        self.watch = Watch(
            {self.subscriber.partition: self.subscriber},
            self.admin,
            self.subscriber._options,
            lost=lambda subscriber, _: self.lost.append(subscriber),
        )

    async def ask(self) -> None:
        """Asks who is active."""
        await self.watch._ask(self.subscriber, self.admin)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """It reads."""
    made = Bench()
    await made.subscriber.subscribe()
    made.subscriber.offer()
    await begin(made.subscriber, StartPoint.BROKER)
    yield made
    await made.subscriber.unsubscribe_natively()


async def test_consumer_that_was_deposed_is_lost(bench: Bench) -> None:
    """The broker has another active one."""
    await bench.ask()
    assert bench.lost == [bench.subscriber]


async def test_consumer_that_is_deposed_while_it_drains_is_lost(bench: Bench) -> None:
    """The broker fences nothing: it would ack in the other's name, and undo a reset of the cursor."""
    grant = bench.subscriber.grant
    assert grant is not None
    bench.subscriber._grants.drain([grant])
    await bench.ask()
    assert bench.lost == [bench.subscriber]


async def test_answer_of_before_an_assignment_says_nothing_of_it(bench: Bench) -> None:
    """(1) It is asked; (2) the partition is lost, and granted again; (3) the answer comes."""

    def again() -> None:
        bench.subscriber.end()
        bench.subscriber.offer().state = GrantState.OPEN

    bench.admin.meanwhile = again
    await bench.ask()
    assert bench.lost == []


async def test_answer_of_before_a_native_consumer_says_nothing_of_it(bench: Bench) -> None:
    """It has another name."""
    other = object()
    bench.admin.meanwhile = lambda: setattr(bench.subscriber, "_consumer", other)
    native = bench.subscriber.native
    await bench.ask()
    assert bench.lost == []
    bench.subscriber._consumer = native


async def test_question_without_an_answer_holds_no_other_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And is not asked twice at a time."""
    monkeypatch.setattr(watching, "ACTIVE", 0.01)
    stuck, other = subscriber_on(Client(), "stuck"), subscriber_on(Client(), "other")
    asked: list[str] = []

    class Admins(Answers):
        async def active_consumer(self, topic: str, subscription: str) -> str | None:
            del subscription
            asked.append(topic)
            if topic.endswith("stuck"):
                await asyncio.Event().wait()
            return None

    stuck.is_standby = other.is_standby = True
    options = subscriber_on(Client(), "t", type="failover")._options
    watched = {subscriber.partition: subscriber for subscriber in (stuck, other)}
    watch = Watch(watched, Admins(), options, lost=lambda *_: None)
    running = asyncio.create_task(watch.run())
    async with asyncio.timeout(300):
        while asked.count(other.topic) < 3:
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait({running})
    assert asked.count(stuck.topic) == 1


async def test_question_that_fails_loses_nothing(bench: Bench) -> None:
    """The others are asked all the same."""
    bench.admin.error = AdapterError("denied")
    await bench.ask()
    assert bench.lost == []
