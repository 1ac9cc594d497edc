"""Topics that grow, and topics that are deleted and made again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import TopicPartition

from consumer_sdk.adapters.assignment_book import AssignmentBook
from consumer_sdk.adapters.kafka import KafkaAdapter
from consumer_sdk.adapters.kafka.client.topics import Topic
from consumer_sdk.adapters.kafka.consumer import watching as module
from consumer_sdk.adapters.kafka.consumer.granting import Taken
from consumer_sdk.adapters.kafka.consumer.grants import Grant
from consumer_sdk.adapters.kafka.consumer.watching import (
    AloneTopics,
    Topics,
    TopicWatch,
    await_chosen,
    look_at_chosen,
    partitions_of,
)
from consumer_sdk.errors import ConfigurationError, TransientAdapterError
from consumer_sdk.records import StartPoint
from tests.adapters.kafka.world import World, cluster_of, flush_of, numbered, values


@pytest.mark.kafka
async def test_without_a_group_all_partitions_are_read_and_nothing_is_committed(
    world: World,
) -> None:
    """Give the consumer a store: the broker keeps no position."""
    topic = await world.kafka.create_stream(3)
    for partition in range(3):
        await world.kafka.append(topic, numbered(0, 2), partition)
    async with world.member(topic, group=None) as member:
        held = await member.holding(3)
        assert sorted(values(await member.read(6))) == [0, 0, 0, 1, 1, 1]
        assert not member.adapter.capabilities.commits
        assert await member.adapter.committed(held) == dict.fromkeys(held)
        with pytest.raises(ConfigurationError, match="group="):
            await member.adapter.commit([flush_of(held[0], 1)])


@pytest.mark.kafka
async def test_new_partition_without_a_group_leaves_the_others_where_they_are(
    world: World,
) -> None:
    """The client's own way re-read all records, and with "latest" lost 50 of 50 in the new one."""
    topic = await world.kafka.create_stream()
    await world.kafka.append(topic, numbered(0, 5))
    owner = world.owner()
    async with world.member(topic, owner, group=None) as member:
        (first,) = await member.holding(1)
        assert values(await member.read(5)) == list(range(5))
        member.adapter.pause(first)
        await world.kafka.grow(topic, 2)
        await world.kafka.append(topic, numbered(10, 13), 1)
        assert values(await member.read(3)) == [10, 11, 12]
        await world.kafka.append(topic, numbered(5, 7), 0)
        assert await member.fetch() == []  # still paused
        member.adapter.resume(first)
        assert values(await member.read(2)) == [5, 6]
        assert [a.discovered for a in await member.holding(2)] == [False, True]


@pytest.mark.kafka
@pytest.mark.parametrize("group", ["g", None])
async def test_topic_made_again_is_read_from_its_start_in_a_new_epoch(
    world: World, group: str | None
) -> None:
    """At the old position the new topic's first records would be passed over in silence."""
    topic = await world.kafka.create_stream()
    await world.kafka.append(topic, numbered(0, 3))
    async with world.member(topic, group=group, metadata_max_age_ms=60_000) as member:
        (old,) = await member.holding(1)
        await member.read(3)
        identity = member.adapter.identity(old)
        await world.kafka.recreate(topic)
        await world.kafka.append(topic, numbered(100, 110))
        await cluster_of(member).refresh()
        found: list[int] = []
        async with asyncio.timeout(world.kafka.patience):
            while 109 not in found:
                runs = await member.fetch()
                found += [
                    int(m.value or b"") for r in runs if r.assignment is not old for m in r.messages
                ]
        assert found == list(range(100, 110))
        (new,) = await member.holding(1)
        assert member.adapter.identity(new) not in {identity, None}


@pytest.mark.kafka
async def test_deleted_topic_is_not_created_again(world: World) -> None:
    """The client's metadata requests would bring it back, empty, while it is being read."""
    topic = await world.kafka.create_stream()
    await world.kafka.append(topic, numbered(0, 3))
    async with world.member(topic, metadata_max_age_ms=100) as member:
        await member.holding(1)
        await member.read(3)
        await world.kafka.delete(topic)
        await world.kafka.until_absent(topic)
        for _ in range(5):
            await cluster_of(member).refresh()
            await member.fetch()
        assert topic not in await world.kafka.admin.list_topics()


@pytest.mark.kafka
async def test_latest_in_a_quiet_partition_misses_nothing_that_comes_after(world: World) -> None:
    """The position is resolved once, before the first fetch."""
    topic = await world.kafka.create_stream()
    await world.kafka.append(topic, numbered(0, 3))
    owner = world.owner()
    owner.start = StartPoint.LATEST
    async with world.member(topic, owner, group=None) as member:
        await member.holding(1)
        await member.read_nothing()
        await world.kafka.append(topic, numbered(3, 6))
        assert values(await member.read(3)) == [3, 4, 5]


# -- without a broker ------------------------------------------------------------------------------

ID, NEW_ID = b"1" * 16, b"2" * 16


def topic(name: str, count: int = 1, topic_id: bytes | None = ID, error: int = 0) -> Topic:
    """A topic as the broker describes it."""
    return Topic(name, error, topic_id, frozenset(range(count)), 1, name.startswith("__"))


class Broker:
    """Describes topics; stands for the cluster, too.

    Attributes:
        topics: by name.
        asked: what for.
        failures: what the next questions raise.
    """

    def __init__(self, *topics: Topic) -> None:
        self.topics = {each.name: each for each in topics}
        self.asked: list[list[str] | None] = []
        self.failures: list[Exception] = []
        self.listeners: list[Callable[[object], None]] = []
        self.is_closed = False

    async def describe(self, names: Sequence[str] | None) -> dict[str, Topic]:
        """As `describe_topics` does."""
        self.asked.append(None if names is None else list(names))
        if self.failures:
            raise self.failures.pop(0)
        wanted = self.topics if names is None else names
        return {name: self.topics[name] for name in wanted}

    def add_listener(self, listener: Callable[[object], None], *, each: bool) -> None:
        """As `Cluster` does."""
        assert each
        self.listeners.append(listener)

    def remove_listener(self, listener: Callable[[object], None]) -> None:
        """As `Cluster` does."""
        self.listeners.remove(listener)

    async def refresh(self) -> None:
        """There are fresh metadata, and everybody has looked."""
        for listener in self.listeners:
            listener(self)
        for _ in range(5):
            await asyncio.sleep(0)


class Watched:
    """A watch over some grants.

    Attributes:
        seen: the topics of each look.
        dropped: partitions that were.
    """

    def __init__(self, broker: Broker, *grants: Grant, **options: Any) -> None:
        self.broker = broker
        self.book = AssignmentBook[Grant]()
        for grant in grants:
            self.book.offer(grant)
        self.seen: list[Topics] = []
        self.dropped: list[Grant] = []
        cluster: Any = broker
        granting: Any = self
        self.watch = TopicWatch(cluster, self.book, granting, options_of(**options), self._note)

    async def _note(self, topics: Topics) -> None:
        self.seen.append(topics)

    def drop(self, grant: Grant) -> None:
        """As `Granting` does."""
        self.dropped.append(grant)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """It watches meanwhile."""
        task = asyncio.create_task(self.watch.run())
        await asyncio.sleep(0)
        yield
        assert not task.done()
        task.cancel()
        await asyncio.wait({task})


def options_of(**changed: Any) -> Any:
    """The options of an adapter."""
    names = () if "pattern" in changed else ("t",)
    return KafkaAdapter(*names, bootstrap_servers="a:1", **({"group": "g"} | changed))._options


def grant_of(name: str, topic_id: bytes | None = ID) -> Grant:
    """A grant of the topic's first partition."""
    grant = Grant(TopicPartition(name, 0))
    grant.topic_id = topic_id
    return grant


@pytest.fixture
def descriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each `Broker` describes its topics."""
    monkeypatch.setattr(module, "describe_topics", Broker.describe)
    monkeypatch.setattr(module, "await_topics", Broker.describe)


@pytest.mark.usefixtures("descriptions")
async def test_topics_that_are_named_are_asked_for_by_name() -> None:
    """At the beginning, and at each look."""
    broker: Any = Broker(topic("t"), topic("u"))
    for choose in (await_chosen, look_at_chosen):
        assert (await choose(broker, options_of())).keys() == {"t"}
    assert broker.asked == [["t"], ["t"]]


@pytest.mark.usefixtures("descriptions")
async def test_topics_that_match_are_found_among_all() -> None:
    """Kafka's own are none of them."""
    broker: Any = Broker(topic("t1"), topic("u"), topic("t2", 2), topic("__t"))
    for choose in (await_chosen, look_at_chosen):
        found = await choose(broker, options_of(pattern=".*t.?"))
        assert found.keys() == {"t1", "t2"}
    assert broker.asked == [None, None]
    assert partitions_of(found) == {("t1", 0), ("t2", 0), ("t2", 1)}


@pytest.mark.usefixtures("descriptions")
async def test_watch_looks_at_each_refresh_of_the_metadata_and_at_nothing_between() -> None:
    """Whoever waits for partitions is told of the topics each time."""
    broker = Broker(topic("t"))
    watched = Watched(broker)
    async with watched.running():
        await asyncio.sleep(0)
        assert broker.asked == []
        for count in (1, 2):
            await broker.refresh()
            assert [seen.keys() for seen in watched.seen] == [{"t"}] * count
    assert broker.listeners == []


@pytest.mark.usefixtures("descriptions")
@pytest.mark.parametrize("is_closed", [True, False])
async def test_look_that_fails_is_made_again_at_the_next_refresh(
    caplog: pytest.LogCaptureFixture, *, is_closed: bool
) -> None:
    """It is said, unless it fails because the adapter closes."""
    broker = Broker(topic("t"))
    broker.failures, broker.is_closed = [TransientAdapterError("no answer")], is_closed
    watched = Watched(broker)
    async with watched.running():
        await broker.refresh()
        assert watched.seen == []
        assert ("could not be looked at: no answer" in caplog.text) is not is_closed
        await broker.refresh()
        assert len(watched.seen) == 1


@pytest.mark.usefixtures("descriptions")
async def test_pattern_of_the_broker_is_known_by_what_it_has_assigned() -> None:
    """It is asked about these topics alone, and about nothing if there are none."""
    broker = Broker(topic("t"), topic("u"), topic("v"))
    watched = Watched(broker, pattern=".*", protocol="consumer")
    async with watched.running():
        await broker.refresh()
        assert (watched.seen, broker.asked) == ([{}], [])
        for name in ("u", "t"):
            watched.book.offer(grant_of(name))
        await broker.refresh()
        assert broker.asked == [["t", "u"]]
        assert watched.seen[1].keys() == {"t", "u"}


@pytest.mark.usefixtures("descriptions")
@pytest.mark.parametrize(
    "held, found, is_dropped",
    [
        (ID, topic("t", topic_id=NEW_ID), True),
        (ID, topic("t", topic_id=ID), False),
        (ID, topic("t", topic_id=None), False),
        (None, topic("t", topic_id=NEW_ID), False),
        (ID, topic("t", topic_id=NEW_ID, error=3), False),
    ],
)
async def test_partition_is_dropped_if_its_topic_has_another_id(
    held: bytes | None, found: Topic, *, is_dropped: bool
) -> None:
    """A broker before Kafka 3.0 tells none; what it cannot describe is not made again yet."""
    broker = Broker(found, topic("u"))
    grant = grant_of("t", held)
    watched = Watched(broker, grant_of("v"), grant)
    async with watched.running():
        await broker.refresh()
    assert watched.dropped == ([grant] if is_dropped else [])
    assert len(watched.seen) == 1


@pytest.mark.usefixtures("descriptions")
async def test_partition_that_is_given_up_is_not_dropped() -> None:
    """It drains already."""
    broker = Broker(topic("t", topic_id=NEW_ID))
    grant = grant_of("t")
    watched = Watched(broker, grant)
    watched.book.drain([grant])
    async with watched.running():
        await broker.refresh()
    assert watched.dropped == []


class Alone:
    """What is held without a group; stands for holdings and granting.

    Attributes:
        drained: partitions that were left, in order.
    """

    def __init__(self, *, gone_is_left: bool) -> None:
        self.tps: set[TopicPartition] = set()
        self.known = frozenset[TopicPartition]()
        self.drained: list[list[TopicPartition]] = []
        me: Any = self
        self.topics = AloneTopics(me, me, gone_is_left=gone_is_left)

    def assign(self, tps: frozenset[TopicPartition]) -> None:
        """As `Holdings` does; so with the others."""
        self.tps |= tps

    def take(self, tps: list[TopicPartition]) -> Any:
        self.tps -= set(tps)
        return tps

    async def drain(self, taken: Any) -> None:
        assert not isinstance(taken, Taken)
        self.drained.append(sorted(taken))

    async def seen(self, *names: str) -> None:
        """These topics are there, with two partitions each."""
        await self.topics.seen({name: topic(name, 2) for name in names})


async def test_topic_that_two_looks_have_not_found_is_left() -> None:
    """A broker that has just started knows few topics; one that is made again is no longer known."""
    alone = Alone(gone_is_left=True)
    await alone.seen("t", "u")
    alone.known = frozenset(alone.tps)
    t, u = ({(name, 0), (name, 1)} for name in "tu")
    assert alone.tps == t | u
    await alone.seen("u")
    await alone.seen("t", "u")
    await alone.seen("u")
    assert (alone.tps, alone.drained) == (t | u, [])
    await alone.seen("u")
    assert (alone.tps, alone.drained) == (u, [sorted(t)])
    assert alone.known == u
    await alone.seen("u")
    assert len(alone.drained) == 1


async def test_topic_that_is_named_is_never_left() -> None:
    """It may come back: whoever named it waits for it."""
    alone = Alone(gone_is_left=False)
    await alone.seen("t", "u")
    await alone.seen("u")
    await alone.seen("u")
    assert len(alone.tps) == 4
    assert alone.drained == []
