"""Members of a group that a test can hold, read from and look into."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.structs import OffsetAndMetadata

from consumer_sdk.adapters.kafka import KafkaAdapter
from consumer_sdk.records import AckFlush, Assignment, Checkpoint, Message
from consumer_sdk.testing.conformance.adapters import Record
from consumer_sdk.testing.conformance.adapters.harness import (
    Journal,
    Member,
    RecordingOwner,
    open_member,
)
from tests.adapters.kafka.harness import KafkaHarness

__all__ = [
    "World",
    "cluster_of",
    "coordinator_of",
    "epoch_of",
    "flush_of",
    "muted",
    "numbered",
    "runner_of",
    "values",
]


def numbered(first: int, last: int) -> list[Record]:
    """Records whose values are numbers."""
    return [Record(str(number).encode()) for number in range(first, last)]


def values(messages: Sequence[Message]) -> list[int]:
    """The numbers in `numbered` records."""
    return [int(message.value or b"-1") for message in messages]


def flush_of(assignment: Assignment, resume: int, number: int = 1) -> AckFlush:
    """A flush that settles everything before ``resume``."""
    return AckFlush(assignment, number, Checkpoint(resume=resume))


def cluster_of(member: Member) -> Any:
    """Its connections."""
    assert isinstance(member.adapter, KafkaAdapter)
    return member.adapter._session._cluster


def runner_of(member: Member) -> Any:
    """Who keeps the membership."""
    assert isinstance(member.adapter, KafkaAdapter)
    membership = member.adapter._session._membership
    assert membership is not None
    return membership._runner


def coordinator_of(member: Member) -> Any:
    """Who is asked for the group."""
    return runner_of(member)._coordinator


def epoch_of(member: Member) -> int:
    """The generation or epoch of now."""
    return int(runner_of(member)._member.epoch)


@asynccontextmanager
async def muted(member: Member) -> AsyncIterator[None]:
    """Nothing that keeps the membership is sent meanwhile."""
    coordinator, spoken = coordinator_of(member), asyncio.Event()
    ask = coordinator.ask

    async def wait(request: Any, timeout: float) -> Any:
        await spoken.wait()
        return await ask(request, timeout)

    coordinator.ask = wait
    try:
        yield
    finally:
        coordinator.ask = ask
        spoken.set()


class World:
    """A Kafka, a group, and what its members were told."""

    def __init__(self, harness: KafkaHarness) -> None:
        self.kafka = harness
        self.journal = Journal(harness.patience)
        self.group = uuid.uuid4().hex[:6]
        self._names = count(1)

    @property
    def group_id(self) -> str:
        """The group's name at the broker."""
        return f"{self.group}-{self.kafka.uid}"

    def owner(self) -> RecordingOwner:
        """An owner that writes into the journal."""
        return RecordingOwner(f"member-{next(self._names)}", self.journal)

    def adapter(self, topic: str, **options: Any) -> KafkaAdapter:
        """An adapter of the group that is not open."""
        return self.kafka.make_adapter(topic, **({"group": self.group} | options))

    @asynccontextmanager
    async def member(
        self, topic: str, owner: RecordingOwner | None = None, **options: Any
    ) -> AsyncIterator[Member]:
        """An open member of the group."""
        adapter = self.adapter(topic, **options)
        async with open_member(self.kafka, owner or self.owner(), adapter) as member:
            yield member

    async def until(self, kind: str, member: str, times: int = 1) -> None:
        """Waits until a member was told something so many times."""
        await self.journal.until(
            lambda: len(self.journal.of(kind, member)) >= times, f"{kind} of {member}"
        )

    def kinds(self, member: str) -> list[str]:
        """What a member was told, in order."""
        return [event.kind for event in self.journal.events if event.member == member]

    async def offsets(self, topic: str) -> dict[int, int]:
        """The group's committed offsets, as Kafka's own tools see them."""
        found = await self.kafka.admin.list_consumer_group_offsets(f"{self.group}-{self.kafka.uid}")
        return {tp.partition: at.offset for tp, at in found.items() if tp.topic == topic}

    async def commit_as_another(
        self, topic: str, commits: Mapping[int, tuple[int, str]], group: str = ""
    ) -> None:
        """Another program commits offsets and metadata for the group, which has no members."""
        stranger = AIOKafkaConsumer(
            bootstrap_servers=self.kafka.servers,
            group_id=f"{group or self.group}-{self.kafka.uid}",
            enable_auto_commit=False,
        )
        async with stranger:
            tps = {TopicPartition(topic, p): OffsetAndMetadata(*c) for p, c in commits.items()}
            stranger.assign(list(tps))
            await stranger.commit(tps)

    async def metadata(self, topic: str) -> dict[int, str]:
        """The metadata of the group's commits, as Kafka's own tools see them."""
        found = await self.kafka.admin.list_consumer_group_offsets(f"{self.group}-{self.kafka.uid}")
        return {tp.partition: at.metadata for tp, at in found.items() if tp.topic == topic}

    async def state(self) -> str:
        """The group's state, as Kafka's own tools see it."""
        (answer,) = await self.kafka.admin.describe_consumer_groups(
            [f"{self.group}-{self.kafka.uid}"]
        )
        return str(answer.groups[0][2])
