"""Java's consumer, or aiokafka's, and ours in one group: either joins, leaves and takes over, and no record comes twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from consumer_sdk import Message
from tests.adapters.kafka.aiokafka_member import AiokafkaMember
from tests.adapters.kafka.java.member import JavaMember
from tests.integration.field import Field, Place, place, until

pytestmark = pytest.mark.kafka

PARTITIONS = 4
ENOUGH = 50
"""Records that a member has to read to count as working."""


@dataclass(frozen=True)
class Shared:
    """What both kinds of member have to be told to share a group.

    Attributes:
        ours: options of our adapter.
        java: arguments of `JavaMember`; None if the other member is aiokafka's.
    """

    ours: dict[str, Any] = field(default_factory=dict)
    java: dict[str, Any] | None = None


GROUPS = {
    "classic, aiokafka": Shared(),
    "classic, eager": Shared(
        java={"assignor": "org.apache.kafka.clients.consumer.RoundRobinAssignor"}
    ),
    "classic, cooperative": Shared(
        ours={"partition_assignment_strategy": ["cooperative-sticky"]},
        java={"assignor": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"},
    ),
    "eager, Java can do both": Shared(
        java={
            "assignor": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor,"
            "org.apache.kafka.clients.consumer.RoundRobinAssignor"
        }
    ),
    "consumer, Java classic": Shared(
        ours={"protocol": "consumer", "session_timeout": None},
        java={"assignor": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"},
    ),
    "classic, Java consumer": Shared(
        ours={"partition_assignment_strategy": ["cooperative-sticky"]},
        java={"protocol": "consumer"},
    ),
    "auto, Java consumer": Shared(
        ours={"protocol": "auto"},
        java={"protocol": "consumer"},
    ),
    "consumer": Shared(
        ours={"protocol": "consumer", "session_timeout": None},
        java={"protocol": "consumer"},
    ),
}
OFTEN = ("classic, aiokafka", "classic, cooperative", "consumer")
"""Groups whose test is no campaign: one for each kind of rebalance. A process of Java takes seconds."""


class Shares:
    """A group, and what its members have read.

    Attributes:
        is_enough: no more records are needed.
    """

    def __init__(self, field: Field, shared: Shared) -> None:
        self.field = field
        self.done: Counter[Place] = Counter()
        self.produced: set[Place] = set()
        self.is_enough = False
        self._shared = shared
        self._others: list[JavaMember | AiokafkaMember] = []

    def other(self) -> JavaMember | AiokafkaMember:
        """A member that is not ours."""
        place = (self.field.kafka.servers, self.field.topic, self.field.group)
        java = self._shared.java
        made = AiokafkaMember(*place) if java is None else JavaMember(*place, **java)
        self._others.append(made)
        return made

    @asynccontextmanager
    async def ours(self) -> AsyncIterator[Counter[Place]]:
        """A member that is ours; what it has read."""
        read: Counter[Place] = Counter()

        async def handle(message: Message) -> None:
            read[place(message)] += 1
            self.done[place(message)] += 1

        consumer = self.field.consumer(adapter=self._shared.ours)
        async with self.field.running(consumer, handle, concurrency=50):
            yield read

    def all_read(self) -> Counter[Place]:
        """How often each record was read, by any member."""
        return sum((other.read for other in self._others), self.done)

    async def pour(self) -> None:
        """Produces until it is enough, never far ahead."""
        while not self.is_enough:
            for partition in range(PARTITIONS):
                self.produced |= await self.field.append(25, partition=partition)
            await until(lambda: len(self.produced) - len(self.all_read()) < 500, "it is read")

    async def until_each(self, read: Counter[Place], *tasks: asyncio.Task[None]) -> None:
        """Waits until a member has gone on in every partition."""
        before = _by_partition(read)
        await until(
            lambda: all(_by_partition(read)[p] > before[p] for p in range(PARTITIONS)),
            "a member reads all partitions",
            *tasks,
        )

    async def until_both(self, ours: Counter[Place], other: JavaMember | AiokafkaMember) -> None:
        """Waits until both have a share, and read on."""
        await until(lambda: 0 < len(other.held) < PARTITIONS, "they share", other.hearing)
        goals = [read.total() + ENOUGH for read in (ours, other.read)]
        await until(
            lambda: ours.total() >= goals[0] and other.read.total() >= goals[1],
            "both work",
            other.hearing,
        )


def _by_partition(read: Counter[Place]) -> Counter[int]:
    found: Counter[int] = Counter()
    for (partition, _), times in read.items():
        found[partition] += times
    return found


def _ends(produced: set[Place]) -> dict[int, int]:
    return {p: max(offset for at, offset in produced if at == p) + 1 for p in range(PARTITIONS)}


@pytest.mark.parametrize(
    "shared",
    [
        pytest.param(GROUPS[name], id=name, marks=() if name in OFTEN else pytest.mark.campaign)
        for name in GROUPS
    ],
)
async def test_other_and_ours_come_and_go_and_each_record_is_read_once(
    field: Field, shared: Shared
) -> None:
    """Each joins the other, leaves it, and takes over from it; all is read once, and committed."""
    await field.create(PARTITIONS)
    shares = Shares(field, shared)
    pouring = asyncio.create_task(shares.pour())
    async with AsyncExitStack() as stay:
        async with shares.ours() as ours:
            await shares.until_each(ours, pouring)
            other = shares.other()
            await stay.enter_async_context(other)
            await shares.until_both(ours, other)
        await shares.until_each(other.read, other.hearing, pouring)
        ours = await stay.enter_async_context(shares.ours())
        await shares.until_both(ours, other)
        await other.close()
        await shares.until_each(ours, pouring)
        shares.is_enough = True
        await pouring
        await until(lambda: shares.all_read().keys() == shares.produced, "all is read")
    assert set(shares.all_read().values()) == {1}
    await field.until_committed(_ends(shares.produced))
