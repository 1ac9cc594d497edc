"""Cases about queues: several members hold a partition, and share its records."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from consumer_sdk.records import Message
from consumer_sdk.testing.conformance.adapters.case import AdapterCase
from consumer_sdk.testing.conformance.adapters.delivery import messages, numbered, values
from consumer_sdk.testing.conformance.adapters.harness import Member, Record

__all__ = ["QueueCases"]


class QueueCases(AdapterCase):
    """What is promised by adapters of kind QUEUE."""

    async def test_members_share_the_records_of_a_partition(self) -> None:
        """Each record comes to one of them, and both get some."""
        stream = await self.broker.create_stream()
        async with AsyncExitStack() as stack:
            first, second = await self._two(stack, stream)
            mine: list[Message] = []
            yours: list[Message] = []
            count = 0
            async with asyncio.timeout(self.broker.patience):
                while not (mine and yours):  # a busy broker may hear late that there are two
                    await self.broker.append(stream, numbered(count, count + 40))
                    count += 40
                    read = await self._read_both(first, second, 40)
                    mine, yours = mine + read[0], yours + read[1]
            assert sorted(values(mine + yours)) == list(range(count))

    async def test_member_that_joins_takes_nothing_from_the_others(self) -> None:
        """An assignment lives as long as its member."""
        if not self.broker.members_hold_all:
            pytest.skip("the broker shares the partitions of a queue out, as far as they go")
        stream = await self.broker.create_stream(2)
        async with AsyncExitStack() as stack:
            first, second = await self._two(stack, stream, partitions=2)
            assert not self.journal.of("revoked") + self.journal.of("lost")
            assert {a.partition for a in first.owner.held} == {
                a.partition for a in second.owner.held
            }

    async def test_record_that_a_member_never_saw_is_not_settled_by_its_acks(self) -> None:
        """What lies between its own records is another one's, and comes when that one ends."""
        stream = await self.broker.create_stream()
        async with AsyncExitStack() as stack:
            first, second = await self._two(stack, stream)
            await self.broker.append(stream, numbered(0, 40))
            mine, yours = await self._read_both(first, second, 40)
            await first.ack(mine)
            await second.adapter.aclose()
            again = await first.read(len(yours))
            assert sorted(values(again)) == sorted(values(yours))

    async def test_what_a_crashed_member_held_comes_to_another(self) -> None:
        """Handed out or not."""
        self.needs("crash")
        stream = await self.broker.create_stream()
        async with AsyncExitStack() as stack:
            first, second = await self._two(stack, stream)
            await self.broker.append(stream, numbered(0, 40))
            mine = await first.read_some()
            await first.ack(mine)
            await self.broker.crash(second.adapter)
            found = set(values(mine))
            async with asyncio.timeout(self.broker.patience):
                while found != set(range(40)):
                    more = messages(await first.fetch())
                    if more:
                        await first.ack(more)
                    found |= set(values(more))

    async def test_records_of_a_key_come_to_one_member(self) -> None:
        """Between reconnects, where the subscription keeps keys together."""
        stream = await self.broker.create_stream()
        if not self.broker.make_adapter(stream, self.group).capabilities.keeps_key_order:
            pytest.skip("this subscription does not keep keys together")
        async with AsyncExitStack() as stack:
            first, second = await self._two(stack, stream)
            records = [Record(str(n).encode(), key=b"k%d" % (n % 8)) for n in range(40)]
            await self.broker.append(stream, records)
            mine, yours = await self._read_both(first, second, 40)
            assert not {m.key for m in mine} & {m.key for m in yours}
            for found in (mine, yours):
                for key in {m.key for m in found}:
                    numbers = values([m for m in found if m.key == key])
                    assert numbers == sorted(numbers)

    async def _two(
        self, stack: AsyncExitStack, stream: str, partitions: int = 1
    ) -> tuple[Member, Member]:
        """Two members that are ready for records."""
        first = await stack.enter_async_context(self.member(stream))
        await first.holding(partitions)
        second = await stack.enter_async_context(self.member(stream))
        await second.holding(partitions)
        for member in (first, second):
            await member.read_nothing()
        return first, second

    async def _read_both(
        self, first: Member, second: Member, count: int
    ) -> tuple[list[Message], list[Message]]:
        mine: list[Message] = []
        yours: list[Message] = []
        async with asyncio.timeout(self.broker.patience):
            while len(mine) + len(yours) < count:
                mine += messages(await first.fetch())
                yours += messages(await second.fetch())
        return mine, yours
