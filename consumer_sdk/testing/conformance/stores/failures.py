"""Cases about what goes wrong: cancelled calls, lost replies, outages, closing."""

from __future__ import annotations

import asyncio

import pytest

from consumer_sdk.abc import CheckpointStore, StoreItem
from consumer_sdk.errors import StoreError
from consumer_sdk.testing.conformance.stores.case import DURABLE, FENCED, RETRY, StoreCase

__all__ = ["FailureCases"]

TURNS = 6
"""Turns of the event loop after which a call is cancelled, at most."""


async def cancel_after(turns: int, task: asyncio.Task[object]) -> None:
    """Lets ``task`` get so far, then cancels it and waits for its end."""
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])


class FailureCases(StoreCase):
    """What a failure leaves behind."""

    async def test_cancelled_save_is_whole_and_the_next_one_wins(
        self, mine: CheckpointStore
    ) -> None:
        """Wherever it is cancelled, all or nothing is stored, and the next save stays."""
        assignment = await self.claimed(mine)
        await self.save(mine, (assignment, "start"))
        for turns in range(TURNS):
            before = await self.stored(mine)
            item = StoreItem(assignment, f"cancelled {turns}")
            task = asyncio.create_task(mine.save(self.group, [item]))
            await cancel_after(turns, task)
            assert await self.stored(mine) in (before, item.text)
            assert await self.save(mine, (assignment, f"next {turns}")) == [DURABLE]
            assert await self.stored(mine) == f"next {turns}"

    async def test_cancelled_save_comes_after_no_newer_one(self, mine: CheckpointStore) -> None:
        """A save that was cancelled in the air cannot land on one that was made after it."""
        assignment = await self.claimed(mine)
        task = asyncio.create_task(mine.save(self.group, [StoreItem(assignment, "older")]))
        await asyncio.sleep(0)
        task.cancel()
        assert await self.save(mine, (assignment, "newer")) == [DURABLE]
        await asyncio.wait([task])
        assert await self.stored(mine) == "newer"

    async def test_cancelled_save_cannot_land_after_a_takeover(
        self, mine: CheckpointStore, theirs: CheckpointStore
    ) -> None:
        """Once another process has claimed, nothing that is still in the air is written."""
        for turns in range(TURNS):
            old = await self.claimed(mine)
            task = asyncio.create_task(mine.save(self.group, [StoreItem(old, "late")]))
            for _ in range(turns):
                await asyncio.sleep(0)
            new = await self.claimed(theirs)
            seen = await self.stored(theirs)
            await cancel_after(0, task)
            assert await self.stored(theirs) == seen
            assert await self.save(theirs, (new, f"new {turns}")) == [DURABLE]
            assert await self.save(mine, (old, "later")) == [FENCED]

    async def test_cancelled_claim_can_be_made_again(self, mine: CheckpointStore) -> None:
        """A claim of which nobody knows whether it was granted is simply repeated."""
        for turns in range(TURNS):
            assignment = self.grant(fence=turns)
            task = asyncio.create_task(mine.claim(self.group, [assignment]))
            await cancel_after(turns, task)
            await mine.claim(self.group, [assignment])
            assert await self.save(mine, (assignment, "text")) == [DURABLE]

    async def test_saves_at_the_same_time_leave_the_last(self, mine: CheckpointStore) -> None:
        """Calls that overlap take effect in the order in which they were made."""
        assignment = await self.claimed(mine)
        saves = (self.save(mine, (assignment, str(number))) for number in range(20))
        assert await asyncio.gather(*saves) == [[DURABLE]] * 20
        assert await self.stored(mine) == "19"

    async def test_lost_reply_is_read_back_as_durable(self, mine: CheckpointStore) -> None:
        """Applied, reply lost: the stamp that is stored says so."""
        self.needs("lose_reply")
        assignment = await self.claimed(mine)
        self.place.lose_reply(mine)
        assert await self.save(mine, (assignment, "text")) == [DURABLE]
        assert await self.stored(mine) == "text"
        assert await self.save(mine, (assignment, "next")) == [DURABLE]

    async def test_lost_reply_of_a_stale_owner_is_read_back_as_fenced(
        self, mine: CheckpointStore, theirs: CheckpointStore
    ) -> None:
        """With the reply lost, the one partition that was taken over is FENCED all the same."""
        self.needs("lose_reply")
        lost, kept = await self.claimed(mine, "0"), await self.claimed(mine, "1")
        await self.claimed(theirs, "0")
        self.place.lose_reply(mine)
        assert await self.save(mine, (lost, "late"), (kept, "text")) == [FENCED, DURABLE]

    async def test_outage_of_a_save_is_retry_and_passes(self, mine: CheckpointStore) -> None:
        """Nothing is raised; each item says RETRY and why; afterwards the same claim can save."""
        self.needs("outage")
        grants = [await self.claimed(mine, id_) for id_ in "01"]
        await self.save(mine, *((a, "before") for a in grants))
        items = [StoreItem(a, "during") for a in (*grants, self.grant("9"))]
        async with self.place.outage(mine):
            outcomes = await mine.save(self.group, items)
        assert [outcome.kind for outcome in outcomes] == [RETRY, RETRY, FENCED]
        assert all(isinstance(outcome.error, StoreError) for outcome in outcomes)
        assert await self.save(mine, *((a, "after") for a in grants)) == [DURABLE] * 2
        assert [await self.stored(mine, id_) for id_ in "01"] == ["after", "after"]

    async def test_outage_of_a_claim_raises_and_passes(self, mine: CheckpointStore) -> None:
        """An unreadable store is never "no checkpoint"; afterwards the claim can be made."""
        self.needs("outage")
        owner = await self.claimed(mine)
        await self.save(mine, (owner, "text"))
        assignment = self.grant()
        async with self.place.outage(mine):
            with pytest.raises(StoreError):
                await mine.claim(self.group, [assignment])
        assert await mine.claim(self.group, [assignment]) == {assignment: "text"}
        assert await self.save(mine, (assignment, "on")) == [DURABLE]

    async def test_closing_twice_is_closing_once(self, mine: CheckpointStore) -> None:
        """Closing is idempotent, also of a store that was never opened."""
        await mine.aclose()
        await mine.aclose()
        await self.place.make_store().aclose()

    async def test_opening_twice_is_opening_once(self, mine: CheckpointStore) -> None:
        """A second open forgets no claim."""
        assignment = await self.claimed(mine)
        await mine.open()
        assert await self.save(mine, (assignment, "text")) == [DURABLE]

    async def test_closing_one_handle_leaves_the_others(
        self, mine: CheckpointStore, theirs: CheckpointStore
    ) -> None:
        """Another process's store goes on."""
        assignment = await self.claimed(theirs)
        await mine.aclose()
        assert await self.save(theirs, (assignment, "text")) == [DURABLE]

    async def test_closing_finishes_the_save_in_the_air(self, mine: CheckpointStore) -> None:
        """Closed while a save is under way: the save answers, and what it says is true."""
        assignment = await self.claimed(mine)
        saving = asyncio.create_task(self.save(mine, (assignment, "text")))
        await asyncio.sleep(0)
        await mine.aclose()
        (kind,) = await saving
        assert kind in (DURABLE, RETRY)
        later = self.place.make_store()
        await later.open()
        try:
            assert (await self.stored(later) == "text") or kind is RETRY
        finally:
            await later.aclose()
