"""The model of share partitions and a real Kafka answer the same conversations alike."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest
from aiokafka.errors import GroupCoordinatorNotAvailableError

from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.client.lookups import Coordinator
from consumer_sdk.adapters.kafka.share.messages import (
    CLOSE_EPOCH,
    OPEN_EPOCH,
    ShareAcknowledgeAnswer,
    ShareFetch,
    ShareFetchAnswer,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatAnswer,
    TopicIdPartition,
)
from consumer_sdk.adapters.kafka.share.structs import from_wire, to_wire
from consumer_sdk.testing.kafka import ClusterTopics, Limits, ShareCluster
from tests.adapters.kafka.harness import KafkaHarness
from tests.testing.kafka.share_conversation import (
    BATCHES,
    Conversation,
    Note,
    Request,
    Step,
    note,
)

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import KafkaServer

LONG = 300.0
LENGTH = 60
PARTITIONS = 4
AT_ONCE = 6
WAIT = 0.05
TRANSIENT = (14, 15, 16)


def configs(limits: Limits) -> dict[str, str]:
    """Of a group that reads all there is."""
    return {
        "share.auto.offset.reset": "earliest",
        "share.record.lock.duration.ms": str(round(limits.lock_duration * 1000)),
        "share.delivery.count.limit": str(limits.delivery_count_limit),
        "share.renew.acknowledge.enable": str(limits.is_renewable).lower(),
    }


async def beat(line: Cluster, request: ShareGroupHeartbeat) -> ShareGroupHeartbeatAnswer:
    """A heartbeat's answer, once the coordinator has one."""
    of = Coordinator(request.group)
    while True:
        try:
            answer = from_wire(await line.send(of, to_wire(request)))
        except GroupCoordinatorNotAvailableError:
            continue
        assert isinstance(answer, ShareGroupHeartbeatAnswer)
        if answer.error not in TRANSIENT:
            return answer
        line.forget(of)


class Kafka:
    """A real one, as members of one group ask it; each has a connection of its own."""

    def __init__(self, harness: KafkaHarness, topic: str, group: str) -> None:
        self._harness, self._topic, self._group = harness, topic, group
        self._lines: dict[str, Cluster] = {}
        self._behind: dict[str, int] = defaultdict(int)

    async def line(self, name: str) -> Cluster:
        """The member's connection."""
        if name not in self._lines:
            self._lines[name] = cluster = Cluster(
                {"bootstrap_servers": self._harness.servers}, [self._topic]
            )
            await cluster.open(LONG)
        return self._lines[name]

    async def cut(self, name: str) -> None:
        """Ends the member's connection."""
        if (cluster := self._lines.pop(name, None)) is not None:
            await cluster.aclose()

    async def aclose(self) -> None:
        for name in list(self._lines):
            await self.cut(name)

    async def assigned(self, topic_id: bytes) -> None:
        """The group's state is there, and a member has the partition."""
        line = await self.line("joins")
        request = ShareGroupHeartbeat(self._group, "joins", 0, topics=(self._topic,))
        while True:
            answer = await beat(line, request)
            assert not answer.error, answer
            if answer.assignment and answer.assignment.get(topic_id):
                return
            request = replace(request, epoch=answer.epoch)

    async def ask(self, step: Step, tp: TopicIdPartition) -> Note:
        """What the broker answers; what is released may come a moment later, and then it is asked for again."""
        if step.request is None:
            await self.cut(step.line)
            return ()
        answer = await self._ask(step.line, step.request, tp)
        empty = (*step.expected[:-1], ())
        while step.expected != answer == empty and isinstance(step.request, ShareFetch):
            self._behind[step.line] += 1
            request = replace(
                step.request, max_wait=WAIT, topics={}, epoch=max(step.request.epoch, 0)
            )
            answer = (*answer[:2], *(await self._ask(step.line, request, tp))[2:])
        return answer

    async def _ask(self, name: str, request: Request, tp: TopicIdPartition) -> Note:
        if request.epoch == OPEN_EPOCH and request.topics:
            self._behind[name] = 0
        if request.epoch != CLOSE_EPOCH:
            request = replace(request, epoch=request.epoch + self._behind[name])
        answer = from_wire(await (await self.line(name)).send(1, to_wire(request)))
        assert isinstance(answer, ShareFetchAnswer | ShareAcknowledgeAnswer)
        return note(answer, tp)


async def play(harness: KafkaHarness, topic: str, topic_id: bytes, seed: int) -> None:
    """One conversation, with the model and with Kafka."""
    group = f"share-{seed}-{harness.uid}"
    conversation = Conversation(seed, group, topic_id)
    steps = conversation.play(LENGTH)
    await harness.configure_group(group, configs(conversation.limits))
    kafka = Kafka(harness, topic, group)
    try:
        await kafka.assigned(topic_id)
        for number, step in enumerate(steps):
            answer = await kafka.ask(step, conversation.tp)
            told = "\n".join(map(str, steps[max(number - 6, 0) : number]))
            assert answer == step.expected, f"seed {seed}, step {number}: {step}\nafter\n{told}"
    finally:
        await kafka.aclose()


# -- the group ----------------------------------------------------------------------------------

Ask = Callable[[ShareGroupHeartbeat], Awaitable[ShareGroupHeartbeatAnswer]]


class Members:
    """Plays members of a group, and notes the codes that they are told; epochs are the coordinator's own affair."""

    def __init__(self, ask: Ask, group: str, topic: str) -> None:
        self._ask, self._group, self._topic = ask, group, topic
        self._epochs: dict[str, int] = {}
        self.owned: dict[str, frozenset[int]] = {}
        self.notes: list[tuple[str, int]] = []

    async def beat(self, name: str, epoch: int | None = None, *, is_full: bool = False) -> None:
        """One heartbeat, with the last epoch by default."""
        self.notes.append((name, await self._beat(name, epoch, is_full=is_full)))

    async def _beat(self, name: str, epoch: int | None = None, *, is_full: bool = False) -> int:
        given = self._epochs[name] if epoch is None else epoch
        topics = (self._topic,) if is_full else None
        answer = await self._ask(ShareGroupHeartbeat(self._group, name, given, topics=topics))
        if not answer.error:
            self._epochs[name] = answer.epoch
            if answer.assignment is not None:
                self.owned[name] = frozenset().union(*answer.assignment.values())
        return int(answer.error)

    async def until_shared(self, *names: str) -> None:
        """Heartbeats until all partitions are read, and everybody reads some; how many is not noted."""
        while not self._is_shared(names):
            for name in names:
                assert await self._beat(name) == 0

    def _is_shared(self, names: Sequence[str]) -> bool:
        parts = [self.owned.get(name, frozenset()) for name in names]
        return all(parts) and frozenset().union(*parts) == frozenset(range(PARTITIONS))

    async def ahead(self, name: str) -> None:
        """A heartbeat with an epoch that was never told."""
        await self.beat(name, self._epochs[name] + 7)


async def play_group(ask: Ask, group: str, topic: str) -> list[tuple[str, int]]:
    """Members join, share, are fenced, and leave."""
    play = Members(ask, group, topic)
    await play.beat("a", 5)
    await play.beat("a", 0)
    await play.beat("a", -3)
    await play.beat("a", 0, is_full=True)
    await play.until_shared("a")
    await play.beat("b", 0, is_full=True)
    await play.until_shared("a", "b")
    await play.ahead("a")
    await play.beat("c", 1)
    await play.beat("a", 0, is_full=True)
    await play.beat("b", -1)
    await play.beat("b", 1)
    await play.beat("b", -1)
    play.owned.clear()
    await play.until_shared("a")
    await play.beat("a", -1)
    return play.notes


def model_of(topic: str) -> Ask:
    """The model's coordinator."""
    topics = ClusterTopics(random.Random(1))
    topics.create(topic, PARTITIONS)
    cluster = ShareCluster(topics)

    async def ask(request: ShareGroupHeartbeat) -> ShareGroupHeartbeatAnswer:
        answer = cluster.request(request, 0.0, node=0)
        assert isinstance(answer, ShareGroupHeartbeatAnswer)
        return answer

    return ask


@pytest.mark.kafka
async def test_model_of_share_groups_answers_as_kafka_does(kafka_server: KafkaServer) -> None:
    """Codes, and that all partitions have readers; which ones is the assignor's own affair."""
    async with KafkaHarness(kafka_server.bootstrap_servers) as harness:
        topic = await harness.create_stream(PARTITIONS)
        group = f"share-{harness.uid}"
        cluster = Cluster({"bootstrap_servers": harness.servers}, [topic])
        await cluster.open(LONG)
        try:
            told = await play_group(partial(beat, cluster), group, topic)
            assert told == await play_group(model_of(topic), group, topic)
        finally:
            await cluster.aclose()


# -- records ------------------------------------------------------------------------------------


@asynccontextmanager
async def conversed_topic(harness: KafkaHarness) -> AsyncIterator[tuple[str, bytes]]:
    """A topic with the record batches that the conversations are about."""
    topic = await harness.create_stream(1)
    for size in BATCHES:
        batch = harness.producer.create_batch()
        for number in range(size):
            assert batch.append(key=None, value=b"%d" % number, timestamp=None)
        await (await harness.producer.send_batch(batch, topic, partition=0))
    cluster = Cluster({"bootstrap_servers": harness.servers}, [topic])
    await cluster.open(LONG)
    try:
        while (topic_id := cluster.topic_id(topic)) is None:
            await cluster.refresh()
        yield topic, topic_id
    finally:
        await cluster.aclose()


def batched(seeds: range) -> Iterator[range]:
    """As many as there may be groups that wait for their state at a time."""
    return (seeds[at : at + AT_ONCE] for at in range(0, len(seeds), AT_ONCE))


@pytest.mark.kafka
@pytest.mark.parametrize(
    "seeds", [range(6), pytest.param(range(6, 200), marks=pytest.mark.campaign)]
)
async def test_model_of_share_partitions_answers_as_kafka_does(
    kafka_server: KafkaServer, seeds: range
) -> None:
    """Which offsets are acquired, with which counts, and each error code."""
    async with (
        KafkaHarness(kafka_server.bootstrap_servers) as harness,
        conversed_topic(harness) as (topic, topic_id),
    ):
        for some in batched(seeds):
            await asyncio.gather(*(play(harness, topic, topic_id, seed) for seed in some))
