"""Cases about owners: takes, fences, handovers, ends."""

from __future__ import annotations

import asyncio

from consumer_sdk.abc import StoreItem
from consumer_sdk.leases.balance import moves
from consumer_sdk.records import OutcomeKind
from consumer_sdk.records.leases import Lease
from consumer_sdk.testing.conformance.leases.case import DURATION, HANDOVER, STEP, Joiner, LeaseCase

__all__ = ["OwnershipCases"]

TURNS = 12
"""Turns of the event loop after which a call is cancelled, at most."""


class OwnershipCases(LeaseCase):
    """Who has what."""

    async def test_taken_partition_is_held_under_its_fence(self, join: Joiner) -> None:
        """The taker holds it; the others see who has it."""
        mine, theirs = await join(), await join()
        await mine.sync(self.parents)
        fence = await self.taken(mine)
        assert (await mine.view()).held == {"a": fence}
        seen = await theirs.view()
        assert (seen.leases["a"].owner, seen.leases["a"].fence) == (mine.member, fence)
        assert seen.members == {mine.member, theirs.member}
        assert (seen.me, seen.held) == (theirs.member, {})
        assert list(await mine.renew()) == []

    async def test_partition_taken_meanwhile_is_left_alone(self, join: Joiner) -> None:
        """Who decided on what is no longer true takes nothing; the rest of the call counts."""
        mine, theirs = await join(), await join()
        await mine.sync(self.parents)
        await self.taken(mine, "a")
        assert (await theirs.take({"a": 0, "b": 0})).keys() == {"b"}
        assert (await self.lease(theirs)).owner == mine.member

    async def test_takers_at_the_same_time_share_out(self, join: Joiner) -> None:
        """Each partition goes to exactly one of them, each fence to one partition."""
        members = [await join() for _ in range(4)]
        await members[0].sync({str(number): () for number in range(6)})
        seen = dict.fromkeys(map(str, range(6)), 0)
        taken = await asyncio.gather(*(each.take(seen) for each in members))
        assert sorted(p for fences in taken for p in fences) == sorted(seen)
        assert sorted(f for fences in taken for f in fences.values()) == list(range(1, 7))

    async def test_every_fence_is_above_all_before(self, join: Joiner) -> None:
        """Taken, released, taken by another, by force, and once more by who has it."""
        mine, theirs = await join(), await join()
        await mine.sync(self.parents)
        fences = [await self.taken(mine), await self.taken(mine, "b")]
        await mine.release({"a": fences[0]})
        fences += [await self.taken(each) for each in (theirs, mine, mine)]
        assert fences == sorted(set(fences))
        assert list(await mine.renew()) == []

    async def test_partition_taken_by_force_is_lost(self, join: Joiner) -> None:
        """The owner of before learns of it once, and can give nothing away any more."""
        mine, theirs = await join(), await join()
        await mine.sync(self.parents)
        old, kept = await self.taken(mine), await self.taken(mine, "b")
        new = await self.taken(theirs)
        assert list(await mine.renew()) == ["a"]
        assert list(await mine.renew()) == []
        await mine.release({"a": old}, ended=True)
        assert await self.lease(theirs) == Lease(owner=theirs.member, fence=new)
        assert (await mine.view()).held == {"b": kept}

    async def test_owner_before_can_neither_claim_nor_save(self, join: Joiner) -> None:
        """Its lease was taken: its claim is refused, and its claim of before writes nothing."""
        mine, theirs = await join(), await join()
        await mine.sync(self.parents)
        fence = await self.taken(mine)
        old = await self.claims(join, mine, fence)
        new = await self.claims(join, theirs, await self.taken(theirs))
        assert old is not None
        assert new is not None
        (outcome,) = await join.stores[mine].save("g", [StoreItem(old, "late")])
        assert outcome.kind is OutcomeKind.FENCED
        assert await self.claims(join, mine, fence) is None
        (outcome,) = await join.stores[theirs].save("g", [StoreItem(new, "new")])
        assert outcome.kind is OutcomeKind.DURABLE

    async def test_released_partition_is_free_and_not_lost(self, join: Joiner) -> None:
        """Whoever saw it before can take it at once."""
        mine, theirs = await join(), await join()
        await mine.sync(self.parents)
        fence = await self.taken(mine)
        await mine.release({"a": fence})
        assert await self.lease(theirs) == Lease(fence=fence)
        assert list(await mine.renew()) == []
        assert (await theirs.take({"a": fence})).keys() == {"a"}

    async def test_release_under_an_older_fence_changes_nothing(self, join: Joiner) -> None:
        """A release that comes late does not end a newer tenure of the same member."""
        mine = await join()
        await mine.sync(self.parents)
        old, new = await self.taken(mine), await self.taken(mine)
        await mine.release({"a": old, "b": 0, "unknown": 1}, ended=True)
        assert (await mine.view()).held == {"a": new}
        assert await self.lease(mine) == Lease(owner=mine.member, fence=new)

    async def test_wish_is_shown_until_the_partition_is_taken(self, join: Joiner) -> None:
        """Only what somebody else owns can be wished for."""
        mine, theirs = await join(), await join()
        await mine.sync(self.parents)
        fence, own = await self.taken(mine), await self.taken(theirs, "b")
        await theirs.want(["a", "b", "c", "unknown"])
        view = await mine.view()
        assert {p: lease.wanted_by for p, lease in view.leases.items()} == {
            "a": theirs.member,
            "b": None,
            "c": None,
        }
        await mine.release({"a": fence})
        taken = await theirs.take({"a": fence, "b": own})
        assert await self.lease(theirs) == Lease(owner=theirs.member, fence=taken["a"])

    async def test_partition_that_is_not_handed_over_becomes_overdue(self, join: Joiner) -> None:
        """It is wanted, then taken by force: not before the time, and from this owner alone."""
        mine, theirs = await join(), await join()
        await mine.sync({"a": (), "b": ()})
        await mine.take({"a": 0, "b": 0})
        assert await self.step(theirs)
        await theirs.view()  # its wish is there: from now on it waits
        for _ in range(int((HANDOVER + DURATION) / STEP) - 1):
            join.sleep(STEP)
            await mine.renew()
            assert not await self.step(theirs)
        join.sleep(STEP)
        await mine.renew()
        view = await theirs.view()
        (wanted,) = view.overdue
        assert moves(view).take.keys() == {wanted}
        await self.step(theirs)
        assert (await theirs.view()).overdue == frozenset()
        assert list(await mine.renew()) == [wanted]

    async def test_wish_for_what_is_its_share_no_longer_is_taken_back(self, join: Joiner) -> None:
        """Its time does not count on: wanted again much later, it is handed over, not taken."""
        mine, theirs = await join(), await join()
        await mine.sync({"a": (), "b": ()})
        fences = await mine.take({"a": 0, "b": 0})
        assert await self.step(theirs)
        (wanted,) = moves(await mine.view()).hand_over
        (other,) = {"a", "b"} - {wanted}
        await mine.release({other: fences[other]})  # before it has looked
        await self.settle(theirs)
        assert (await self.lease(mine, wanted)).wanted_by is None
        await mine.want([other])
        await theirs.unwant([other, wanted, "unknown"])
        assert (await self.lease(mine, other)).wanted_by == mine.member
        await self.watch(join, theirs, mine)
        join.sleep(HANDOVER + DURATION)
        await theirs.want([wanted])
        assert (await theirs.view()).overdue == frozenset()

    async def test_new_owner_has_the_whole_time_to_hand_over(self, join: Joiner) -> None:
        """How long another owner did not let go does not count against it."""
        mine, theirs, third = await join(), await join(), await join()
        await mine.sync(self.parents)
        await self.taken(mine)
        await third.want(["a"])
        await third.view()
        join.sleep(HANDOVER + DURATION)
        await self.taken(theirs)
        await third.want(["a"])
        assert (await third.view()).overdue == frozenset()

    async def test_cancelled_take_can_be_made_again(self, join: Joiner) -> None:
        """Wherever it is cancelled: held it is not, and it is taken under a newer fence."""
        mine = await join()
        await mine.sync(self.parents)
        last = 0
        for turns in range(TURNS):
            seen = await self.lease(mine)
            task = asyncio.create_task(mine.take({"a": seen.fence}))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            await mine.release((await mine.view()).held)
            fence = await self.taken(mine)
            assert fence > last
            last = fence
            await mine.release({"a": fence})

    async def test_members_come_to_even_shares_and_then_to_rest(self, join: Joiner) -> None:
        """One has all, two more join, one leaves; nobody loses what it was not asked for."""
        first = await join()
        await first.sync({str(number): () for number in range(7)})
        await self.settle(first)
        second, third = await join(), await join()
        await self.settle(first, second, third)
        shares = [len((await each.view()).held) for each in (first, second, third)]
        assert sorted(shares) == [2, 2, 3]
        await second.aclose()
        await self.settle(first, third)
        assert sorted([len((await each.view()).held) for each in (first, third)]) == [3, 4]
