"""Cases about assignments and commits: who holds what, and whose write may land."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from consumer_sdk.records import AckFlush, Assignment, Checkpoint, Outcome, OutcomeKind
from consumer_sdk.testing.conformance.adapter_case import AdapterCase
from consumer_sdk.testing.conformance.adapter_delivery import numbered, values
from consumer_sdk.testing.conformance.adapter_harness import Member

__all__ = ["CommitCases", "MembershipCases"]

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
        assert [c and c.resume for c in found] == [places[0][3], places[1][7]]

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
        assert committed.resume == places[5]

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
                    AckFlush(a, 1, Checkpoint(resume=places[int(a.partition.id)][4]))
                    for a in assignments
                ]
                outcomes.extend(await old.adapter.commit(flushes))

            owner.on_revoked = flush
            async with self.member(stream) as new:
                (moved,) = await new.holding(1)
                assert [outcome.kind for outcome in outcomes] == [DURABLE] * 2
                committed = new.owner.committed[moved]
        assert committed is not None
        assert committed.resume == places[int(moved.partition.id)][4]

    async def test_commit_of_a_revoked_epoch_does_not_land(self) -> None:
        """T1: after a partition has moved, the former owner's commit changes nothing."""
        stream = await self.broker.create_stream(2)
        places = [await self.broker.append(stream, numbered(0, 9), p) for p in (0, 1)]
        async with self.member(stream) as old:
            before = await old.holding(2)
            await old.read(18)
            async with self.member(stream) as new:
                (moved,) = await new.holding(1)
                await new.commit(moved, places[int(moved.partition.id)][6])
                for stale in before:
                    outcome = await old.commit(stale, places[int(stale.partition.id)][8])
                    assert outcome.kind is OutcomeKind.FENCED
                committed = (await new.adapter.committed([moved]))[moved]
        assert committed is not None
        assert committed.resume == places[int(moved.partition.id)][6]

    async def test_identity_tells_a_stream_made_again(self) -> None:
        """A deleted and re-created stream has another identity, where there is one at all."""
        self.needs("recreate")
        stream = await self.broker.create_stream()
        async with self.member(stream) as member:
            (assignment,) = await member.holding(1)
            first = member.adapter.identity(assignment)
        await self.broker.recreate(stream)
        async with self.member(stream, group=self.new_group()) as member:
            (assignment,) = await member.holding(1)
            second = member.adapter.identity(assignment)
        assert first is None or first != second


class MembershipCases(AdapterCase):
    """What is promised about grants, revokes and the end of a member."""

    async def test_partition_is_revoked_from_the_old_owner_before_the_new_one_gets_it(self) -> None:
        """A second member takes over only what the first has given up, under new epochs."""
        stream = await self.broker.create_stream(4)
        async with self.member(stream) as old:
            before = await old.holding(4)
            async with self.member(stream) as new:
                moved = await new.holding(2)
                kept = await old.holding(2)
                released = self.journal.events.index(self.journal.of("released", "member-1")[0])
                granted = self.journal.events.index(self.journal.of("assigned", "member-2")[0])
                assert released < granted
                assert {a.partition for a in moved + kept} == {a.partition for a in before}
                assert min(a.epoch for a in kept) > max(a.epoch for a in before)

    async def test_runs_after_a_rebalance_belong_to_the_new_epochs(self) -> None:
        """Every run names the grant it was fetched under, so that old ones can be told."""
        stream = await self.broker.create_stream(2)
        async with self.member(stream) as old:
            before = await old.holding(2)
            async with self.member(stream) as new:
                await new.holding(1)
                await old.holding(1)
                for partition in (0, 1):
                    await self.broker.append(stream, numbered(0, 5), partition)
                messages = await old.read(5) + await new.read(5)
        assert not {message.assignment for message in messages} & set(before)

    async def test_pause_resume_and_drop_of_a_lost_assignment_do_nothing(self) -> None:
        """Late calls for an epoch that is over are no-ops, and hurt no newer one."""
        stream = await self.broker.create_stream(2)
        async with self.member(stream) as old:
            before = await old.holding(2)
            async with self.member(stream) as new:
                await new.holding(1)
                (kept,) = await old.holding(1)
                for stale in before:
                    old.adapter.pause(stale)
                    old.adapter.resume(stale)
                    old.adapter.drop(stale)
                await self.broker.append(stream, numbered(0, 5), int(kept.partition.id))
                assert values(await old.read(5)) == list(range(5))

    async def test_assigned_is_ended_before_the_partitions_are_revoked(self) -> None:
        """An owner that still loads when the next rebalance comes is cancelled, or has ended."""
        stream = await self.broker.create_stream(2)
        owner = self.owner()
        owner.gate.clear()
        async with self.member(stream, owner=owner):
            await self.until_event("assigned", "member-1")
            async with self.member(stream) as new:
                await self.until_event("cancelled", "member-1")
                owner.gate.set()
                await new.holding(1)
                mine = [event.kind for event in self.journal.events if event.member == "member-1"]
                assert mine[:2] == ["assigned", "cancelled"]

    async def test_dropped_assignment_is_granted_again_under_a_new_epoch(self) -> None:
        """After `drop` nothing of the old epoch comes; the partition comes back as a new one."""
        stream = await self.broker.create_stream()
        await self.broker.append(stream, numbered(0, 5))
        async with self.member(stream) as member:
            (old,) = await member.holding(1)
            await member.read(5)
            member.owner.held.clear()
            member.adapter.drop(old)
            (new,) = await member.holding(1)
            assert new.partition == old.partition
            assert new.epoch > old.epoch
            assert values(await member.read(5)) == list(range(5))

    async def test_close_revokes_first_and_hands_over(self) -> None:
        """`aclose` has the owner flush, then leaves; the next member gets all at once."""
        stream = await self.broker.create_stream(2)
        async with self.member(stream) as old:
            before = await old.holding(2)
            await self._close(old)
            (revoked,) = self.journal.of("released", "member-1")
            assert set(revoked.assignments) == set(before)
            async with self.member(stream) as new:
                await new.holding(2)

    async def test_close_twice_or_unopened_is_quiet(self) -> None:
        """`aclose` is idempotent, also at the same time, and before `open`."""
        stream = await self.broker.create_stream()
        await self.broker.make_adapter(stream, self.group).aclose()
        async with self.member(stream) as member:
            await member.holding(1)
            async with asyncio.timeout(self.broker.patience):
                await asyncio.gather(member.adapter.aclose(), member.adapter.aclose())
            await self._close(member)
        assert len(self.journal.of("revoked")) == 1

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
        assert committed.resume == places[4]

    async def test_new_partition_of_a_known_stream_is_called_discovered(self) -> None:
        """A partition that appears later is granted as such: it starts at the earliest record."""
        self.needs("grow")
        stream = await self.broker.create_stream()
        async with self.member(stream) as member:
            (first,) = await member.holding(1)
            assert not first.discovered
            await self.broker.grow(stream, 2)
            held = await member.holding(2)
            assert [a.discovered for a in held] == [False, True]

    async def _close(self, member: Member) -> None:
        async with asyncio.timeout(self.broker.patience):
            await member.adapter.aclose()
