"""Cases about owners: a former one can never overwrite, whatever is late or deleted."""

from __future__ import annotations

import asyncio

from consumer_sdk.abc import CheckpointStore, StoreItem
from consumer_sdk.errors import FencedError, TransientStoreError
from consumer_sdk.records import Outcome
from consumer_sdk.testing.conformance.stores.case import DURABLE, FENCED, RETRY, StoreCase

__all__ = ["FencingCases"]


class FencingCases(StoreCase):
    """Who may write."""

    async def test_unclaimed_partition_cannot_be_saved(self, mine: CheckpointStore) -> None:
        """A save without a claim is FENCED, and writes nothing."""
        outcomes = await mine.save(self.group, [StoreItem(self.grant(), "text")])
        assert [outcome.kind for outcome in outcomes] == [FENCED]
        assert isinstance(outcomes[0].error, FencedError)
        assert await self.stored(mine) is None

    async def test_claim_of_another_group_does_not_count(self, mine: CheckpointStore) -> None:
        """A claim is of a partition *in a group*."""
        assignment = await self.claimed(mine)
        outcomes = await mine.save("other", [StoreItem(assignment, "text")])
        assert [outcome.kind for outcome in outcomes] == [FENCED]

    async def test_last_claimer_wins_without_fences(
        self, mine: CheckpointStore, theirs: CheckpointStore
    ) -> None:
        """None takes over; the one before is FENCED from then on, and its text stays readable."""
        old = await self.claimed(mine)
        await self.save(mine, (old, "old"))
        new = await self.claimed(theirs)
        assert await self.save(mine, (old, "late")) == [FENCED]
        assert await self.stored(mine) == "old"
        assert await self.save(theirs, (new, "new")) == [DURABLE]
        assert await self.save(mine, (old, "later")) == [FENCED]
        assert await self.stored(mine) == "new"

    async def test_fenced_owner_stays_fenced(
        self, mine: CheckpointStore, theirs: CheckpointStore
    ) -> None:
        """Trying again does not help, whatever the first try has told the store."""
        old = await self.claimed(mine)
        await self.claimed(theirs)
        for _ in range(3):
            assert await self.save(mine, (old, "late")) == [FENCED]
        assert await self.stored(mine) is None

    async def test_newer_epoch_of_one_store_fences_the_older(self, mine: CheckpointStore) -> None:
        """In one process too: a new assignment of a partition ends the writes of the old one."""
        old = await self.claimed(mine)
        new = await self.claimed(mine)
        assert await self.save(mine, (old, "late"), (new, "new")) == [FENCED, DURABLE]
        assert await self.stored(mine) == "new"

    async def test_two_claims_of_one_call_are_two_owners(self, mine: CheckpointStore) -> None:
        """Old and new assignment in one claim: one of them alone can write."""
        both = [self.grant(), self.grant()]
        await mine.claim(self.group, both)
        assert await self.save(mine, (both[0], "a"), (both[1], "b")) == [FENCED, DURABLE]

    async def test_stale_owner_is_fenced_alone(
        self, mine: CheckpointStore, theirs: CheckpointStore
    ) -> None:
        """One lost partition does not hold up the others of the same save."""
        grants = [await self.claimed(mine, str(number)) for number in range(3)]
        await self.claimed(theirs, "1")
        outcomes = await self.save(mine, *((a, f"text {a.partition.id}") for a in grants))
        assert outcomes == [DURABLE, FENCED, DURABLE]
        assert [await self.stored(mine, n) for n in "012"] == ["text 0", None, "text 2"]

    async def test_stale_owners_in_a_large_save_are_fenced_alone(
        self, mine: CheckpointStore, theirs: CheckpointStore
    ) -> None:
        """Several lost partitions among a thousand: each is found, all the others are written."""
        grants = [self.grant(str(number)) for number in range(1000)]
        await mine.claim(self.group, grants)
        lost = {0, 333, 334, 999}
        await theirs.claim(self.group, [self.grant(str(number)) for number in lost])
        outcomes = await self.save(mine, *((a, f"text {a.partition.id}") for a in grants))
        assert {n for n, kind in enumerate(outcomes) if kind is FENCED} == lost
        assert outcomes.count(DURABLE) == len(grants) - len(lost)
        found = await mine.peek(self.group, [a.partition for a in grants])
        texts = [None if number in lost else f"text {number}" for number in range(1000)]
        assert list(found.values()) == texts

    async def test_claims_at_the_same_time_leave_one_owner(
        self, mine: CheckpointStore, theirs: CheckpointStore
    ) -> None:
        """Two that start together both read the checkpoint, and one of them can write."""
        for turn in range(10):
            owners = [(store, self.grant()) for store in (mine, theirs)]
            await asyncio.gather(*(store.claim(self.group, [a]) for store, a in owners))
            saves = (self.save(store, (a, f"{turn} of {store}")) for store, a in owners)
            kinds = [kind for (kind,) in await asyncio.gather(*saves)]
            assert {DURABLE, FENCED} == set(kinds)
            winner, _ = owners[kinds.index(DURABLE)]
            assert await self.stored(mine) == f"{turn} of {winner}"

    async def test_claim_in_the_middle_of_saves_reads_the_last_one(
        self, mine: CheckpointStore, theirs: CheckpointStore
    ) -> None:
        """What was DURABLE before a takeover is what the successor starts from."""
        assignment, durable = await self.claimed(mine), 0
        await self.save(mine, (assignment, str(durable)))
        takeover = asyncio.create_task(self.take_over_later(theirs))
        for number in range(1, 1000):
            (kind,) = await self.save(mine, (assignment, str(number)))
            if kind is not DURABLE:  # FENCED, or it is not known whether it was written
                break
            durable = number
        assert await takeover in (str(durable), str(number) if kind is RETRY else None)

    async def take_over_later(self, store: CheckpointStore) -> str | None:
        """What a claim reads that is made a few turns of the event loop later.

        One that does not get its turn is made again, as a consumer does.
        """
        for _ in range(50):
            await asyncio.sleep(0)
        while True:
            assignment = self.grant()
            try:
                text = (await store.claim(self.group, [assignment]))[assignment]
            except TransientStoreError:
                continue
            assert not isinstance(text, Outcome)
            return text

    async def test_older_fence_is_refused_and_changes_nothing(
        self, mine: CheckpointStore, theirs: CheckpointStore
    ) -> None:
        """A claim with a smaller fence is FENCED; the owner goes on writing."""
        owner = await self.claimed(mine, fence=7)
        assert await self.refused(theirs, fence=6)
        assert await self.save(mine, (owner, "text")) == [DURABLE]

    async def test_refused_claim_cannot_save(
        self, mine: CheckpointStore, theirs: CheckpointStore
    ) -> None:
        """An assignment whose claim was FENCED stays without a say."""
        await self.claimed(mine, fence=7)
        late = self.grant(fence=6)
        await theirs.claim(self.group, [late])
        assert await self.save(theirs, (late, "late")) == [FENCED]

    async def test_refused_claim_does_not_hold_up_the_others(
        self, mine: CheckpointStore, theirs: CheckpointStore
    ) -> None:
        """One answer for each assignment: text, None or FENCED, side by side."""
        saved = await self.claimed(mine, "0", fence=1)
        await self.save(mine, (saved, "text"))
        await self.claimed(mine, "1", fence=9)
        grants = [self.grant(id_, fence=2) for id_ in "012"]
        answer = await theirs.claim(self.group, grants)
        assert [answer[grants[0]], answer[grants[2]]] == ["text", None]
        assert getattr(answer[grants[1]], "kind", None) is FENCED
        outcomes = await self.save(theirs, *((a, "new") for a in grants))
        assert outcomes == [DURABLE, FENCED, DURABLE]

    async def test_newer_fence_takes_over(
        self, mine: CheckpointStore, theirs: CheckpointStore
    ) -> None:
        """A larger fence wins, and the owner before can neither write nor claim again."""
        old = await self.claimed(mine, fence=7)
        new = await self.claimed(theirs, fence=8)
        assert await self.save(mine, (old, "late")) == [FENCED]
        assert await self.refused(mine, fence=7)
        assert await self.save(theirs, (new, "new")) == [DURABLE]

    async def test_equal_fence_is_granted(self, mine: CheckpointStore) -> None:
        """A claim is repeated when its reply was lost, and a seek is a new epoch of one lease."""
        old = await self.claimed(mine, fence=7)
        new = await self.claimed(mine, fence=7)
        assert await self.save(mine, (old, "late"), (new, "new")) == [FENCED, DURABLE]

    async def test_no_fence_takes_over_and_keeps_older_leases_out(
        self, mine: CheckpointStore, theirs: CheckpointStore
    ) -> None:
        """None over a fence: granted, but the stored fence does not go back."""
        old = await self.claimed(mine, fence=7)
        new = await self.claimed(theirs)
        assert await self.save(mine, (old, "late")) == [FENCED]
        assert await self.refused(mine, fence=6)
        assert await self.save(theirs, (new, "new")) == [DURABLE]
        assert not await self.refused(mine, fence=7)

    async def test_fence_may_follow_none(
        self, mine: CheckpointStore, theirs: CheckpointStore
    ) -> None:
        """Where no fence is stored, any fence takes over."""
        old = await self.claimed(mine)
        new = await self.claimed(theirs, fence=0)
        assert await self.save(mine, (old, "late")) == [FENCED]
        assert await self.save(theirs, (new, "new")) == [DURABLE]

    async def test_peek_claims_nothing(
        self, mine: CheckpointStore, theirs: CheckpointStore
    ) -> None:
        """Reading disturbs no owner."""
        assignment = await self.claimed(mine)
        await self.save(mine, (assignment, "one"))
        assert await self.stored(theirs) == "one"
        assert await self.save(mine, (assignment, "two")) == [DURABLE]

    async def test_forgotten_claim_is_fenced(
        self, mine: CheckpointStore, theirs: CheckpointStore
    ) -> None:
        """After forget no save of that assignment succeeds; other owners are not touched."""
        forgotten, kept = await self.claimed(mine, "0"), await self.claimed(mine, "1")
        other = await self.claimed(theirs, "2")
        await mine.forget([forgotten, other, self.grant()])
        outcomes = await self.save(mine, (forgotten, "late"), (kept, "text"))
        assert outcomes == [FENCED, DURABLE]
        assert await self.save(theirs, (other, "text")) == [DURABLE]

    async def test_claim_that_is_forgotten_during_a_save_is_told(
        self, mine: CheckpointStore
    ) -> None:
        """Saves that are under way end with an outcome, those after it are FENCED."""
        assignment = await self.claimed(mine)
        saves = [asyncio.create_task(self.save(mine, (assignment, str(n)))) for n in range(5)]
        await asyncio.sleep(0)
        await mine.forget([assignment])
        kinds = [kind for (kind,) in await asyncio.gather(*saves)]
        assert set(kinds) <= {DURABLE, FENCED}
        assert await self.save(mine, (assignment, "later")) == [FENCED]

    async def test_deleted_checkpoint_stays_deleted(
        self, mine: CheckpointStore, theirs: CheckpointStore
    ) -> None:
        """A tombstone: the owner of before cannot bring it back, neither by save nor late."""
        owner, kept = await self.claimed(mine, "0"), await self.claimed(mine, "1")
        await self.save(mine, (owner, "text"), (kept, "kept"))
        await theirs.delete(self.group, [owner.partition, self.grant("9").partition])
        assert await self.save(mine, (owner, "late"), (kept, "on")) == [FENCED, DURABLE]
        assert await self.stored(mine, "0") is None
        assert list(await mine.list(self.group)) == [kept.partition]

    async def test_purged_checkpoint_is_gone_with_its_fence(
        self, mine: CheckpointStore, theirs: CheckpointStore
    ) -> None:
        """The owner of before cannot bring it back. What was written since it was read stays."""
        owner, other = await self.claimed(mine, "0", fence=7), await self.claimed(mine, "1")
        await self.save(mine, (owner, "text"), (other, "newer"))
        gone = {owner.partition: "text", other.partition: "older", self.grant("9").partition: "x"}
        await theirs.purge(self.group, gone)
        assert list(await mine.list(self.group)) == [other.partition]
        assert await self.save(mine, (owner, "late"), (other, "on")) == [FENCED, DURABLE]
        again = self.grant("0", fence=1)
        assert await theirs.claim(self.group, [again]) == {again: None}

    async def test_tombstone_keeps_the_fence(
        self, mine: CheckpointStore, theirs: CheckpointStore
    ) -> None:
        """After a delete an older lease is refused; a current one starts without a checkpoint."""
        owner = await self.claimed(mine, fence=7)
        await self.save(mine, (owner, "text"))
        await theirs.delete(self.group, [owner.partition])
        assert await self.refused(theirs, fence=6)
        again = self.grant(fence=7)
        assert await theirs.claim(self.group, [again]) == {again: None}
        assert await self.save(theirs, (again, "new")) == [DURABLE]
        assert await self.stored(mine) == "new"
