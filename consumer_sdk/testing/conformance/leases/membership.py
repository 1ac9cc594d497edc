"""Cases about members: who is alive, who has died, who has given up; and what they hear of."""

from __future__ import annotations

import asyncio

import pytest

from consumer_sdk.errors import ConfigurationError, ConsumerClosedError, TransientStoreError
from consumer_sdk.leases.balance import moves
from consumer_sdk.testing.conformance.leases.case import DURATION, STEP, Joiner, LeaseCase

__all__ = ["MembershipCases"]

PATIENCE = 10.0
"""Seconds that news may take."""


class MembershipCases(LeaseCase):
    """Who is there."""

    async def test_member_joins_with_its_first_renewal(self, join: Joiner) -> None:
        """Before that it is no member, and has nothing to do."""
        mine = await join()
        await mine.sync(self.parents)
        late = await join(renews=False)
        assert (await late.view()).members == {mine.member}
        assert moves(await late.view()).take == {}
        await late.renew()
        assert (await mine.view()).members == {mine.member, late.member}

    async def test_names_are_unique(self, join: Joiner) -> None:
        """Nobody is taken for somebody who was there before."""
        names = [(await join(renews=False)).member for _ in range(5)]
        assert len(set(names)) == len(names)

    async def test_groups_and_streams_are_apart(self, join: Joiner) -> None:
        """Another group, or another stream of the group, has leases and members of its own."""
        mine = await join()
        await mine.sync(self.parents)
        await self.taken(mine)
        for other in (await join(group="other"), await join(stream="other")):
            view = await other.view()
            assert (set(view.members), dict(view.leases)) == ({other.member}, {})

    async def test_member_with_a_limit_has_no_more_and_the_others_have_the_rest(
        self, join: Joiner
    ) -> None:
        """Everybody knows the limit, also of a member that came later."""
        mine = await join()
        await mine.sync(dict.fromkeys("abcdef", ()))
        await self.settle(mine)
        assert len((await mine.view()).held) == len("abcdef")
        small, large = await join(most=1), await join()
        await self.settle(mine, small, large)
        counts = [len((await each.view()).held) for each in (mine, small, large)]
        assert sorted(counts) == [1, 2, 3]
        assert counts[1] == 1

    async def test_member_of_twice_the_weight_has_twice_as_many(self, join: Joiner) -> None:
        """Everybody knows the weight, also of a member that came later; a limit counts beside it."""
        mine = await join()
        await mine.sync(dict.fromkeys("abcdef", ()))
        await self.settle(mine)
        heavy = await join(weight=2)
        await self.settle(mine, heavy)
        counts = [len((await each.view()).held) for each in (mine, heavy)]
        assert counts == [2, 4]
        full = await join(weight=9, most=1)
        await self.settle(mine, heavy, full)
        assert len((await full.view()).held) == 1

    async def test_silent_member_dies_and_its_partitions_are_taken(self, join: Joiner) -> None:
        """Nobody was told: the others have seen no renewal for as long as a lease lasts."""
        mine, theirs = await join(), await join()
        await mine.sync({"a": ()})
        await self.taken(mine)
        await theirs.view()
        join.sleep(STEP)
        assert mine.member in (await theirs.view()).members
        await self.watch(join, theirs)
        view = await theirs.view()
        assert view.members == {theirs.member}
        assert (await theirs.take(moves(view).take)).keys() == {"a"}

    async def test_partitions_of_the_dead_go_to_who_was_seen_alive(self, join: Joiner) -> None:
        """Two die one after the other: nothing waits for the second, who has not been missed yet."""
        mine, first, second = await join(), await join(), await join()
        await mine.sync({"a": (), "b": (), "c": (), "d": ()})
        await first.take(dict.fromkeys("abcd", 0))
        await mine.view()
        for renewing in [(mine, second)] * 2 + [(mine,)] * 2:
            join.sleep(STEP)
            for each in renewing:
                await each.renew()
            view = await mine.view()
        assert view.members == {mine.member, second.member}
        assert view.silent == {second.member}
        assert moves(view).take.keys() == set("abcd")

    async def test_member_that_renews_is_not_silent(self, join: Joiner) -> None:
        """As soon as it was seen to; its own counts at once."""
        mine, theirs = await join(), await join()
        assert (await mine.view()).silent == {theirs.member}
        for _ in range(6):
            join.sleep(STEP)
            await mine.renew()
            await theirs.renew()
            assert (await mine.view()).silent == frozenset()

    async def test_member_that_renews_lives(self, join: Joiner) -> None:
        """However long it goes on, and however far the clocks are apart."""
        mine, theirs = await join(), await join()
        for _ in range(3):
            await self.watch(join, theirs, mine)
            assert (await theirs.view()).members == {mine.member, theirs.member}

    async def test_member_back_from_the_dead_lives_and_has_lost(self, join: Joiner) -> None:
        """What was taken is lost; what nobody took is its own still."""
        mine, theirs = await join(), await join()
        await mine.sync(self.parents)
        fence = await self.taken(mine)
        await self.taken(mine, "b")
        await self.watch(join, theirs)
        await self.taken(theirs, "b")
        assert list(await mine.renew()) == ["b"]
        assert (await mine.view()).held == {"a": fence}
        assert (await theirs.view()).members == {mine.member, theirs.member}

    async def test_observer_that_slept_takes_nobody_for_dead(self, join: Joiner) -> None:
        """An hour in which it did not look says nothing about the others."""
        mine, theirs = await join(), await join()
        await theirs.view()
        join.clocks[theirs].now += 3600
        await theirs.renew()
        assert (await theirs.view()).members == {mine.member, theirs.member}
        await mine.renew()
        await self.watch(join, theirs, mine)
        assert (await theirs.view()).members == {mine.member, theirs.member}

    async def test_newcomer_takes_nobody_for_dead(self, join: Joiner) -> None:
        """It has to watch for itself; a dead member's partitions are free after that."""
        mine = await join()
        await mine.sync({"a": ()})
        await self.taken(mine)
        join.sleep(100 * DURATION)
        theirs = await join()
        assert mine.member in (await theirs.view()).members
        await self.watch(join, theirs)
        assert moves(await theirs.view()).take.keys() == {"a"}

    async def test_member_in_an_outage_gives_up_in_time(self, join: Joiner) -> None:
        """Until its leases may have run out it only says so; then all are lost, and it is told.

        When the store is back, they are still there for it to take.
        """
        self.needs("outage")
        mine = await join()
        await mine.sync({"a": (), "b": ()})
        await mine.take({"a": 0, "b": 0})
        async with self.place.outage(join.stores[mine]):
            with pytest.raises(TransientStoreError):
                await mine.renew()
            join.sleep(DURATION)
            assert sorted(await mine.renew()) == ["a", "b"]
            with pytest.raises(TransientStoreError):
                await mine.renew()
        await mine.renew()
        view = await mine.view()
        assert view.held == {}
        assert (await mine.take(moves(view).take)).keys() == {"a", "b"}

    async def test_member_that_was_stopped_asks_before_it_gives_up(self, join: Joiner) -> None:
        """Nobody noticed that it slept: it has lost nothing."""
        mine = await join()
        await mine.sync(self.parents)
        fence = await self.taken(mine)
        join.sleep(100 * DURATION)
        assert list(await mine.renew()) == []
        assert (await mine.view()).held == {"a": fence}

    async def test_outage_changes_nothing_and_passes(self, join: Joiner) -> None:
        """Every change raises what is tried again; a release counts for its member at once."""
        self.needs("outage")
        mine = await join()
        await mine.sync(self.parents)
        fence = await self.taken(mine)
        async with self.place.outage(join.stores[mine]):
            for change in (
                mine.sync({"z": ()}),
                mine.take({"b": 0}),
                mine.release({"a": fence}),
            ):
                with pytest.raises(TransientStoreError):
                    await change
        view = await mine.view()
        assert view.held == {}
        assert view.leases.keys() == {"a", "b", "c"}
        await mine.release({"a": fence})
        assert (await self.lease(mine)).owner is None

    async def test_member_that_closes_leaves_nothing_behind(self, join: Joiner) -> None:
        """Its partitions are free at once, for who looks next."""
        mine, theirs = await join(), await join()
        await mine.sync({"a": (), "b": ()})
        await mine.take({"a": 0, "b": 0})
        await mine.aclose()
        await mine.aclose()
        view = await theirs.view()
        assert view.members == {theirs.member}
        assert {lease.owner for lease in view.leases.values()} == {None}
        assert moves(view).take.keys() == {"a", "b"}

    async def test_closing_is_bounded_and_silent_in_an_outage(self, join: Joiner) -> None:
        """The others will find out."""
        self.needs("outage")
        mine, theirs = await join(), await join()
        await mine.sync(self.parents)
        await self.taken(mine)
        async with self.place.outage(join.stores[mine]):
            await mine.aclose()
        assert (await self.lease(theirs)).owner == mine.member

    async def test_use_after_closing_is_an_error(self, join: Joiner) -> None:
        """A member that has left cannot come back."""
        mine = await join()
        await mine.aclose()
        for call in (mine.renew(), mine.view(), mine.sync({}), mine.changed(0)):
            with pytest.raises(ConsumerClosedError):
                await call

    async def test_news_ends_the_wait(self, join: Joiner) -> None:
        """A partition, an owner, a wish, an end, a member that comes and one that goes."""
        mine, theirs = await join(), await join()
        third = await join(renews=False)
        assert await mine.changed(PATIENCE)
        for news in (
            lambda: theirs.sync({"a": ()}),
            lambda: theirs.take({"a": 0}),
            lambda: third.want(["a"]),
            lambda: theirs.release({"a": 1}, ended=True),
            third.renew,
            third.aclose,
        ):
            await mine.view()
            assert not await mine.changed(0)
            waiting = asyncio.create_task(mine.changed(PATIENCE))
            await asyncio.sleep(0)
            await news()
            assert await waiting

    async def test_own_renewals_are_no_news(self, join: Joiner) -> None:
        """Nor are those of others: a quiet group does not wake up for them."""
        mine, theirs = await join(), await join()
        await mine.view()
        await mine.renew()
        await theirs.renew()
        assert not await mine.changed(0.01)

    async def test_times_that_cannot_work_are_refused(self, join: Joiner) -> None:
        """Said when the leases are made."""
        store = join.stores[await join()]
        for duration, handover in ((0.0, 1.0), (1.0, -1.0), (float("nan"), 1.0), (1.0, 1e999)):
            with pytest.raises(ConfigurationError):
                store.leases("g", "s", duration=duration, handover=handover)
