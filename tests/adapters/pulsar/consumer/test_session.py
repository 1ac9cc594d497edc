"""From open to close, with a native client that is scripted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import _pulsar
import pytest

from consumer_sdk.adapters.pulsar.client import calls
from consumer_sdk.adapters.pulsar.client.admin import Admin
from consumer_sdk.adapters.pulsar.consumer import session, subscriber, watching
from consumer_sdk.checkpoints.positions import LAST_BATCH_INDEX
from consumer_sdk.errors import AdapterError, ConfigurationError
from consumer_sdk.records import AckFlush, Assignment, Checkpoint, OutcomeKind, Start
from tests.adapters.pulsar.scripted import Client, Native, Owner, adapter_on

Result = _pulsar.Result
A, B = "persistent://public/default/a", "persistent://public/default/b"


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is waited for."""
    monkeypatch.setattr(session, "FIRST_BACKOFF", 0.01)
    monkeypatch.setattr(session, "LONGEST_BACKOFF", 0.02)
    monkeypatch.setattr(watching, "PATIENCE", 0.05)


async def until(claim: object) -> None:
    """Waits for what a function says."""
    assert callable(claim)
    async with asyncio.timeout(300):
        while not claim():
            await asyncio.sleep(0.01)


async def test_topic_that_is_refused_leaves_no_consumer_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """(1) One is refused, and opening has failed; (2) the other's answer comes."""
    client = Client()
    client.answers = {A: [None], B: [Result.AuthorizationError]}
    adapter = adapter_on(client, monkeypatch, "a", "b")
    with pytest.raises(AdapterError, match="permissions"):
        await adapter.open(Owner())
    late = Native()
    client.waiting[A](Result.Ok, late)
    await asyncio.sleep(0)
    assert late.is_closed


async def test_broker_that_is_frozen_does_not_hold_a_close_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The operation timeout is 30 s."""
    for module in (calls, subscriber):
        monkeypatch.setattr(module, "CLOSE", 0.05)
    client = Client()
    adapter = adapter_on(client, monkeypatch, "a", "b")
    await adapter.open(Owner())
    client.is_silent = True
    for (native,) in client.made.values():
        native.is_frozen = True
    async with asyncio.timeout(25):
        await adapter.aclose()
    assert [record.getMessage() for record in caplog.records] == [
        f"closing the consumer of {A}: no answer",
        f"closing the consumer of {B}: no answer",
        "closing the client: no answer",
    ]


class Clock(Admin):
    """An admin API whose clock moves on with each look."""

    now = 1000.0

    async def time(self) -> float:
        """A second later than before."""
        self.now += 1
        return self.now

    async def has_topic(self, topic: str) -> bool:
        """Any."""
        del topic
        return True

    async def subscriptions(self, topic: str) -> Sequence[str]:
        """The adapter's."""
        del topic
        return ["s"]

    async def properties(self, topic: str, subscription: str) -> Mapping[str, str]:
        """None."""
        del topic, subscription
        return {}


async def test_time_is_the_clock_of_the_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    """What "latest" is pinned as: a claim that comes late passes nothing over."""
    monkeypatch.setattr(session, "Admin", Clock)
    adapter = adapter_on(Client(), monkeypatch, "a", admin_url="http://h:8080")
    owner = Owner()
    await adapter.open(owner)
    await until(lambda: owner.granted)
    assert [await adapter.time(), await adapter.time()] == [1001.0, 1001.0]
    await adapter.aclose()


async def test_time_without_the_admin_api_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client does not tell."""
    adapter = adapter_on(Client(), monkeypatch, "a")
    await adapter.open(Owner())
    with pytest.raises(ConfigurationError, match="admin_url="):
        await adapter.time()
    await adapter.aclose()


async def test_refusals_of_later_end_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look for topics and one partition are denied for a while; the other one goes on."""
    client, owner = Client(), Owner()
    adapter = adapter_on(client, monkeypatch, "a", "b", discovery_interval=0.01)
    await adapter.open(owner)
    await until(lambda: len(owner.granted) == 2)
    client.answers[A] = [Result.TopicNotFound, Result.AuthorizationError]
    client.partitions = [Result.AuthorizationError, Result.TopicNotFound]
    adapter.drop(next(a for a in owner.granted if a.partition.stream.endswith("a")))
    await until(lambda: len(owner.granted) == 3 and not client.partitions)
    assert [a.partition.stream[-1] for a in owner.granted].count("a") == 2
    assert len(client.made[B]) == 1
    await adapter.aclose()


async def test_partitions_that_one_look_finds_share_the_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first of them would get more than the last, and the sum of their queues more than half."""
    client, owner = Client(), Owner()
    client.names[A] = [f"{A}-partition-0"]
    sizes = {"memory_limit": 40_000, "max_message_size": 1000, "receiver_queue": 4}
    adapter = adapter_on(client, monkeypatch, "a", discovery_interval=0.01, **sizes)
    await adapter.open(owner)
    client.names[A] = [f"{A}-partition-{n}" for n in range(9)]
    await until(lambda: len(owner.granted) == 9)
    assert adapter._opened is not None
    room = adapter._opened._budget
    assert room is not None
    assert list(room._queues.values()) == [4000, *[2000] * 8]
    await adapter.aclose()


async def test_partition_whose_receiving_failed_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its thread has ended, although it is connected."""
    client, owner = Client(), Owner()
    adapter = adapter_on(client, monkeypatch, "a")
    await adapter.open(owner)
    await until(lambda: len(owner.granted) == 1)
    client.made[A][0].queue.put(_pulsar.AlreadyClosed())
    await until(lambda: len(owner.granted) == 2)
    assert [native.is_closed for native in client.made[A]] == [True, False]
    await adapter.aclose()


async def test_pause_and_resume_of_a_consumer_that_closes_raise_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A timer of the runtime may come that late."""
    client, owner = Client(), Owner()
    adapter = adapter_on(client, monkeypatch, "a")
    await adapter.open(owner)
    await until(lambda: len(owner.granted) == 1)
    closing = asyncio.create_task(adapter.aclose())
    await asyncio.sleep(0)
    adapter.pause(owner.granted[0])
    adapter.resume(owner.granted[0])
    await closing
    adapter.resume(owner.granted[0])


async def test_cumulative_ack_whose_flush_was_cancelled_is_made_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client would take the same again for done, also if it was never sent."""
    client, owner = Client(), Owner()
    adapter = adapter_on(client, monkeypatch, "a", cumulative_acks=True)
    await adapter.open(owner)
    await until(lambda: len(owner.granted) == 1)
    native = client.made[A][0]
    first, second = (1, 0, LAST_BATCH_INDEX), (1, 1, LAST_BATCH_INDEX)
    settled = [(first, "first"), (second, "second")]
    flush = AckFlush(owner.granted[0], 1, Checkpoint(watermark=second), settled)
    cancelled = asyncio.create_task(adapter.commit([flush]))
    await until(lambda: native.acks)
    cancelled.cancel()
    await asyncio.wait({cancelled})
    for _ in range(2):
        (outcome,) = await adapter.commit([flush])
        assert outcome.kind is OutcomeKind.SENT
    each = [("first", False), ("second", False)]
    assert native.acks == [("second", True), *each, ("second", True)]
    await adapter.aclose()


class Thinking(Owner):
    """Answers when it is told to, and writes down what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.told: list[str] = []

    async def assigned(self, assignments: Sequence[Assignment]) -> Mapping[Assignment, Start]:
        """When the gate is open."""
        self.told.append("asked")
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.told.append("cancelled")
            raise
        self.told.append("granted")
        return await super().assigned(assignments)

    async def revoked(self, assignments: Sequence[Assignment], *, deadline: float) -> None:
        """Drains."""
        del assignments, deadline
        self.told.append("revoked")

    def lost(self, assignments: Sequence[Assignment]) -> None:
        """Closes trackers."""
        self.told += ["lost" for _ in assignments]


async def test_partition_that_is_lost_while_the_owner_thinks_is_told_lost_when_it_has_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another process has the subscription: the owner would hold for ever what it begins to hold then."""
    monkeypatch.setattr(watching, "BACK", 0.01)
    client, owner = Client(), Thinking()
    adapter = adapter_on(client, monkeypatch, "a")
    await adapter.open(owner)
    await until(lambda: owner.told)
    client.answers[A] = [Result.ConsumerBusy]
    client.made[A][0].is_closed = True
    await until(lambda: "lost" in owner.told)
    owner.gate.set()
    await until(lambda: len(owner.granted) == 2)
    assert owner.told[:4] == ["asked", "lost", "granted", "lost"]
    await adapter.aclose()


async def test_close_while_the_owner_thinks_ends_the_question_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would begin to hold what was revoked just now."""
    client, owner = Client(), Thinking()
    adapter = adapter_on(client, monkeypatch, "a")
    await adapter.open(owner)
    await until(lambda: owner.told)
    await adapter.aclose()
    assert owner.told == ["asked", "cancelled", "revoked"]


async def test_partitions_are_granted_in_few_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round trip to the store for each of a thousand would take long."""
    client, owner = Client(), Thinking()
    owner.gate.set()
    client.names[A] = [f"{A}-partition-{n}" for n in range(20)]
    adapter = adapter_on(client, monkeypatch, "a")
    await adapter.open(owner)
    await until(lambda: len(owner.granted) == 20)
    assert owner.told.count("asked") <= 2
    await adapter.aclose()
