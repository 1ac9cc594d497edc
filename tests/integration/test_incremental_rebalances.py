"""Rebalances that stop only what moves: whole consumers on a real Kafka, by both protocols that can do that."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from consumer_sdk import Consumer, Message, Ordering
from tests.adapters.kafka.consumer_groups import member_ids
from tests.integration.field import Field, Place, place, until

PATIENT = {"rebalance_timeout": 120.0}
"""A drain is held up by a test, not cut off by a busy machine."""

pytestmark = pytest.mark.kafka

EAGER: dict[str, Any] = {"partition_assignment_strategy": ["roundrobin"], **PATIENT}
EITHER = {"partition_assignment_strategy": ["cooperative-sticky", "roundrobin"], **PATIENT}
COOPERATIVE = {"partition_assignment_strategy": ["cooperative-sticky"], **PATIENT}
CONSUMER = {"protocol": "consumer", "session_timeout": None, **PATIENT}

both = pytest.mark.parametrize("protocol", [COOPERATIVE, CONSUMER], ids=["cooperative", "consumer"])

ENOUGH = 50
"""Records of a partition that show that it goes on."""
MANY: dict[str, Any] = {"concurrency": 100, "ordering": Ordering.NONE}
LEAD = 100
"""Records that each partition has at hand."""


class Load:
    """A topic into which records come all the time, and what became of them.

    Attributes:
        runs: of each partition, who had it: each entry is a member and one assignment's epoch.
        done: how often each record was handled to its end.
        is_enough: no more records are needed.
    """

    def __init__(self, field: Field, partitions: int) -> None:
        self.runs: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
        self.done: Counter[Place] = Counter()
        self._produced: set[Place] = set()
        self._field, self._partitions = field, partitions
        self.is_enough = False

    @asynccontextmanager
    async def pouring(self) -> AsyncIterator[asyncio.Task[None]]:
        """Produces until the end of the block."""
        task = asyncio.create_task(self._pour())
        try:
            yield task
        finally:
            self.is_enough = True
            await task

    async def _pour(self) -> None:
        while not self.is_enough:
            behind = Counter(p for p, _ in self._produced - self.done.keys())
            for partition in range(self._partitions):
                if behind[partition] < LEAD:
                    self._produced |= await self._field.append(20, partition=partition)
            await asyncio.sleep(0.01)

    async def until_done(self, pouring: asyncio.Task[None]) -> None:
        """Waits until all is handled, and committed; nothing was handled twice."""
        self.is_enough = True
        await pouring
        await until(lambda: self.done.keys() == self._produced, "all is handled")
        assert set(self.done.values()) == {1}
        ends = Counter(partition for partition, _ in self._produced)
        await self._field.until_committed(dict(ends))

    def note(self, message: Message, member: str) -> None:
        """A member has handled this."""
        partition, _ = place(message)
        run = (member, message.assignment.epoch)
        if self.runs[partition][-1:] != [run]:
            self.runs[partition].append(run)
        self.done[place(message)] += 1

    def counts(self) -> Counter[int]:
        """Records that were handled, by partition."""
        return Counter(partition for partition, _ in self.done)

    async def until_more(self, partitions: set[int], *tasks: asyncio.Task[None]) -> None:
        """Waits until these have gone on."""
        before = self.counts()
        await until(
            lambda: all(self.counts()[p] >= before[p] + ENOUGH for p in partitions),
            f"{partitions} go on",
            *tasks,
        )


def _draining(consumer: Consumer) -> set[int]:
    return {int(p.partition.id) for p in consumer.snapshot().partitions if p.is_draining}


def _held(consumer: Consumer) -> set[int]:
    return {int(partition.id) for partition in consumer.stats().partitions}


@both
async def test_what_stays_goes_on_while_what_moves_is_drained(
    field: Field, protocol: dict[str, Any]
) -> None:
    """The drain is held up for as long as it takes; meanwhile nobody has what moves, and the rest flows."""
    await field.create(4)
    load = Load(field, 4)
    may_end, held = asyncio.Event(), set[int]()

    async def handle(message: Message) -> None:
        partition, offset = place(message)
        if offset == 100:
            held.add(partition)
            await may_end.wait()
        load.note(message, "first")

    async def see(message: Message) -> None:
        load.note(message, "second")

    first, second = (field.consumer(adapter=protocol) for _ in range(2))
    async with AsyncExitStack() as stack:
        pouring = await stack.enter_async_context(load.pouring())
        running = await stack.enter_async_context(field.running(first, handle, **MANY))
        await until(lambda: len(held) == 4, "a handler of each partition waits", running, pouring)
        joined = await stack.enter_async_context(field.running(second, see, **MANY))
        await until(lambda: len(_draining(first)) == 2, "two drain", running, joined)
        moving = _draining(first)
        await load.until_more(set(range(4)) - moving, running, joined, pouring)
        assert not second.stats().partitions
        may_end.set()
        await until(lambda: _held(second) == moving, "two have moved", running, joined)
        await load.until_more(set(range(4)), running, joined, pouring)
        await load.until_done(pouring)
    assert {p: len(runs) for p, runs in load.runs.items()} == {
        p: 1 + (p in moving) for p in range(4)
    }


@pytest.mark.parametrize(
    "protocol",
    [pytest.param(COOPERATIVE, marks=pytest.mark.campaign), CONSUMER],
    ids=["cooperative", "consumer"],
)
async def test_rolling_restart_of_four_members_moves_no_partition_that_its_member_keeps(
    field: Field, protocol: dict[str, Any]
) -> None:
    """A partition has another assignment only where another member had it in between; all is handled once."""
    partitions = 8
    await field.create(partitions)
    load = Load(field, partitions)

    def member(name: str) -> AbstractAsyncContextManager[tuple[Consumer, asyncio.Task[None]]]:
        return _member(field.consumer(adapter=protocol), name, load, field)

    async with AsyncExitStack() as stack:
        pouring = await stack.enter_async_context(load.pouring())
        stacks = [await stack.enter_async_context(AsyncExitStack()) for _ in range(4)]
        members = [
            await each.enter_async_context(member(f"{n}.0")) for n, each in enumerate(stacks)
        ]
        await _until_even(members, partitions, pouring)
        for n, each in enumerate(stacks):
            await each.aclose()
            members.pop(0)
            await _until_even(members, partitions, pouring)
            await load.until_more(set(range(partitions)), pouring)
            members.append(await each.enter_async_context(member(f"{n}.1")))
            await _until_even(members, partitions, pouring)
            await load.until_more(set(range(partitions)), pouring)
        await load.until_done(pouring)
    for runs in load.runs.values():
        assert all(before[0] != after[0] for before, after in pairwise(runs)), load.runs


@pytest.mark.campaign
async def test_group_changes_its_protocol_member_by_member_without_a_stop(field: Field) -> None:
    """From eager to cooperative, as Kafka's guide has it, and on to the consumer protocol: all is handled once."""
    partitions = 4
    await field.create(partitions)
    load = Load(field, partitions)
    async with AsyncExitStack() as stack:
        pouring = await stack.enter_async_context(load.pouring())
        stacks = [await stack.enter_async_context(AsyncExitStack()) for _ in range(2)]
        members: list[tuple[Consumer, asyncio.Task[None]]] = []
        for step, protocol in enumerate((EAGER, EITHER, COOPERATIVE, CONSUMER)):
            for n, each in enumerate(stacks):
                await each.aclose()
                members = members[step > 0 :]
                made = _member(field.consumer(adapter=protocol), f"{n}.{step}", load, field)
                members.append(await each.enter_async_context(made))
                await _until_even(members, partitions, pouring)
                await load.until_more(set(range(partitions)), pouring)
        assert len(await member_ids(field.kafka.admin, field.group)) == 2
        await load.until_done(pouring)


@asynccontextmanager
async def _member(
    consumer: Consumer, name: str, load: Load, field: Field
) -> AsyncIterator[tuple[Consumer, asyncio.Task[None]]]:
    async def handle(message: Message) -> None:
        load.note(message, name)

    async with field.running(consumer, handle, **MANY) as running:
        yield consumer, running


async def _until_even(
    members: Sequence[tuple[Consumer, asyncio.Task[None]]],
    partitions: int,
    pouring: asyncio.Task[None],
) -> None:
    """Waits until each partition has an owner, and no member has two more than another."""

    def is_even() -> bool:
        shares = [_held(consumer) for consumer, _ in members]
        sizes = [len(share) for share in shares]
        return sum(sizes) == len(set().union(*shares)) == partitions and max(sizes) - min(sizes) < 2

    await until(is_even, "even shares", pouring, *(running for _, running in members))
