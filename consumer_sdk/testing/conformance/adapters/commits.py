"""Cases about commits of positions: whose write may land, and what a crash leaves."""

from __future__ import annotations

from collections.abc import Sequence

from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Checkpoint,
    Outcome,
    OutcomeKind,
    Position,
)
from consumer_sdk.testing.conformance.adapters.case import AdapterCase
from consumer_sdk.testing.conformance.adapters.delivery import numbered

__all__ = ["CommitCases"]

DURABLE = OutcomeKind.DURABLE


class CommitCases(AdapterCase):
    """What `Adapter.commit` and `Adapter.committed` promise."""

    async def test_commit_answers_each_flush_in_order_and_reads_back(self) -> None:
        """Outcomes stand in the order of the flushes; the next owner finds what was committed."""
        stream = await self.broker.create_stream(2)
        places = [await self.broker.append(stream, numbered(0, 9), p) for p in (0, 1)]
        async with self.member(stream) as member:
            first, second = await member.holding(2)
            await member.read(18)
            flushes = [
                AckFlush(second, 1, Checkpoint(resume=places[1][7])),
                AckFlush(first, 1, Checkpoint(resume=places[0][3])),
            ]
            assert [o.kind for o in await member.adapter.commit(flushes)] == [DURABLE] * 2
        async with self.member(stream) as member:
            held = await member.holding(2)
            found = [member.owner.committed[assignment] for assignment in held]
        assert [c and c.checkpoint.resume for c in found] == [places[0][3], places[1][7]]

    async def test_committed_is_none_for_a_new_group(self) -> None:
        """A group that has committed nothing is told so, not position 0."""
        stream = await self.broker.create_stream()
        await self.broker.append(stream, numbered(0, 2))
        async with self.member(stream) as member:
            (assignment,) = await member.holding(1)
            assert member.owner.committed == {assignment: None}

    async def test_older_flush_does_not_move_the_position_back(self) -> None:
        """T19: a late older commit of the same epoch leaves the newer position in place."""
        stream = await self.broker.create_stream()
        places = await self.broker.append(stream, numbered(0, 9))
        async with self.member(stream) as member:
            (assignment,) = await member.holding(1)
            await member.read(9)
            await member.commit(assignment, places[5], number=2)
            await member.commit(assignment, places[2], number=1)
            committed = (await member.adapter.committed([assignment]))[assignment]
        assert committed is not None
        assert committed.checkpoint.resume == places[5]

    async def test_position_that_another_program_set_is_foreign_until_it_is_committed_over(
        self,
    ) -> None:
        """An operator's reset is seen as such, once; what this SDK committed never is."""
        self.needs("reset")
        stream = await self.broker.create_stream()
        places = await self.broker.append(stream, numbered(0, 9))
        assert await self._committed_by_next(stream, places[5]) == [None]
        await self.broker.reset(stream, self.group, places[2])
        assert await self._committed_by_next(stream, places[3]) == [(places[2], True)]
        assert await self._committed_by_next(stream, places[3]) == [(places[3], False)]

    async def _committed_by_next(
        self, stream: str, then: Position
    ) -> list[tuple[Position, bool] | None]:
        """What the next member finds; it commits another position and leaves."""
        async with self.member(stream) as member:
            (held,) = await member.holding(1)
            found = member.owner.committed[held]
            assert (await member.commit(held, then)).kind is DURABLE
        return [None if found is None else (found.checkpoint.resume, found.is_foreign)]

    async def test_commit_inside_revoked_lands(self) -> None:
        """The last flush of a drain is in time: the next owner starts behind it."""
        stream = await self.broker.create_stream(2)
        places = [await self.broker.append(stream, numbered(0, 9), p) for p in (0, 1)]
        owner = self.owner()
        async with self.member(stream, owner=owner) as old:
            await old.holding(2)
            await old.read(18)
            outcomes: list[Outcome] = []

            async def flush(assignments: Sequence[Assignment]) -> None:
                flushes = [
                    AckFlush(a, 1, Checkpoint(resume=places[self.broker.number_of(a.partition)][4]))
                    for a in assignments
                ]
                outcomes.extend(await old.adapter.commit(flushes))

            owner.on_revoked = flush
            async with self.member(stream) as new:
                (moved,) = await new.holding(1)
                assert {outcome.kind for outcome in outcomes} == {DURABLE}
                committed = new.owner.committed[moved]
        assert committed is not None
        assert committed.checkpoint.resume == places[self.broker.number_of(moved.partition)][4]

    async def test_commit_of_a_revoked_epoch_does_not_land(self) -> None:
        """T1: after a partition has moved, the former owner's commit changes nothing."""
        stream = await self.broker.create_stream(2)
        places = [await self.broker.append(stream, numbered(0, 9), p) for p in (0, 1)]
        async with self.member(stream) as old:
            before = await old.holding(2)
            await old.read(18)
            async with self.member(stream) as new:
                (moved,) = await new.holding(1)
                await new.commit(moved, places[self.broker.number_of(moved.partition)][6])
                gone = [each for each in before if each not in old.owner.held]
                assert moved.partition in {each.partition for each in gone}
                for stale in gone:  # all, or what has moved: that depends on the broker
                    outcome = await old.commit(
                        stale, places[self.broker.number_of(stale.partition)][8]
                    )
                    assert outcome.kind is OutcomeKind.FENCED
                committed = (await new.adapter.committed([moved]))[moved]
        assert committed is not None
        assert committed.checkpoint.resume == places[self.broker.number_of(moved.partition)][6]

    async def test_crashed_member_loses_its_partitions_and_its_successor_starts_at_the_commit(
        self,
    ) -> None:
        """What was not committed at a crash is delivered again, and nothing else."""
        self.needs("crash")
        stream = await self.broker.create_stream()
        places = await self.broker.append(stream, numbered(0, 9))
        async with self.member(stream) as old:
            (held,) = await old.holding(1)
            await old.read(9)
            assert (await old.commit(held, places[4])).kind is DURABLE
            await self.broker.crash(old.adapter)
            owner = self.owner()
            async with self.member(stream, owner=owner) as new:
                await new.holding(1)
                (committed,) = owner.committed.values()
        assert committed is not None
        assert committed.checkpoint.resume == places[4]
