"""Cases about partitions: listed, ended, gone, and made again."""

from __future__ import annotations

from consumer_sdk.abc import StoreItem
from consumer_sdk.leases.balance import moves
from consumer_sdk.records import Partition
from consumer_sdk.records.leases import Lease
from consumer_sdk.testing.conformance.leases.case import STEP, Joiner, LeaseCase

__all__ = ["PartitionCases"]


class PartitionCases(LeaseCase):
    """What there is to read."""

    async def test_listed_partitions_are_free_and_listed_again_change_nothing(
        self, join: Joiner
    ) -> None:
        """What several members list comes once, with its parents; no lease is touched by it."""
        mine, theirs = await join(), await join()
        await mine.sync({"a": (), "b": ("a",)})
        fence = await self.taken(mine)
        await theirs.sync({"a": (), "b": ("a",), "c": ()})
        assert (await theirs.view()).leases == {
            "a": Lease(owner=mine.member, fence=fence),
            "b": Lease(("a",)),
            "c": Lease(),
        }

    async def test_partitions_that_cannot_be_read_are_not_taken(self, join: Joiner) -> None:
        """Unknown, ended, or waiting for one of two parents."""
        mine = await join()
        await mine.sync({"a": (), "b": (), "child": ("a", "b"), "old": ()})
        fence = await self.taken(mine, "old")
        await mine.release({"old": fence}, ended=True)
        assert await mine.take({"unknown": 0, "child": 0, "old": fence}) == {}
        await mine.release({"a": await self.taken(mine, "a")}, ended=True)
        assert await mine.take({"child": 0}) == {}
        await mine.release({"b": await self.taken(mine, "b")}, ended=True)
        assert (await mine.take({"child": 0})).keys() == {"child"}

    async def test_ended_partition_stays_until_its_children_are_taken(self, join: Joiner) -> None:
        """The broker lists it no longer: it is kept while a child has not started."""
        mine = await join()
        await mine.sync({"a": (), "b": ()})
        await mine.release(await mine.take({"a": 0}), ended=True)
        listed = {"b": (), "x": ("a",), "y": ("a", "b")}
        await mine.sync(listed)
        assert await self.lease(mine) == Lease(fence=1, ended=True)
        await mine.release(await mine.take({"b": 0}), ended=True)
        await mine.take({"x": 0})
        await mine.sync(listed)
        assert (await mine.view()).leases.keys() == {"a", "b", "x", "y"}
        await mine.take({"y": 0})
        await mine.sync({"x": ("a",), "y": ("a", "b")})
        assert (await mine.view()).leases.keys() == {"x", "y"}
        assert list(await mine.renew()) == []

    async def test_partition_that_is_gone_unread_stays(self, join: Joiner) -> None:
        """What has not ended is never forgotten, listed or not: its owner says what was lost."""
        mine = await join()
        await mine.sync({"a": ()})
        await mine.sync({"x": ("a",)})
        assert moves(await mine.view()).take == {"a": 0}
        assert await mine.take({"x": 0}) == {}

    async def test_partition_that_comes_back_goes_on_with_the_fences(self, join: Joiner) -> None:
        """A checkpoint that knows the fences of before accepts the new owner."""
        mine = await join()
        await mine.sync({"a": ()})
        fence = await self.taken(mine)
        assert await self.claims(join, mine, fence)
        await mine.release({"a": fence}, ended=True)
        await mine.sync({"x": ()})
        await mine.sync({"a": ()})
        assert await self.claims(join, mine, await self.taken(mine))

    async def test_reopened_partition_has_not_ended_and_is_nobodys(self, join: Joiner) -> None:
        """It can be taken again, also from who held it, whose late end changes nothing."""
        mine, operator = await join(), await join(renews=False)
        await mine.sync(self.parents)
        fences = await mine.take({"a": 0, "b": 0, "c": 0})
        await mine.release({"a": fences["a"]}, ended=True)
        await operator.reopen(["a", "b", "unknown"])
        assert sorted(await mine.renew()) == ["b"]
        await mine.release({"b": fences["b"]}, ended=True)
        seen = (await operator.view()).leases
        assert [seen[p].ended for p in "abc"] == [False, False, False]
        assert [seen[p].owner for p in "abc"] == [None, None, mine.member]
        assert (await mine.take({"a": fences["a"], "b": fences["b"]})).keys() == {"a", "b"}
        await operator.reopen()
        assert sorted(await mine.renew()) == ["a", "b", "c"]

    async def test_partition_taken_from_its_owner_is_anybodys(self, join: Joiner) -> None:
        """The owner loses it, and can claim it no more once another one has; its late end is none."""
        mine, theirs, operator = await join(), await join(), await join(renews=False)
        await mine.sync(self.parents)
        fences = await mine.take({"a": 0, "b": 0})
        await theirs.want(["a"])
        assert list(await operator.evict({"a": fences["a"]})) == ["a"]
        lease = await self.lease(operator)
        assert (lease.owner, lease.wanted_by) == (None, theirs.member)
        assert (await theirs.take({"a": fences["a"]}))["a"] > max(fences.values())
        assert list(await mine.renew()) == ["a"]
        await mine.release({"a": fences["a"]}, ended=True)
        assert (await self.lease(operator)).owner == theirs.member
        assert (await mine.view()).held == {"b": fences["b"]}

    async def test_partition_that_has_changed_hands_is_not_taken_from_its_owner(
        self, join: Joiner
    ) -> None:
        """Whoever has looked before meant another one; nobody's, ended and unknown ones stay as well."""
        mine, operator = await join(), await join(renews=False)
        await mine.sync(self.parents)
        old, ended = await self.taken(mine), await self.taken(mine, "c")
        new = await self.taken(mine)
        await mine.release({"c": ended}, ended=True)
        before = (await operator.view()).leases
        assert list(await operator.evict({"a": old, "b": 0, "c": ended, "unknown": 1})) == []
        assert (await operator.view()).leases == before
        assert list(await mine.renew()) == []
        assert (await mine.view()).held == {"a": new}

    async def test_removed_leases_are_taken_again_under_higher_fences(self, join: Joiner) -> None:
        """Who held them has lost them, and can claim no checkpoint any more."""
        mine, operator = await join(), await join(renews=False)
        assert not await operator.clear()
        await mine.sync(self.parents)
        before = await self.taken(mine)
        assert await operator.clear()
        assert (await operator.view()).leases == {}
        assert list(await mine.renew()) == ["a"]
        await mine.sync(self.parents)
        assert await self.taken(mine) > before

    async def test_partition_whose_checkpoint_is_deleted_has_not_ended(self, join: Joiner) -> None:
        """A group that is started anew reads it again; other partitions stay as they are."""
        mine = await join()
        await mine.sync({"a": (), "b": ()})
        fences = await mine.take({"a": 0, "b": 0})
        assert await self.claims(join, mine, fences["a"])
        await mine.release(fences, ended=True)
        await join.stores[mine].delete("g", [Partition("s", "a"), Partition("other", "b")])
        ended = {p: lease.ended for p, lease in (await mine.view()).leases.items()}
        assert ended == {"a": False, "b": True}

    async def test_streams_with_leases_are_listed(self, join: Joiner) -> None:
        """Of this group alone, and in order."""
        mine = await join(stream="z/%")
        assert list(await join.stores[mine].leased_streams("g")) == []
        await mine.sync({"a": ()})
        for group, stream in (("g", "a"), ("other", "o")):
            await (await join(group=group, stream=stream)).sync({"a": ()})
        assert list(await join.stores[mine].leased_streams("g")) == ["a", "z/%"]

    async def test_lease_tells_since_when(self, join: Joiner) -> None:
        """Of its last take, release or end, by the clock of who did it; nothing depends on it."""
        mine = await join()
        await mine.sync({"a": ()})
        assert (await self.lease(mine)).since is None
        fence = await self.taken(mine)
        taken = join.clocks[mine].wall()
        join.sleep(STEP)
        await mine.want(["a"])
        assert (await self.lease(mine)).since == int(taken)
        await mine.release({"a": fence}, ended=True)
        assert (await self.lease(mine)).since == int(join.clocks[mine].wall())

    async def test_stream_made_again_starts_anew(self, join: Joiner) -> None:
        """The same partitions of another stream: nobody owns them, no end of before counts."""
        mine, theirs = await join(), await join()
        await mine.sync({"a": (), "b": ()}, identity="first")
        fences = await mine.take({"a": 0, "b": 0})
        await mine.release({"a": fences["a"]}, ended=True)
        for identity in (None, "first"):
            await theirs.sync({"a": (), "b": ()}, identity=identity)
        assert list(await mine.renew()) == []
        await theirs.sync({"a": (), "b": ()}, identity="second")
        assert (await theirs.view()).leases == {"a": Lease(), "b": Lease()}
        assert list(await mine.renew()) == ["b"]
        assert min((await theirs.take({"a": 0, "b": 0})).values()) > max(fences.values())

    async def test_leases_are_no_checkpoints(self, join: Joiner) -> None:
        """A store lists what was claimed, whatever else it keeps for the group."""
        mine = await join()
        await mine.sync(self.parents)
        fence = await self.taken(mine)
        store = join.stores[mine]
        assert list(await store.list("g")) == []
        assignment = await self.claims(join, mine, fence)
        assert assignment is not None
        await store.save("g", [StoreItem(assignment, "text")])
        assert list(await store.list("g")) == [assignment.partition]
