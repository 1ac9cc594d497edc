"""Cases about assignments: who holds what, from the grant to the end."""

from __future__ import annotations

import asyncio

from consumer_sdk.records import Partition
from consumer_sdk.testing.conformance.adapters.case import AdapterCase
from consumer_sdk.testing.conformance.adapters.delivery import numbered, values
from consumer_sdk.testing.conformance.adapters.harness import Member

__all__ = ["MembershipCases", "RebalanceCases"]


class MembershipCases(AdapterCase):
    """What is promised about grants, drops and the end of a member, for every kind."""

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

    async def test_member_that_lives_is_certain_of_what_it_holds(self) -> None:
        """`held_until` lies ahead while heartbeats or renewals are answered."""
        stream = await self.broker.create_stream()
        async with self.member(stream) as member, asyncio.timeout(self.broker.patience):
            await member.holding(1)
            # A machine that stands still for a while is certain again after the next answer.
            while member.adapter.held_until() <= asyncio.get_running_loop().time():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)

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

    async def test_close_while_the_owner_is_asked_ends_the_question_before_it_revokes(self) -> None:
        """The owner would begin to hold what was revoked just now."""
        stream = await self.broker.create_stream()
        owner = self.owner()
        owner.gate.clear()
        async with self.member(stream, owner=owner) as member:
            await self.until_event("assigned", "member-1")
            await self._close(member)
            kinds = [event.kind for event in self.journal.events]
            assert kinds[:2] == ["assigned", "cancelled"]
            assert "granted" not in kinds
            assert not owner.held

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

    async def _close(self, member: Member) -> None:
        async with asyncio.timeout(self.broker.patience):
            await member.adapter.aclose()


class RebalanceCases(AdapterCase):
    """What is promised where each partition belongs to one member at a time."""

    async def test_partition_is_revoked_from_the_old_owner_before_the_new_one_gets_it(self) -> None:
        """A second member takes over only what the first has given up, under later epochs.

        What stays may be granted anew (Kafka) or go on (leases).
        """
        stream = await self.broker.create_stream(4)
        async with self.member(stream) as old:
            before = await old.holding(4)
            async with self.member(stream) as new:
                moved = await new.holding(2)
                kept = await old.holding(2)
                for assignment in moved:
                    released = self._when("released", "member-1", assignment.partition)
                    assert released < self._when("assigned", "member-2", assignment.partition)
                assert {a.partition for a in moved + kept} == {a.partition for a in before}
                last = max(a.epoch for a in before)
                assert all(a in before or a.epoch > last for a in moved + kept)
                assert not set(moved) & set(before)

    def _when(self, kind: str, member: str, partition: Partition) -> int:
        """The place in the journal of the first event of a partition."""
        for event in self.journal.of(kind, member):
            if any(a.partition == partition for a in event.assignments):
                return self.journal.events.index(event)
        raise AssertionError(f"{partition} was never {kind} by {member}")

    async def test_runs_after_a_rebalance_belong_to_the_new_epochs(self) -> None:
        """Every run names the grant it was fetched under, so that old ones can be told."""
        stream = await self.broker.create_stream(2)
        async with self.member(stream) as old:
            await old.holding(2)
            async with self.member(stream) as new:
                now = await new.holding(1) + await old.holding(1)
                for partition in (0, 1):
                    await self.broker.append(stream, numbered(0, 5), partition)
                messages = await old.read(5) + await new.read(5)
        assert {message.assignment for message in messages} == set(now)

    async def test_pause_resume_and_drop_of_a_lost_assignment_do_nothing(self) -> None:
        """Late calls for an epoch that is over are no-ops, and hurt no newer one."""
        stream = await self.broker.create_stream(2)
        async with self.member(stream) as old:
            before = await old.holding(2)
            async with self.member(stream) as new:
                await new.holding(1)
                (kept,) = await old.holding(1)
                for stale in set(before) - {kept}:
                    old.adapter.pause(stale)
                    old.adapter.resume(stale)
                    old.adapter.drop(stale)
                await self.broker.append(
                    stream, numbered(0, 5), self.broker.number_of(kept.partition)
                )
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
