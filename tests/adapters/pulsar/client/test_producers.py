"""Producers by topic and partition, with a native client that is scripted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from consumer_sdk.adapters.pulsar.client import calls
from consumer_sdk.adapters.pulsar.client import producers as producing
from consumer_sdk.adapters.pulsar.client.connection import Connection
from consumer_sdk.adapters.pulsar.client.outgoing import OutgoingRecord
from consumer_sdk.adapters.pulsar.client.producers import Producers
from consumer_sdk.errors import AdapterError, ConsumerClosedError, TransientAdapterError
from tests.adapters.pulsar.scripted import DISCONNECTED, Callback, Client, Result

TOPIC = "persistent://public/default/t"
KEYS = [b"a", b"b", b"c", b"d"]


class Producer:
    """A native producer; it keeps what is sent."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.is_closed = self.is_lost = False
        self.sent: list[bytes] = []

    def send_async(self, message: Any, done: Callback) -> None:
        """At once."""
        self.sent.append(message.partition_key().encode())
        done(DISCONNECTED if self.is_lost else Result.Ok)

    def is_connected(self) -> bool:
        """Until it is closed."""
        return not (self.is_closed or self.is_lost)

    def close_async(self, done: Callback | None) -> None:
        """At once."""
        self.is_closed = True
        if done is not None:
            done(Result.Ok)


class Writer(Client):
    """A native client with producers.

    Attributes:
        subscribed: to which topics, in turn.
        looked: how many looks for partitions there were.
        looks: callbacks of those that wait, if ``is_slow``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.producers: list[Producer] = []
        self.subscribed: list[str] = []
        self.looked = 0
        self.looks: list[Callback] = []
        self.is_slow = False

    def create_producer_async(self, topic: str, options: object, done: Callback) -> None:
        """At once."""
        del options
        self.producers.append(Producer(topic))
        done(Result.Ok, self.producers[-1])

    def subscribe_async(self, topic: str, name: str, options: Any, done: Callback) -> None:
        """As the answers say."""
        self.subscribed.append(topic)
        super().subscribe_async(topic, name, options, done)

    def get_topic_partitions_async(self, topic: str, done: Callback) -> None:
        """As was set, or later."""
        self.looked += 1
        if self.is_slow:
            self.looks.append(done)
        else:
            super().get_topic_partitions_async(topic, done)

    @property
    def open_ones(self) -> list[str]:
        """The topics of open producers."""
        return sorted(each.topic for each in self.producers if not each.is_closed)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Writer]:
    """Of all producers."""
    made = Writer()
    made.names[TOPIC] = [f"{TOPIC}-partition-{n}" for n in range(4)]
    monkeypatch.setattr(Connection, "make_client", lambda _: made)
    yield made
    assert not made.open_ones


def producers(**options: Any) -> Producers:
    """Of a client that is scripted."""
    return Producers(Connection(service_url="pulsar://h:6650"), **options)


def of(key: bytes) -> OutgoingRecord:
    """A record."""
    return OutgoingRecord(key=key, value=b"v", properties={})


async def test_subscription_is_made_once_for_all_partitions_of_a_topic(client: Writer) -> None:
    """Each look at it costs a consumer of every partition."""
    made = producers(subscription="kept")
    await asyncio.gather(*(made.send(TOPIC, of(key)) for key in KEYS))
    await made.send(TOPIC, OutgoingRecord(key=None, value=b"v", properties={}))
    assert client.open_ones == [TOPIC, *client.names[TOPIC]]
    assert client.subscribed == [TOPIC]
    await made.aclose()


async def test_subscription_that_is_refused_is_tried_again(client: Writer) -> None:
    """Nothing is written before it is there, or the broker may delete it."""
    client.answers[TOPIC] = [Result.ServiceUnitNotReady]
    made = producers(subscription="kept")
    results = [made.send(TOPIC, of(key)) for key in KEYS[:2]]
    found = await asyncio.gather(*results, return_exceptions=True)
    assert [type(each) for each in found] == [TransientAdapterError] * 2
    assert not client.producers
    await made.send(TOPIC, of(KEYS[0]))
    assert client.subscribed == [TOPIC] * 2
    await made.aclose()


@pytest.mark.parametrize("closing", [DISCONNECTED, Result.TopicNotFound, None])
async def test_subscription_whose_consumer_cannot_be_closed_is_made(
    client: Writer,
    closing: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """(1) The broker has it; (2) the connection is lost, and with it the consumer; (3) another one is good."""
    monkeypatch.setitem(calls.close.__kwdefaults__ or {}, "patience", 0.01)
    client.closing = closing
    made = producers(subscription="kept")
    for key in KEYS[:2]:
        await made.send(TOPIC, of(key))
    assert [each.sent for each in client.producers] == [[b"a"], [b"b"]]
    assert client.subscribed == [TOPIC]
    assert f"closing the consumer of {TOPIC}: " in caplog.text
    await made.aclose()


async def test_subscription_is_made_again_after_a_producer_was_lost(client: Writer) -> None:
    """The topic may be another one by now."""
    made = producers(subscription="kept")
    await made.send(TOPIC, of(b"a"))
    client.producers[0].is_lost = True
    with pytest.raises(AdapterError):
        await made.send(TOPIC, of(b"a"))
    await made.send(TOPIC, of(b"a"))
    assert client.subscribed == [TOPIC] * 2
    await made.aclose()


async def test_producers_of_a_topic_with_many_partitions_are_kept(
    client: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They count as one: of another topic, the one that was used last is kept."""
    monkeypatch.setattr(producing, "MOST", 2)
    made = producers()
    for key in KEYS:
        await made.send(TOPIC, of(key))
    await made.send("u", of(b"a"))
    assert len(client.open_ones) == 5
    await made.send(TOPIC, of(b"a"))
    await made.send("v", of(b"a"))
    assert client.open_ones == [*client.names[TOPIC], "v"]
    await made.send("u", of(b"a"))
    assert client.open_ones == ["u", "v"]
    await made.aclose()


async def test_senders_share_one_look_for_partitions(client: Writer) -> None:
    """Of a thousand letters each would ask, and one that is cancelled ends it for nobody else."""
    client.is_slow = True
    made = producers()
    sending = [asyncio.create_task(made.send(TOPIC, of(key))) for key in KEYS]
    await asyncio.sleep(0.01)
    sending[0].cancel()
    await asyncio.sleep(0)
    (answer,) = client.looks
    answer(Result.Ok, client.names[TOPIC])
    found = await asyncio.gather(*sending, return_exceptions=True)
    assert [type(each) for each in found] == [asyncio.CancelledError, *[type(None)] * 3]
    await made.aclose()


async def test_look_that_fails_falls_back_to_what_was_known(
    client: Writer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The producers are there, and may still be able to write."""
    monkeypatch.setattr(producing, "LOOK", -1.0)
    made = producers()
    client.partitions = [Result.ServiceUnitNotReady]
    with pytest.raises(TransientAdapterError):
        await made.send(TOPIC, of(b"a"))
    await made.send(TOPIC, of(b"a"))
    client.partitions = [Result.ServiceUnitNotReady]
    await made.send(TOPIC, of(b"b"))
    assert "it is taken to have 4 partitions as before" in caplog.text
    assert client.looked == 3
    await made.aclose()


async def test_close_while_partitions_are_looked_up_is_said(client: Writer) -> None:
    """Its answer may never come."""
    client.is_slow = True
    made = producers()
    sending = asyncio.create_task(made.send(TOPIC, of(b"a")))
    await asyncio.sleep(0.01)
    await made.aclose()
    with pytest.raises(ConsumerClosedError, match="make a new one"):
        await sending
