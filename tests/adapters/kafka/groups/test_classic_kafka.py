"""Classic members and a real Kafka, beside one another and beside aiokafka's."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from consumer_sdk.adapters.kafka.groups.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    RoundRobinAssignor,
)
from consumer_sdk.adapters.kafka.groups.classic_member import ClassicMember
from consumer_sdk.adapters.kafka.groups.foreign_assignor import ForeignAssignor
from consumer_sdk.adapters.kafka.groups.member import (
    Assigned,
    Event,
    Revoked,
    TopicInfo,
    TopicPartition,
)
from consumer_sdk.testing.servers import KafkaServer
from tests.adapters.kafka.groups.asking import Line, line_to

pytestmark = pytest.mark.kafka

PARTITIONS = 4
PATIENCE = 120.0
"""Seconds, for a busy machine."""


class Runner:
    """Sends what a member says, and releases at once."""

    def __init__(self, member: ClassicMember, line: Line) -> None:
        self.member = member
        self.seen: list[Event] = []
        self.changed = asyncio.Event()
        self._line = line
        self._time = asyncio.get_running_loop().time

    async def run(self) -> None:
        """Until it has left."""
        while not self.member.has_left:
            request = self.member.poll(self._time())
            if request is not None:
                answer = await self._line.ask(request)
                self.member.answered(request, answer, self._time())
            self._take_events()
            delay = max(self.member.wake_at() - self._time(), 0.0)
            if delay and not self.member.has_left:
                await asyncio.sleep(min(delay, 1.0))  # the machine's own timer

    def _take_events(self) -> None:
        while events := self.member.events():
            self.seen += events
            for event in events:
                if isinstance(event, Revoked):
                    self.member.released(event.tps, self._time())
        self.changed.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Waits for it."""
        async with asyncio.timeout(PATIENCE):
            while not is_so():
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def joined(servers: str, group: str, topic: str, assignor: Assignor) -> AsyncIterator[Runner]:
    """A member that runs, and leaves in the end."""
    async with line_to(servers, group) as line:
        member = ClassicMember(
            group,
            [assignor],
            session_timeout=30.0,
            rebalance_timeout=30.0,
            heartbeat_interval=0.1,
        )
        now = asyncio.get_running_loop().time()
        member.metadata_changed({topic: TopicInfo(bytes(16), PARTITIONS)}, now)
        runner = Runner(member, line)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(runner.run())
            yield runner
            member.leave(asyncio.get_running_loop().time())


@pytest.fixture
async def topic(kafka_server: KafkaServer) -> str:
    """Four partitions."""
    name = f"classic-{uuid.uuid4().hex[:8]}"
    await kafka_server.create_topic(name, PARTITIONS)
    return name


async def test_cooperative_members_share_and_touch_only_what_moves(
    kafka_server: KafkaServer, topic: str
) -> None:
    """The second one gets two of four; the first one keeps the others all the time, and has all when it is alone again."""
    servers, group = kafka_server.bootstrap_servers, f"g-{topic}"
    async with joined(servers, group, topic, CooperativeStickyAssignor()) as one:
        await one.until(lambda: len(one.member.held) == PARTITIONS)
        first = one.member.held
        async with joined(servers, group, topic, CooperativeStickyAssignor()) as two:
            await two.until(lambda: len(two.member.held) == 2)
            kept = one.member.held
            assert kept | two.member.held == first
            assert not kept & two.member.held
        await one.until(lambda: one.member.held == first)
        assert one.seen == [Assigned(first), Revoked(first - kept), Assigned(first - kept)]


@pytest.mark.parametrize(
    "assignor", [RoundRobinAssignor(), ForeignAssignor(RoundRobinPartitionAssignor)], ids=type
)
@pytest.mark.parametrize("is_first", [True, False])
async def test_member_shares_with_a_consumer_of_aiokafka(
    kafka_server: KafkaServer, topic: str, assignor: Assignor, *, is_first: bool
) -> None:
    """Whichever of them leads."""
    servers, group = kafka_server.bootstrap_servers, f"g-{topic}"
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=servers, group_id=group, heartbeat_interval_ms=100
    )
    if not is_first:
        await consumer.start()
    try:
        async with joined(servers, group, topic, assignor) as one:
            if is_first:
                await one.until(lambda: len(one.member.held) == PARTITIONS)
                await consumer.start()
            await one.until(lambda: len(one.member.held) == len(consumer.assignment()) == 2)
            theirs = {TopicPartition(*tp) for tp in consumer.assignment()}
            assert not theirs & one.member.held
    finally:
        await consumer.stop()
