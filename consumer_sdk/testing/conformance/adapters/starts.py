"""Cases about where a log is read from."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from consumer_sdk.records import Assignment, AtPosition, AtTime, Message, Position, StartPoint
from consumer_sdk.testing.conformance.adapters.case import AdapterCase
from consumer_sdk.testing.conformance.adapters.delivery import messages, numbered, values
from consumer_sdk.testing.conformance.adapters.harness import Member

__all__ = ["PositionCases", "StartCases"]


class StartCases(AdapterCase):
    """What the owner's start of a log means."""

    async def test_first_record_is_the_one_that_a_slow_owner_chose(self) -> None:
        """However long loading takes, nothing from before the chosen start comes out."""
        stream = await self.broker.create_stream()
        places = await self.broker.append(stream, numbered(0, 10))
        owner = self.owner()
        owner.gate.clear()
        owner.start = AtPosition(places[6])
        async with self.member(stream, owner=owner) as member:
            await self.until_event("assigned")
            await member.read_nothing()
            owner.gate.set()
            found = await member.read(4)
        assert values(found) == [6, 7, 8, 9]
        assert [message.position for message in found] == places[6:]

    async def test_start_earliest_latest_and_time(self) -> None:
        """Each start means what it says, for the same stream."""
        stream = await self.broker.create_stream()
        time = await self.broker.append_apart(stream, numbered(0, 4))
        for start, expected in (
            (StartPoint.EARLIEST, [0, 1, 2, 3]),
            (AtTime(time), [2, 3]),
            (StartPoint.LATEST, [4]),
        ):
            owner = self.owner()
            owner.start = start
            async with self.member(stream, owner=owner, group=self.new_group()) as member:
                await member.holding(1)
                await member.fetch()  # until then "latest" may not be resolved
                seen = messages(member.runs)
                if start is StartPoint.LATEST:
                    seen += await self._append_until_seen(member, stream)
                rest = await member.read(len(expected) - len(seen))
                assert values(seen + rest) == expected

    async def _append_until_seen(self, member: Member, stream: str) -> list[Message]:
        """The first of some records 4: a busy broker may resolve "latest" behind one or more."""
        async with asyncio.timeout(self.broker.patience):
            while True:
                await self.broker.append(stream, numbered(4, 5))
                if found := messages(await member.fetch()):
                    assert {*values(found)} == {4}
                    return found[:1]

    async def test_partitions_and_their_ends_are_known_whoever_holds_them(self) -> None:
        """So that a group can pin where all of them ended when it first started."""
        stream = await self.broker.create_stream(2)
        for partition, count in ((0, 3), (1, 5)):
            await self.broker.append(stream, numbered(0, count), partition)
        found = []
        async with AsyncExitStack() as stack:
            count = 2 if self.broker.shares_partitions else 1
            members = [await stack.enter_async_context(self.member(stream)) for _ in range(count)]
            for member in members:
                held, *_ = await member.holding(2 // count)
                named = await member.adapter.partitions(stream)
                ids = {self.broker.partition_id(number) for number in (0, 1)}
                assert {(p.stream, p.id) for p in named} == {(stream, each) for each in ids}
                grants = [Assignment(partition, 0) for partition in named]
                ends = await member.adapter.positions([*grants, held], StartPoint.LATEST)
                assert ends[held] in [ends[each] for each in grants]
                found.append({each.partition: ends[each] for each in grants})
                knows_ends = member.adapter.capabilities.knows_ends
        assert found[0] == found[-1]
        assert (None in found[0].values()) is not knows_ends

    async def test_stream_that_is_not_there_has_no_partitions(self) -> None:
        """It may have been deleted meanwhile: that is no error of the question."""
        stream = await self.broker.create_stream()
        async with self.member(stream) as member:
            await member.holding(1)
            assert not await member.adapter.partitions(f"{stream}-absent")


class PositionCases(AdapterCase):
    """For logs that are read, and committed, by position."""

    async def test_start_past_the_end_is_a_fault_of_that_partition_alone(self) -> None:
        """T12: a position that is not stored is a fault run; the other partition flows."""
        stream = await self.broker.create_stream(2)
        for partition in (0, 1):
            await self.broker.append(stream, numbered(0, 3), partition)
        owner = self.owner()
        async with self.member(stream, group=self.new_group()) as scout:
            ends = await scout.adapter.positions(await scout.holding(2), StartPoint.LATEST)
            known = [end for end in ends.values() if end is not None]
            past = self.broker.past_end(max(known, default=None))
        bad, good = map(self.broker.partition_id, (0, 1))
        owner.start = lambda a: AtPosition(past) if a.partition.id == bad else StartPoint.EARLIEST
        async with self.member(stream, owner=owner) as member:
            fault = await member.read_fault()
            assert fault.assignment.partition.id == bad
            assert not fault.messages
            seen = messages(member.runs)
            seen += await member.read(3 - len(seen))
            assert {message.partition.id for message in seen} == {good}

    async def test_start_below_the_first_record_is_a_fault(self) -> None:
        """T12: retention has passed the checkpoint: a fault, no silent jump."""
        self.needs("truncate")
        stream = await self.broker.create_stream()
        places = await self.broker.append(stream, numbered(0, 10))
        await self.broker.truncate(stream, places[6])
        owner = self.owner()
        owner.start = AtPosition(places[2])
        async with self.member(stream, owner=owner) as member:
            fault = await member.read_fault()
            earliest = await member.adapter.positions([fault.assignment], StartPoint.EARLIEST)
            assert earliest[fault.assignment] == places[6]

    async def test_next_position_passes_a_gap_at_the_end(self) -> None:
        """T10: positions that move without a record are told, so that lag can become 0."""
        self.needs("gap")
        stream = await self.broker.create_stream()
        await self.broker.append(stream, numbered(0, 3))
        await self.broker.skip(stream)
        async with self.member(stream) as member:
            (assignment,) = await member.holding(1)
            await member.read(3)
            end = (await member.adapter.positions([assignment], StartPoint.LATEST))[assignment]
            reached: Position = None
            async with asyncio.timeout(self.broker.patience):
                while reached != end:
                    nexts = [run.next_position for run in member.runs]
                    reached = next((p for p in reversed(nexts) if p is not None), None)
                    if reached != end:
                        await member.fetch()
            assert (await member.adapter.lag([assignment]))[assignment] in {0, None}
