"""Cases about partitions that come and go, where leases say who reads them."""

from __future__ import annotations

from consumer_sdk.records import AckFlush, Assignment, Checkpoint, OutcomeKind, StartPoint
from consumer_sdk.testing.conformance.adapters.case import AdapterCase
from consumer_sdk.testing.conformance.adapters.delivery import numbered, values
from consumer_sdk.testing.conformance.adapters.harness import Member

__all__ = ["LeaseCases"]


class LeaseCases(AdapterCase):
    """What is promised where a partition may end and have children."""

    async def test_split_partition_ends_and_its_children_wait_until_it_is_settled(self) -> None:
        """T21: the end is told once; nobody reads a child before the end was committed."""
        self.needs("split")
        stream = await self.broker.create_stream()
        await self.broker.append(stream, numbered(0, 3))
        async with self.member(stream) as member:
            (parent,) = await member.holding(1)
            await member.read(3)
            await self.broker.split(stream)
            await self._read_end(member, parent)
            await member.read_nothing()
            assert list(member.owner.held) == [parent]
            assert await self._commit_end(member, parent) is OutcomeKind.DURABLE
            children = await member.holding(2)
            assert parent not in children
            await self.broker.append(stream, numbered(3, 5))
            assert values(await member.read(2)) == [3, 4]
        assert sum(run.ended for run in member.runs) == 1

    async def test_end_that_the_checkpoint_knows_is_put_into_the_lease(self) -> None:
        """A crash between the store and the lease: the next owner says ENDED, children follow."""
        self.needs("split")
        stream = await self.broker.create_stream()
        owner = self.owner()
        async with self.member(stream, owner=owner) as member:
            (parent,) = await member.holding(1)
            await self.broker.split(stream)
            await self._read_end(member, parent)
        owner = self.owner()
        name = parent.partition.id
        owner.start = lambda a: StartPoint.ENDED if a.partition.id == name else StartPoint.EARLIEST
        async with self.member(stream, owner=owner) as member:
            children = await member.holding(2)
            assert name not in {child.partition.id for child in children}

    async def test_end_of_a_lost_assignment_is_refused(self) -> None:
        """A late commit of an epoch that is over ends nothing."""
        stream = await self.broker.create_stream()
        async with self.member(stream) as member:
            (old,) = await member.holding(1)
            member.owner.held.clear()
            member.adapter.drop(old)
            await member.holding(1)
            assert await self._commit_end(member, old) is OutcomeKind.FENCED

    async def _read_end(self, member: Member, assignment: Assignment) -> None:
        while not any(run.ended for run in member.runs if run.assignment is assignment):
            await member.fetch()

    async def _commit_end(self, member: Member, assignment: Assignment) -> OutcomeKind:
        flush = AckFlush(assignment, 1, Checkpoint(ended=True))
        (outcome,) = await member.adapter.commit([flush])
        return outcome.kind
