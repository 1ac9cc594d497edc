"""The model of the group coordinator and a real Kafka answer the same script alike."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import pytest

from consumer_sdk.adapters.kafka.commits.structs import OffsetCommitByName, OffsetEntry
from consumer_sdk.adapters.kafka.groups.member import TopicPartition
from consumer_sdk.adapters.kafka.groups.messages import (
    Answer,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    Heartbeat,
    JoinAnswer,
    JoinGroup,
    LeaveGroup,
    Request,
    SyncAnswer,
    SyncGroup,
    TopicPartitions,
)
from consumer_sdk.testing.kafka import (
    ClusterTopics,
    CoordinatorOptions,
    GroupCoordinator,
    OffsetCommit,
    Pending,
)
from tests.adapters.kafka.groups.asking import Line, line_to
from tests.adapters.kafka.harness import KafkaHarness

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import KafkaServer

PARTITIONS = 4
LONG = 300.0


class Server(Protocol):
    """Who answers: a real coordinator, or the model of one. Two members ask, each on a line of its own."""

    topic: str
    topic_id: bytes

    async def ask(self, line: int, request: Request) -> Answer: ...

    async def commit(self, group: str, member: str, epoch: int, number: int) -> int: ...


class Model:
    """The model; time passes when somebody asks or waits."""

    def __init__(self, topic: str) -> None:
        topics = ClusterTopics(random.Random(1))
        self.topic, self.topic_id = topic, topics.create(topic, PARTITIONS).topic_id
        options = CoordinatorOptions(  # as the tests' Kafka has them
            initial_rebalance_delay=0.0, min_session_timeout=0.1, assignment_interval=0.0
        )
        self._coordinator = GroupCoordinator(topics, random.Random(2), options)
        self._now = 0.0

    async def ask(self, line: int, request: Request) -> Answer:
        answer = self._coordinator.request(request, self._tick())
        while isinstance(answer, Pending):
            await asyncio.sleep(0)
            self._coordinator.advance(self._tick())
            answer = answer.answer or answer
        return answer

    async def commit(self, group: str, member: str, epoch: int, number: int) -> int:
        tp = TopicPartition(self.topic, number)
        commit = OffsetCommit(group, member, epoch, None, {tp: 7})
        return self._coordinator.commit(commit, self._tick())[tp]

    def _tick(self) -> float:
        self._now += 0.01
        return self._now


class Kafka:
    """A real one."""

    def __init__(self, topic: str, topic_id: bytes, lines: tuple[Line, Line]) -> None:
        self.topic, self.topic_id, self._lines = topic, topic_id, lines

    async def ask(self, line: int, request: Request) -> Answer:
        return await self._lines[line].ask(request)

    async def commit(self, group: str, member: str, epoch: int, number: int) -> int:
        topics = {self.topic: [OffsetEntry(number, 7)]}
        request = OffsetCommitByName(group, epoch, member, None, topics)
        ((_, ((_, code),)),) = (await self._lines[0].send(request)).topics
        assert isinstance(code, int)
        return code


# -- the consumer protocol ------------------------------------------------------------------------


class Consumers:
    """Plays two members, and notes what they are told: codes, epochs since the first one, numbers of partitions."""

    def __init__(self, server: Server, group: str) -> None:
        self._server, self._group = server, group
        self._epochs: dict[str, int] = {}
        self._first = 0
        self.notes: list[tuple[object, ...]] = []

    def owned(self, numbers: frozenset[int]) -> TopicPartitions:
        return {self._server.topic_id: numbers} if numbers else {}

    async def join(self, name: str, instance_id: str | None = None) -> frozenset[int] | None:
        return await self.beat(name, 0, instance_id, owned=frozenset(), is_full=True)

    async def beat(
        self,
        name: str,
        epoch: int | None = None,
        instance_id: str | None = None,
        *,
        owned: frozenset[int] | None = None,
        is_full: bool = False,
    ) -> frozenset[int] | None:
        """One heartbeat; the partitions that its answer tells, None for no word of them."""
        request = ConsumerHeartbeat(
            self._group,
            name,
            self._epochs[name] if epoch is None else epoch,
            instance_id,
            rebalance_timeout=LONG if is_full else None,
            topics=(self._server.topic,) if is_full else None,
            owned=None if owned is None else self.owned(owned),
        )
        answer = await self._server.ask(name == "b", request)
        assert isinstance(answer, ConsumerHeartbeatAnswer)
        return self._note(name, answer)

    def _note(self, name: str, answer: ConsumerHeartbeatAnswer) -> frozenset[int] | None:
        told = answer.assignment
        numbers = None if told is None else frozenset(told.get(self._server.topic_id, ()))
        if answer.error:
            self.notes.append((name, int(answer.error)))
        else:
            self._first = self._first or answer.epoch
            self._epochs[name] = answer.epoch
            since = answer.epoch - self._first if answer.epoch > 0 else answer.epoch
            self.notes.append((name, 0, since, None if numbers is None else len(numbers)))
        return numbers

    async def until_told(self, name: str, owned: frozenset[int] | None = None) -> frozenset[int]:
        """Heartbeats until there is a word of partitions; how many were without is not noted."""
        notes = list(self.notes)
        while (numbers := await self.beat(name, owned=owned)) is None:
            self.notes = list(notes)
        return numbers

    async def commit(self, name: str, ago: int, number: int) -> None:
        """Commits with the epoch of then."""
        epoch = self._epochs[name] - ago
        code = await self._server.commit(self._group, name, epoch, number)
        self.notes.append((name, "commits", int(code)))


async def play_consumers(server: Server, group: str) -> list[tuple[object, ...]]:
    """Two members share a topic, lose answers, commit late, and leave."""
    play = Consumers(server, group)
    everything = await play.join("a")
    assert everything == frozenset(range(PARTITIONS))
    await play.beat("a", owned=everything)
    await play.commit("a", 0, 0)
    await play.commit("a", -1, 0)
    await play.join("b")
    kept = await play.until_told("a")
    gone = everything - kept
    await play.beat("a", owned=everything)  # it still drains
    await play.beat("b")
    await play.commit("a", 0, min(gone))
    await play.beat("a", owned=kept)
    await play.commit("a", 1, min(gone))
    await play.commit("a", 1, min(kept))
    await play.commit("a", 0, min(kept))
    assert await play.until_told("b") == gone
    await play.beat("a", play._epochs["a"] - 1)
    await play.beat("a", play._epochs["a"] - 1, owned=kept, is_full=True)
    await play.beat("a", play._epochs["a"] + 3)
    await play.join("a")
    await play.beat("b", -1)
    await play.beat("b")
    await play.commit("b", 0, min(gone))
    assert await play.until_told("a", owned=kept) == everything
    await play.beat("a", -1)
    return play.notes


async def play_static(server: Server, group: str) -> list[tuple[object, ...]]:
    """A static member goes for a while, and another process comes back as the same."""
    play = Consumers(server, group)
    await play.join("a", "i")
    await play.join("a", "i")
    await play.join("b", "i")
    await play.beat("a", -2, "i")
    await play.join("b", "i")
    await play.beat("a", None, "i")
    await play.beat("b", None, "i")
    await play.beat("b", -1, "i")
    return play.notes


# -- the classic protocol -------------------------------------------------------------------------


class Classics:
    """Plays two members, and notes what they are told, with generations since the first one."""

    def __init__(self, server: Server, group: str) -> None:
        self._server, self._group = server, group
        self._ids = ["", ""]
        self._joined: dict[int, JoinAnswer] = {}
        self._first = 0
        self.notes: list[tuple[object, ...]] = []

    async def introduce(self, line: int) -> None:
        """Is given a member id."""
        answer = await self._server.ask(line, self._join(line, b""))
        assert isinstance(answer, JoinAnswer)
        self._ids[line] = answer.member_id
        self.notes.append((line, "introduced", int(answer.error)))

    def _join(self, line: int, told: bytes) -> JoinGroup:
        protocols = (("range", b"\x00\x01" + b"\x00" * 8 + told),)
        return JoinGroup(self._group, self._ids[line], None, LONG, LONG, protocols)

    async def join(self, line: int, told: bytes = b"") -> None:
        """Joins, and waits for the group."""
        answer = await self._server.ask(line, self._join(line, told))
        assert isinstance(answer, JoinAnswer)
        self._joined[line] = answer
        self._first = self._first or answer.generation

    def note_joined(self, *lines: int) -> None:
        """Notes the generation that they have joined."""
        for line in lines:
            answer = self._joined[line]
            since = answer.generation - self._first
            self.notes.append((line, "joined", int(answer.error), since, answer.protocol))
        leaders = [line for line in lines if self._joined[line].members]
        self.notes.append(
            ("leaders", len(leaders), *(len(self._joined[each].members) for each in leaders))
        )

    @property
    def leader(self) -> int:
        """The line of the one that leads."""
        return self._ids.index(self._joined[0].leader_id)

    async def sync(self, line: int, shares: Mapping[int, bytes] | None = None) -> None:
        """Asks for its part, and brings all parts if there are some."""
        generation = self._joined[line].generation
        parts = tuple((self._ids[each], share) for each, share in (shares or {}).items())
        request = SyncGroup(self._group, generation, self._ids[line], None, "range", parts)
        answer = await self._server.ask(line, request)
        assert isinstance(answer, SyncAnswer)
        self.notes.append((line, "synced", int(answer.error), answer.assignment))

    async def sync_all(self) -> None:
        """The leader shares out; the notes are in the order of the lines."""
        before = len(self.notes)
        leader = self.leader
        await asyncio.gather(self.sync(leader, {0: b"zero", 1: b"one"}), self.sync(1 - leader))
        self.notes[before:] = sorted(self.notes[before:], key=repr)

    async def beat(self, line: int, ago: int = 0) -> int:
        """One heartbeat; its code."""
        generation = self._joined[line].generation - ago
        answer = await self._server.ask(
            line, Heartbeat(self._group, generation, self._ids[line], None)
        )
        return int(answer.error)

    async def note_beat(self, line: int, ago: int = 0) -> None:
        self.notes.append((line, "beats", await self.beat(line, ago)))

    async def commit(self, line: int, ago: int = 0) -> None:
        generation = self._joined[line].generation - ago
        code = await self._server.commit(self._group, self._ids[line], generation, 0)
        self.notes.append((line, "commits", int(code)))

    async def leave(self, line: int) -> None:
        answer = await self._server.ask(line, LeaveGroup(self._group, self._ids[line], None))
        self.notes.append((line, "leaves", int(answer.error)))


async def play_classics(server: Server, group: str) -> list[tuple[object, ...]]:
    """Two members join one after the other, rebalance, commit at each stage, and one leaves."""
    play = Classics(server, group)
    await play.introduce(0)
    await play.join(0)
    play.note_joined(0)
    await play.sync(0, {0: b"alone"})
    await play.introduce(1)
    second = asyncio.create_task(play.join(1))
    while await play.beat(0) == 0:
        await asyncio.sleep(0)
    await play.note_beat(0)
    await play.commit(0)
    await play.join(0)
    await second
    play.note_joined(0, 1)
    await play.commit(0)
    await play.note_beat(0)
    await play.note_beat(0, 1)
    await play.commit(0, 1)
    await play.sync_all()
    await play.note_beat(1)
    follower = 1 - play.leader
    await play.join(follower)  # as if the answer had been lost
    await play.sync(follower)
    await play.leave(1)
    await play.leave(1)
    await play.note_beat(0)
    await play.commit(1)
    await play.join(0)
    play.note_joined(0)
    await play.leave(0)
    return play.notes


async def until_assigned(harness: KafkaHarness, topic: str) -> None:
    """The coordinator knows the topic: a busy one hears late of a new one."""
    group, numbers = f"first-{harness.uid}", None
    async with line_to(harness.servers, group) as line, asyncio.timeout(LONG):
        play = Consumers(Kafka(topic, await line.topic_id(topic), (line, line)), group)
        numbers = await play.join("a")
        while not numbers:
            await asyncio.sleep(0.1)
            numbers = await play.beat("a")
        await play.beat("a", -1)


@pytest.mark.kafka
async def test_model_answers_as_kafka_does(kafka_server: KafkaServer) -> None:
    """Codes, epochs and how many partitions each has; which ones is the assignor's own affair."""
    async with KafkaHarness(kafka_server.bootstrap_servers) as harness:
        topic = await harness.create_stream(PARTITIONS)
        await until_assigned(harness, topic)
        for play in (play_consumers, play_static, play_classics):
            group = f"{play.__name__}-{harness.uid}"
            expected = await play(Model(topic), group)
            async with (
                line_to(harness.servers, group) as first,
                line_to(harness.servers, group) as second,
            ):
                kafka = Kafka(topic, await first.topic_id(topic), (first, second))
                assert await play(kafka, group) == expected


async def syncs_until_it_is_out(server: Server, group: str) -> int:
    """A static member comes back to a stable group, and sends nothing but SyncGroup; what ends that."""
    for instance in ("i", "i"):
        join = JoinGroup(group, "", instance, 1.0, LONG, (("range", b""),))
        joined = await server.ask(0, join)
        assert isinstance(joined, JoinAnswer)
        own = joined.member_id
        sync = SyncGroup(group, joined.generation, own, instance, "range", ((own, b"all"),))
        assert await server.ask(0, sync) == SyncAnswer(0, b"all")
    while (answer := await server.ask(0, sync)) == SyncAnswer(0, b"all"):
        await asyncio.sleep(0)
    return int(answer.error)


@pytest.mark.kafka
async def test_sync_of_a_stable_group_renews_no_session(kafka_server: KafkaServer) -> None:
    """If it did, this would not end."""
    topic, group = "t", f"stable-{uuid.uuid4().hex}"
    assert await syncs_until_it_is_out(Model(topic), group) == 25
    async with line_to(kafka_server.bootstrap_servers, group) as line:
        assert await syncs_until_it_is_out(Kafka(topic, bytes(16), (line, line)), group) == 25
