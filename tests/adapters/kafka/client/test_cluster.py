"""The connection layer on brokers that answer by a script."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import (
    IncompatibleBrokerVersion,
    InvalidGroupIdError,
    KafkaConnectionError,
    KafkaError,
    NodeNotReadyError,
    NotLeaderForPartitionError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from aiokafka.protocol.group import HeartbeatRequest, HeartbeatResponse_v1

from consumer_sdk.adapters.kafka.client import cluster as cluster_module
from consumer_sdk.adapters.kafka.client import connections as connections_module
from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.client.cluster_metadata import Leader
from consumer_sdk.adapters.kafka.client.connections import Channel
from consumer_sdk.adapters.kafka.client.lookups import (
    LATEST,
    Coordinator,
    CoordinatorKind,
    FindCoordinatorResponseV4,
    ListedOffset,
    ListOffsetsResponseV4,
)
from consumer_sdk.adapters.kafka.client.protocol import MetadataResponseV12
from consumer_sdk.adapters.kafka.client.topics import describe_topics
from consumer_sdk.errors import TransientAdapterError
from consumer_sdk.testing import simulate
from consumer_sdk.testing.servers.ports import HOST
from tests.adapters.kafka.scripted_broker import (
    COORDINATOR,
    HEARTBEAT,
    LIST_OFFSETS,
    METADATA,
    ScriptedBroker,
    topic,
)

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
HANG = 100.0
"""Seconds that only something that hangs takes."""
NOWHERE = f"{HOST}:1"

Opener: TypeAlias = Callable[..., Awaitable[Cluster]]


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    """One that leads a topic of one partition."""
    async with ScriptedBroker() as made:
        made.topics = [topic("t", (1, 5))]
        yield made


@pytest.fixture
async def connect(broker: ScriptedBroker) -> AsyncIterator[Opener]:
    """Opens clusters that are closed with the test."""
    async with AsyncExitStack() as stack:

        async def opened(topics: Any = ("t",), **options: Any) -> Cluster:
            made = Cluster({"bootstrap_servers": [broker.address], **options}, topics)
            stack.push_async_callback(made.aclose)
            async with asyncio.timeout(HANG):
                await made.open(HANG)
            return made

        yield opened


def heartbeat() -> HeartbeatRequest:
    """Any request to a coordinator."""
    return HeartbeatRequest("g", 1, "me")


# -- opening ------------------------------------------------------------------------------------


async def test_opening_is_one_connection_and_one_request(
    broker: ScriptedBroker, connect: Opener
) -> None:
    """The connection to the bootstrap server is that to its node; no topic is created."""
    cluster = await connect()
    assert cluster.leader_of(TP) == Leader(1, 5)
    assert cluster.topic_id("t") == b"i" * 16
    await cluster.list_offsets({TP: LATEST})
    assert (broker.connections, broker.asked[METADATA], cluster.calls) == (1, 1, 2)
    assert not broker.seen[0].allow_auto_topic_creation


async def test_server_that_is_away_leaves_it_to_the_next(
    broker: ScriptedBroker, connect: Opener
) -> None:
    """In whatever order they are tried."""
    cluster = await connect(bootstrap_servers=[NOWHERE, broker.address])
    assert set(cluster.metadata.brokers) == {1}


async def test_no_server_is_an_error_in_time() -> None:
    """It names them all."""
    cluster = Cluster({"bootstrap_servers": [NOWHERE, "127.0.0.1:2"]})
    with pytest.raises(TransientAdapterError, match=r"127\.0\.0\.1:2.*ConnectionRefused") as caught:
        await cluster.open(0.3)
    assert NOWHERE in str(caught.value)
    await cluster.aclose()


async def test_server_that_says_nothing_is_given_up_in_time(broker: ScriptedBroker) -> None:
    """And its connection is closed."""
    broker.scripts[METADATA] = silent
    cluster = Cluster({"bootstrap_servers": broker.address})
    with pytest.raises(TransientAdapterError):
        await cluster.open(0.3)
    async with asyncio.timeout(HANG):
        await cluster.aclose()


async def silent(_request: Any) -> None:
    """Answers nothing."""


# -- metadata -----------------------------------------------------------------------------------


async def test_whoever_wants_fresh_metadata_shares_one_request(
    broker: ScriptedBroker, connect: Opener
) -> None:
    """One of them may be cancelled."""
    cluster = await connect()
    waiting = [asyncio.create_task(cluster.refresh()) for _ in range(20)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    done = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(done[0], asyncio.CancelledError)
    assert done[1:] == [None] * 19
    assert broker.asked[METADATA] == 2


async def test_topics_that_are_watched_meanwhile_are_asked_for(
    broker: ScriptedBroker, connect: Opener
) -> None:
    """The answer that is on its way does not have them."""
    cluster = await connect()
    broker.topics.append(topic("new", (1, 0), topic_id=b"n" * 16))
    first = asyncio.create_task(cluster.refresh())
    await asyncio.sleep(0)
    cluster.watch({"t", "new"})
    await cluster.refresh()
    await first
    assert cluster.leader_of(TopicPartition("new", 0)) == Leader(1, 0)
    cluster.watch(None)
    await cluster.refresh()
    assert broker.seen[-1].topics is None
    assert set(cluster.metadata.topics) == {"t", "new"}


async def test_listeners_hear_of_changes_alone(broker: ScriptedBroker, connect: Opener) -> None:
    """One that fails disturbs nobody."""
    cluster, heard = await connect(), list[frozenset[int]]()

    def fail(_metadata: Any) -> None:
        raise ValueError("a mistake")

    def note(metadata: Any) -> None:
        heard.append(metadata.partitions("t"))

    every = list[int]()
    cluster.add_listener(fail)
    cluster.add_listener(note)
    cluster.add_listener(lambda _metadata: every.append(1), each=True)
    await cluster.refresh()
    assert (heard, every) == ([], [1])
    broker.topics = [topic("t", (1, 5), (1, 0))]
    await cluster.refresh()
    assert heard == [{0, 1}]
    cluster.remove_listener(note)
    cluster.remove_listener(note)
    broker.topics = [topic("t", (1, 6), (1, 0))]
    await cluster.refresh()
    assert len(heard) == 1


async def test_old_metadata_are_refreshed_in_the_background(
    broker: ScriptedBroker, connect: Opener
) -> None:
    """At their age, and when somebody asks for it; a failure is tried again."""
    cluster = await connect(metadata_max_age_ms=10, retry_backoff_ms=1)
    async with asyncio.timeout(HANG):
        await until(lambda: broker.asked[METADATA] > 3)
        broker.hang_up()
        await until(lambda: broker.connections > 1)
        count = broker.asked[METADATA]
        await until(lambda: broker.asked[METADATA] > count + 1)
    assert cluster.age < HANG


async def until(is_so: Callable[[], bool]) -> None:
    """Waits for it."""
    while not is_so():
        await asyncio.sleep(0.005)


async def test_metadata_that_nobody_gave_are_asked_for_until_somebody_does(
    broker: ScriptedBroker, connect: Opener
) -> None:
    """Whoever asked in the background waits: a broker that has just started names no broker yet."""
    cluster = await connect(retry_backoff_ms=1)

    async def names_nobody(_request: Any) -> Any:
        if broker.asked[METADATA] > 3:
            del broker.scripts[METADATA]
        return MetadataResponseV12(0, [], "cluster", 1, [], {})

    broker.scripts[METADATA] = names_nobody
    broker.topics = [topic("t", (1, 6))]
    cluster.request_refresh()
    async with asyncio.timeout(HANG):
        await until(lambda: cluster.leader_of(TP) == Leader(1, 6))


async def test_connection_that_breaks_asks_for_fresh_metadata(
    broker: ScriptedBroker, connect: Opener
) -> None:
    """Whoever led may lead no more."""
    await connect()
    broker.topics = [topic("t", (1, 6))]
    broker.hang_up()
    async with asyncio.timeout(HANG):
        await until(lambda: broker.asked[METADATA] > 1)


def test_metadata_that_bring_nothing_new_are_asked_for_ever_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While a leader is away, or a topic is gone, somebody wants fresh ones all the time. On virtual time."""

    async def scenario() -> None:
        broker = ScriptedBroker()
        broker.port = 9092
        broker.topics = [topic("t", (1, 5), (-1, 5))]

        async def answer(_request: Any) -> Any:
            broker.asked[METADATA] += 1
            return broker.metadata()

        async def connection(host: str, port: int, **_options: Any) -> Any:
            return SimpleNamespace(
                connected=lambda: True, host=host, port=port, close=lambda *_: None, send=answer
            )

        monkeypatch.setattr(connections_module, "open_connection", connection)
        cluster = Cluster({"bootstrap_servers": [broker.address]}, {"t"})
        await cluster.open(HANG)

        async def ask_for(seconds: float) -> int:
            before, end = broker.asked[METADATA], asyncio.get_running_loop().time() + seconds
            while asyncio.get_running_loop().time() < end:
                cluster.request_refresh()
                await asyncio.sleep(0.01)
            return broker.asked[METADATA] - before

        assert 55 < await ask_for(60) < 65  # ten times as many at the first pace
        broker.topics = [topic("t", (1, 5), (1, 6))]
        await ask_for(1.1)
        assert cluster.leader_of(OTHER) == Leader(1, 6)
        await asyncio.sleep(2)
        assert await ask_for(0.2) == 2  # nobody has asked in vain for a while
        await cluster.aclose()

    simulate(lambda _: scenario())


async def test_bootstrap_servers_are_asked_again_when_no_node_is_there(
    broker: ScriptedBroker, connect: Opener
) -> None:
    """All nodes have moved meanwhile: nothing that the last metadata name answers."""
    async with ScriptedBroker(node=9) as seed:
        seed.topics = broker.topics
        cluster = await connect(bootstrap_servers=[broker.address, seed.address])
        await broker.close()
        async with asyncio.timeout(HANG):
            while set(cluster.metadata.brokers) != {9}:
                await cluster.refresh()
        await broker.listen()


async def test_no_node_is_an_error_that_says_why(broker: ScriptedBroker, connect: Opener) -> None:
    """It may pass."""
    cluster = await connect()
    await broker.close()
    with pytest.raises(KafkaConnectionError, match=rf"told.*{broker.port}: ConnectionRefused"):
        await cluster.refresh()
    assert f"node 1 at {broker.address}" in cluster.why_away()
    await broker.listen()


async def test_topics_are_described_without_being_watched(
    broker: ScriptedBroker, connect: Opener
) -> None:
    """By name, also absent ones; or all."""
    broker.topics.append(topic("new", (1, 0), topic_id=b"n" * 16))
    cluster = await connect()
    found = await describe_topics(cluster, ["new", "absent"])
    assert found["new"].partitions == {0}
    assert found["absent"].is_absent
    assert set(await describe_topics(cluster, None)) == {"t", "new"}
    assert set(cluster.metadata.topics) == {"t"}


# -- requests -----------------------------------------------------------------------------------


async def test_cancelled_request_leaves_its_connection_sound(
    broker: ScriptedBroker, connect: Opener
) -> None:
    """Its answer comes before the next one's, and is dropped."""
    cluster, may_answer = await connect(), asyncio.Event()

    async def late(request: Any) -> Any:
        await may_answer.wait()
        topics = [("t", [(0, 0, -1, len(broker.seen), 3)])]
        return ListOffsetsResponseV4(0, topics)

    broker.scripts[LIST_OFFSETS] = late
    first = asyncio.create_task(cluster.list_offsets({TP: LATEST}))
    async with asyncio.timeout(HANG):
        await until(lambda: broker.asked[LIST_OFFSETS] == 1)
        first.cancel()
        await asyncio.wait({first})
        second = asyncio.create_task(cluster.list_offsets({TP: LATEST}))
        await until(lambda: cluster.calls == 3)
        may_answer.set()
        found, failures = await second
    assert (found, failures) == ({TP: ListedOffset(3, 3)}, {})
    assert broker.connections == 1


async def test_connection_that_stays_silent_is_made_anew_though_each_request_is_cancelled(
    broker: ScriptedBroker, connect: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is at its other end, and whoever asks waits for less than a request may take."""
    monkeypatch.setattr(connections_module, "SILENCE", HANG)
    cluster = await connect()
    broker.scripts[LIST_OFFSETS] = hanging
    for _ in range(2):
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await cluster.list_offsets({TP: LATEST})
    assert broker.connections == 1
    monkeypatch.setattr(connections_module, "SILENCE", 0.0)
    del broker.scripts[LIST_OFFSETS]
    async with asyncio.timeout(HANG):
        for _ in range(2):
            assert await cluster.list_offsets({TP: LATEST}) == ({TP: ListedOffset(7, 3)}, {})
    assert broker.connections == 2


async def test_request_that_is_not_answered_in_time_ends_its_connection(
    broker: ScriptedBroker, connect: Opener
) -> None:
    """The next one gets a new one."""
    cluster = await connect()
    broker.scripts[HEARTBEAT] = silent
    with pytest.raises(RequestTimedOutError, match=r"did not answer within 0\.05 s") as caught:
        await cluster.send(1, heartbeat(), timeout=0.05)
    assert caught.value.retriable
    del broker.scripts[HEARTBEAT]
    assert (await cluster.send(1, heartbeat())).error_code == 0
    assert broker.connections == 2


async def test_request_may_take_longer_than_others(broker: ScriptedBroker, connect: Opener) -> None:
    """As a join does; the connection has no limit of its own."""
    cluster, may_answer = await connect(), asyncio.Event()

    async def late(_request: Any) -> Any:
        await may_answer.wait()
        return HeartbeatResponse_v1(0, 0)

    broker.scripts[HEARTBEAT] = late
    join = asyncio.create_task(cluster.send(1, heartbeat(), channel=Channel.JOINS, timeout=HANG))
    with pytest.raises(RequestTimedOutError):
        await cluster.send(1, heartbeat(), timeout=0.05)
    may_answer.set()
    assert (await join).error_code == 0


async def test_join_that_is_cancelled_holds_up_no_other(
    broker: ScriptedBroker, connect: Opener
) -> None:
    """The broker would answer the first one before it reads the second."""
    cluster = await connect()
    broker.scripts[HEARTBEAT] = hanging
    first = asyncio.create_task(cluster.send(1, heartbeat(), channel=Channel.JOINS))
    async with asyncio.timeout(HANG):
        await until(lambda: broker.asked[HEARTBEAT] == 1)
        first.cancel()
        await asyncio.wait({first})
        del broker.scripts[HEARTBEAT]
        answer = await cluster.send(1, heartbeat(), channel=Channel.JOINS)
    assert answer.error_code == 0
    assert broker.asked[METADATA] == 1  # nothing has happened to the node


async def hanging(_request: Any) -> None:
    """Reads nothing more of this connection."""
    await asyncio.Event().wait()


async def test_fetch_that_waits_holds_up_no_heartbeat(
    broker: ScriptedBroker, connect: Opener
) -> None:
    """A broker answers one request of a connection after another."""
    cluster, may_answer = await connect(), asyncio.Event()

    async def late(_request: Any) -> Any:
        await may_answer.wait()
        return ListOffsetsResponseV4(0, [])

    broker.scripts[LIST_OFFSETS] = late
    waiting = asyncio.create_task(cluster.list_offsets({TP: LATEST}))
    async with asyncio.timeout(HANG):
        await until(lambda: broker.asked[LIST_OFFSETS] == 1)
        answer = await cluster.send(1, heartbeat(), channel=Channel.COORDINATION)
        may_answer.set()
        await waiting
    assert answer.error_code == 0


async def test_node_without_a_version_of_a_request_is_an_error(
    broker: ScriptedBroker, connect: Opener
) -> None:
    """Asking again would not help; nothing is sent."""
    del broker.newest[HEARTBEAT]
    cluster = await connect()
    assert await cluster.versions(1) == {key: (0, newest) for key, newest in broker.newest.items()}
    for to in (1, None):
        with pytest.raises(IncompatibleBrokerVersion, match="HeartbeatRequest"):
            await cluster.send(to, heartbeat())
    assert broker.asked[HEARTBEAT] == 0


async def test_node_that_has_moved_is_connected_to_anew(
    broker: ScriptedBroker, connect: Opener
) -> None:
    """The old address may be another broker's by now."""
    cluster = await connect()
    async with ScriptedBroker(node=1) as moved:
        moved.topics = broker.topics
        broker.scripts[METADATA] = moved._answer_3
        await cluster.refresh()
        assert (await cluster.send(1, heartbeat())).error_code == 0
        assert (broker.asked[HEARTBEAT], moved.asked[HEARTBEAT]) == (0, 1)


async def test_node_that_is_not_known_is_an_error_that_may_pass(connect: Opener) -> None:
    """And the metadata are asked for."""
    cluster = await connect()
    with pytest.raises(NodeNotReadyError, match="node 8 is not in the cluster's metadata"):
        await cluster.send(8, heartbeat())


async def test_any_node_will_do_where_one_is_away(broker: ScriptedBroker, connect: Opener) -> None:
    """Whichever is asked first."""
    async with ScriptedBroker(node=2) as second:
        broker.others = [second]
        cluster = await connect()
    for _ in range(5):
        assert await describe_topics(cluster, ["t"])


async def test_slow_node_is_left_alone_while_there_is_another(
    broker: ScriptedBroker, connect: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that stands still holds up neither metadata nor the look for a coordinator, once; its connection stays."""
    monkeypatch.setattr(cluster_module, "PATIENCE", 0.05)
    async with ScriptedBroker(node=2) as second:
        broker.others, second.others = [second], [broker]
        second.topics = broker.topics
        cluster = await connect()
        await asyncio.gather(cluster.send(2, heartbeat()), cluster.send(1, heartbeat()))
        broker.scripts = dict.fromkeys((METADATA, COORDINATOR), silent)
        async with asyncio.timeout(HANG):
            for _ in range(8):
                await cluster.refresh()
                assert await cluster.coordinator(Coordinator("g")) == 2
                cluster.forget(Coordinator("g"))
        assert broker.connections == 1
        assert broker.asked[METADATA] + broker.asked[COORDINATOR] <= 2  # with that of the opening


async def test_closed_cluster_asks_nothing(broker: ScriptedBroker, connect: Opener) -> None:
    """Whoever waits is told; closing again does nothing; no server is connected to again."""
    cluster = await connect(bootstrap_servers=[f"localhost:{broker.port}"])
    broker.scripts[METADATA] = broker.scripts[HEARTBEAT] = silent
    waiting = [
        asyncio.create_task(cluster.refresh()),
        asyncio.create_task(cluster.send(1, heartbeat(), channel=Channel.JOINS)),
    ]
    async with asyncio.timeout(HANG):
        await until(lambda: broker.asked[HEARTBEAT] == 1 and broker.asked[METADATA] == 2)
        await cluster.aclose()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        await cluster.aclose()
        connections = broker.connections
    assert all(isinstance(each, KafkaConnectionError) for each in found), found
    for ask in (cluster.refresh(), cluster.send(1, heartbeat()), cluster.versions(1)):
        with pytest.raises(KafkaError, match="closed"):
            await ask
    assert broker.connections == connections


async def test_connection_that_was_idle_for_long_is_made_anew(
    broker: ScriptedBroker, connect: Opener
) -> None:
    """It is closed here before the broker closes it there."""
    cluster = await connect(connections_max_idle_ms=20)
    async with asyncio.timeout(HANG):
        await until(lambda: broker.open_connections == 0)
        assert (await cluster.send(1, heartbeat())).error_code == 0
    assert broker.asked[METADATA] == 1  # nothing has happened to the node


# -- coordinators -------------------------------------------------------------------------------


async def test_coordinator_is_looked_up_once(broker: ScriptedBroker, connect: Opener) -> None:
    """Until an answer says that it is another."""
    cluster, group = await connect(), Coordinator("g")
    await asyncio.gather(*[cluster.send(group, heartbeat()) for _ in range(5)])
    assert broker.asked[COORDINATOR] == 1
    assert broker.connections == 2  # one for coordination
    with pytest.raises(KafkaError):
        cluster.check_coordinator(group, 16)
    cluster.check_coordinator(group, 27)
    await cluster.send(group, heartbeat())
    assert broker.asked[COORDINATOR] == 2
    await cluster.send(Coordinator("g", CoordinatorKind.TRANSACTION), heartbeat())
    assert (broker.asked[COORDINATOR], broker.seen[-2].key_type) == (3, 1)


async def test_coordinator_that_fails_is_looked_up_again(
    broker: ScriptedBroker, connect: Opener
) -> None:
    """It may be another one by now, which the metadata do not name yet."""
    async with ScriptedBroker(node=2) as second:
        cluster, group = await connect(), Coordinator("g")
        broker.scripts[HEARTBEAT] = silent
        with pytest.raises(RequestTimedOutError):
            await cluster.send(group, heartbeat(), timeout=0.05)
        broker.scripts[COORDINATOR] = second._answer_10
        assert (await cluster.send(group, heartbeat())).error_code == 0
        assert second.asked[HEARTBEAT] == 1


@pytest.mark.parametrize("node, code", [(1, 15), (-1, 0)])
async def test_coordinator_that_is_not_there_may_come(
    broker: ScriptedBroker, connect: Opener, node: int, code: int
) -> None:
    """Nothing is kept."""

    async def absent(request: Any) -> Any:
        found: Any = (request.keys[0], node, HOST, broker.port, code, "", {})
        return FindCoordinatorResponseV4(0, [found], {})

    cluster, group = await connect(), Coordinator("g")
    broker.scripts[COORDINATOR] = absent
    with pytest.raises(KafkaError) as caught:
        await cluster.send(group, heartbeat())
    assert caught.value.retriable
    del broker.scripts[COORDINATOR]
    assert await cluster.coordinator(group) == 1


async def test_name_that_no_broker_takes_is_an_error_at_once(
    broker: ScriptedBroker, connect: Opener
) -> None:
    """A broker would close the connection, again and again."""
    cluster = await connect()
    with pytest.raises(InvalidGroupIdError, match="40000 bytes, of 32767"):
        await cluster.coordinator(Coordinator("g" * 40_000))
    assert broker.asked[COORDINATOR] == 0


async def test_older_broker_knows_coordinators_of_groups_alone(
    broker: ScriptedBroker, connect: Opener
) -> None:
    """Version 1 has one key, and no share groups."""
    broker.newest[COORDINATOR] = 1
    cluster = await connect()

    async def first(request: Any) -> Any:
        assert (request.coordinator_key, request.coordinator_type) == ("g", 0)
        return type(request).RESPONSE_TYPE(0, 0, None, 1, HOST, broker.port)

    broker.scripts[COORDINATOR] = first
    assert await cluster.coordinator(Coordinator("g")) == 1


# -- offsets ------------------------------------------------------------------------------------


async def test_offsets_of_one_leader_come_although_another_fails(
    broker: ScriptedBroker, connect: Opener
) -> None:
    """Each leader is asked once, with the epoch that the metadata told."""
    broker.topics = [topic("t", (1, 5), (2, 6), (-1, 7))]
    async with ScriptedBroker(node=2) as second:
        broker.others = [second]
        cluster = await connect()

        async def moved(request: Any) -> Any:
            assert request.topics == [("t", [(1, 6, LATEST)])]
            return ListOffsetsResponseV4(0, [("t", [(1, 74, -1, -1, -1)])])

        second.scripts[LIST_OFFSETS] = moved
        wanted = [TP, OTHER, TopicPartition("t", 2), TopicPartition("absent", 0)]
        found, failures = await cluster.list_offsets(dict.fromkeys(wanted, LATEST))
    assert found == {TP: ListedOffset(7, 3)}
    kinds = {tp: type(error) for tp, error in failures.items()}
    assert kinds == {
        OTHER: NotLeaderForPartitionError,
        wanted[2]: NotLeaderForPartitionError,
        wanted[3]: UnknownTopicOrPartitionError,
    }
    assert all(error.retriable for error in failures.values())


async def test_time_that_no_record_has_is_none(broker: ScriptedBroker, connect: Opener) -> None:
    """It is no failure."""

    async def nothing(_request: Any) -> Any:
        return ListOffsetsResponseV4(0, [("t", [(0, 0, -1, -1, -1)])])

    broker.scripts[LIST_OFFSETS] = nothing
    cluster = await connect()
    assert await cluster.list_offsets({TP: 1_000}) == ({TP: None}, {})


# -- whatever happens ---------------------------------------------------------------------------


class Chaos:
    """Three nodes: any may be silent or hang up, and all but the first may come back at another address.

    An answer says which time it was asked for, so that nobody takes another's.
    """

    def __init__(self, brokers: list[ScriptedBroker], cluster: Cluster, seed: int) -> None:
        self._brokers = brokers
        self._cluster = cluster
        self._chance = random.Random(seed)
        self.answered = 0
        self.is_over = False
        for broker in brokers:
            broker.scripts[LIST_OFFSETS] = self._echo

    async def _echo(self, request: Any) -> Any:
        if self._chance.random() < 0.05:
            return None
        if self._chance.random() < 0.3:
            await asyncio.sleep(self._chance.random() / 100)
        topics = [
            (name, [(p, 0, -1, time, 0) for p, _e, time in ps]) for name, ps in request.topics
        ]
        return ListOffsetsResponseV4(0, topics)

    async def ask(self, times: Iterator[int]) -> None:
        """One question after another; some are cancelled, some are given little time."""
        for time in times:
            tp = TopicPartition("t", time % 3)
            asks = self._cluster.list_offsets({tp: time})
            try:
                async with asyncio.timeout(self._chance.choice([0.001, 0.01, HANG])):
                    found, failures = await asks
            except TimeoutError:
                continue
            assert found in ({}, {tp: ListedOffset(time, 0)}), time
            assert not found or not failures
            self.answered += len(found)
            if failures:
                with suppress(KafkaError):
                    await self._cluster.refresh()

    async def disturb(self) -> None:
        """Until it is over; then all nodes listen."""
        while not self.is_over:
            await asyncio.sleep(0.005)
            broker = self._chance.choice(self._brokers)
            if self._chance.random() < 0.7 or broker is self._brokers[0]:
                broker.hang_up()
            else:
                await broker.close()
                await broker.listen()


@pytest.mark.parametrize("seed", range(3))
async def test_every_answer_is_that_of_its_question(seed: int) -> None:
    """Whatever is cancelled, late, cut off or moved; and in the end all is well again."""
    async with AsyncExitStack() as stack:
        brokers = [await stack.enter_async_context(ScriptedBroker(node)) for node in (1, 2, 3)]
        for broker in brokers:
            broker.others = [other for other in brokers if other is not broker]
            broker.topics = [topic("t", (1, 0), (2, 0), (3, 0))]
        servers = [broker.address for broker in brokers]
        options = {"bootstrap_servers": servers, "request_timeout_ms": 200, "retry_backoff_ms": 5}
        cluster = Cluster(options, {"t"})
        stack.push_async_callback(cluster.aclose)
        await cluster.open(HANG)
        chaos, times = Chaos(brokers, cluster, seed), iter(range(1, 301))
        async with asyncio.timeout(HANG):
            disturbing = asyncio.create_task(chaos.disturb())
            await asyncio.gather(*[chaos.ask(times) for _ in range(8)])
            chaos.is_over = True
            await disturbing
            assert chaos.answered
            wanted = {TopicPartition("t", n): n for n in range(3)}
            while (await cluster.list_offsets(wanted))[0].keys() != wanted.keys():
                with suppress(KafkaError):
                    await cluster.refresh()
