"""A native client that does what a test says, for races that no broker shows twice."""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import _pulsar
import pytest

from consumer_sdk.abc import AssignmentOwner
from consumer_sdk.adapters.assignment_book import AssignmentBook
from consumer_sdk.adapters.pulsar import PulsarAdapter
from consumer_sdk.adapters.pulsar.client.beginning import Beginning
from consumer_sdk.adapters.pulsar.client.connection import Connection
from consumer_sdk.adapters.pulsar.client.topics import partition_of
from consumer_sdk.adapters.pulsar.consumer.subscriber import Subscriber
from consumer_sdk.records import Assignment, Start, StartPoint

__all__ = ["DISCONNECTED", "Client", "Native", "Owner", "adapter_on", "begin", "subscriber_on"]

Callback = Callable[..., None]
Result = _pulsar.Result
DISCONNECTED = Result(46)
"""``ResultDisconnected`` of the C++ client, which the extension gives no name."""


class Native:
    """A native consumer.

    Attributes:
        is_silent: questions are not answered.
        is_frozen: nor is its close.
        closing: the answer to its close.
        acks: what was acked, and whether that was cumulative.
    """

    def __init__(self, name: str = "c") -> None:
        self.name = name
        self.queue: queue.Queue[Any] = queue.Queue()
        self.is_closed = self.is_silent = self.is_frozen = False
        self.closing = Result.Ok
        self.acks: list[tuple[object, bool]] = []

    def receive(self, milliseconds: int) -> Any:
        """What the test has put there."""
        del milliseconds
        try:
            found = self.queue.get(timeout=0.01)
        except queue.Empty:
            raise _pulsar.Timeout from None
        if isinstance(found, Exception):
            raise found
        return found

    def batch_receive(self) -> list[Any]:
        """Nothing beside."""
        return []

    def is_connected(self) -> bool:
        """Until it is closed."""
        return not self.is_closed

    def consumer_name(self) -> str:
        """As it was made."""
        return self.name

    def close_async(self, done: Callback | None) -> None:
        """At once."""
        self.is_closed = True
        if done is not None and not self.is_frozen:
            done(self.closing)

    def acknowledge_async(self, native: object, done: Callback) -> None:
        """One by one."""
        del done
        self.acks.append((native, False))

    def acknowledge_cumulative_async(self, native: object, done: Callback | None) -> None:
        """And all before it."""
        del done
        self.acks.append((native, True))

    def seek_async(self, target: object, done: Callback) -> None:
        """At once, or never."""
        del target
        if not self.is_silent:
            done(Result.Ok)

    def get_last_message_id_async(self, done: Callback) -> None:
        """At once, or never."""
        if not self.is_silent:
            done(Result.Ok)


class Client:
    """A native client.

    Attributes:
        answers: by topic, what subscriptions to it get in turn; then a new consumer. None: nothing.
        partitions: what a look for a topic's partitions gets.
        names: by topic, its partitions; of others the topic itself.
        waiting: by topic, callbacks that got no answer.
        made: by topic, the consumers.
        is_silent: it does not answer to its close.
        closing: what consumers answer to theirs; None: nothing.
    """

    is_silent = False

    def __init__(self) -> None:
        self.answers: dict[str, list[Any]] = {}
        self.partitions: list[Any] = []
        self.names: dict[str, list[str]] = {}
        self.waiting: dict[str, Callback] = {}
        self.made: dict[str, list[Native]] = {}
        self.closing: Any = Result.Ok

    def subscribe_async(self, topic: str, name: str, options: Any, done: Callback) -> None:
        """As the answers say."""
        del name, options
        answers = self.answers.get(topic, [])
        answer = answers.pop(0) if answers else Result.Ok
        if answer is None:
            self.waiting[topic] = done
        elif answer == Result.Ok:
            native = Native()
            native.is_frozen, native.closing = self.closing is None, self.closing
            self.made.setdefault(topic, []).append(native)
            done(answer, native)
        else:
            done(answer)

    def get_topic_partitions_async(self, topic: str, done: Callback) -> None:
        """As was set."""
        result = self.partitions.pop(0) if self.partitions else Result.Ok
        done(result, self.names.get(topic, [topic]))

    def close_async(self, done: Callback) -> None:
        """It has no threads."""
        if not self.is_silent:
            done(Result.Ok)


class Owner(AssignmentOwner):
    """Takes all partitions."""

    def __init__(self) -> None:
        self.granted: list[Assignment] = []

    async def assigned(self, assignments: Sequence[Assignment]) -> Mapping[Assignment, Start]:
        """From the broker's cursor."""
        self.granted += assignments
        return dict.fromkeys(assignments, StartPoint.BROKER)

    async def revoked(self, assignments: Sequence[Assignment], *, deadline: float) -> None:
        """Nothing is in flight."""

    def lost(self, assignments: Sequence[Assignment]) -> None:
        """Nothing is in flight."""


def adapter_on(
    client: Client, monkeypatch: pytest.MonkeyPatch, *topics: str, **options: Any
) -> PulsarAdapter:
    """An adapter whose native client it is."""
    monkeypatch.setattr(Connection, "make_client", lambda _: client)
    return PulsarAdapter(*topics, service_url="pulsar://h:6650", subscription="s", **options)


def subscriber_on(client: Client, topic: str, **options: Any) -> Subscriber:
    """A subscriber of one topic, which is not subscribed yet."""
    adapter = PulsarAdapter(topic, service_url="pulsar://h:6650", subscription="s", **options)
    beginning = Beginning(None, topic, adapter._options, is_discovered=False)
    beginning.is_new = False
    return Subscriber(
        client,
        partition_of(topic),
        adapter._options,
        is_discovered=False,
        beginning=beginning,
        grants=AssignmentBook(),
        on_news=lambda: None,
        on_reset=Subscriber.end,
        budget=adapter._options.make_room(),
    )


async def begin(subscriber: Subscriber, start: Start) -> None:
    """The owner has said where to start, if it is not over."""
    if subscriber.grant is not None:
        subscriber._grants.answer([subscriber.grant], {subscriber.grant.assignment: start})
    await subscriber.begin()
