"""Cases about partitions: listed, ended, gone, and made again."""

from __future__ import annotations

from consumer_sdk.abc import StoreItem
from consumer_sdk.records.balance import moves
from consumer_sdk.records.leases import Lease
from consumer_sdk.testing.conformance.lease_case import Joiner, LeaseCase

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
