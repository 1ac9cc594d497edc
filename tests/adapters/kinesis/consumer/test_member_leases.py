"""What a member writes into the leases: what it releases, ends and leaves alone, and how often it asks."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import pytest

from consumer_sdk.abc import Leases
from consumer_sdk.adapters.kinesis.consumer.membership import RETRY
from consumer_sdk.errors import StoreError, TransientStoreError
from consumer_sdk.records import AckFlush, Assignment, Checkpoint, Lease, OutcomeKind
from tests.adapters.kinesis.harness import shard_id
from tests.adapters.kinesis.stage import SHARD, Actor, Stage, play

T = TypeVar("T")

TWO = [shard_id(0), shard_id(1)]


def leases_of(member: Actor) -> Leases:
    """Those that it is a member of."""
    return member.adapter._session.membership._leases


async def stored(stage: Stage) -> Mapping[str, Lease]:
    """All leases, as somebody else sees them."""
    other = stage.store.handle().leases("g", "s", duration=10, handover=30)
    return (await other.view()).leases


def end_of(assignment: Assignment) -> AckFlush:
    """All of it is settled."""
    return AckFlush(assignment, 1, Checkpoint(ended=True))


def count_calls(member: Actor, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The seams of the calls that its store gets from now on."""
    calls: list[str] = []
    around = member.store_faults.around

    async def count(seam: str, call: Callable[[], Awaitable[T]], *rest: Any) -> T:
        calls.append(seam)
        return await around(seam, call, *rest)

    monkeypatch.setattr(member.store_faults, "around", count)
    return calls


# -- leaving ------------------------------------------------------------------------------------


def test_shard_taken_while_the_member_leaves_is_released_and_not_granted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reply to the take comes in the middle of the last drain; nobody takes the shard by force."""

    async def test(stage: Stage) -> None:
        member = await stage.member()
        await member.holding(*TWO)
        take, fence = leases_of(member).take, (await stored(stage))[SHARD].fence

        async def late(seen: Mapping[str, int]) -> Mapping[str, int]:
            taken = await take(seen)
            await asyncio.sleep(2 if taken else 0)
            return taken

        monkeypatch.setattr(leases_of(member), "take", late)
        member.adapter.drop(member.assignment())
        for _ in range(100):
            if (await stored(stage))[SHARD].fence > fence:
                break
            await asyncio.sleep(0.05)
        before = len(stage.journal.of("assigned"))
        member.owner.on_revoked = lambda _: asyncio.sleep(5)
        monkeypatch.setattr(leases_of(member), "aclose", lambda: asyncio.sleep(0))
        await member.adapter.aclose()
        assert len(stage.journal.of("assigned")) == before
        assert [lease.owner for lease in (await stored(stage)).values()] == [None, None]

    play(test, shards=2)


def test_handover_that_is_under_way_ends_before_the_member_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is drained to its end, once, and its lease is released."""

    async def test(stage: Stage) -> None:
        first = await stage.member()
        await first.holding(*TWO)
        drained: list[Assignment] = []

        async def drain(assignments: Sequence[Assignment]) -> None:
            await asyncio.sleep(10 if len(stage.journal.of("revoked")) == 1 else 1)
            drained.extend(assignments)

        first.owner.on_revoked = drain
        await stage.member()
        await stage.journal.until(lambda: bool(stage.journal.of("revoked")), "a handover")
        leases = leases_of(first)
        monkeypatch.setattr(leases, "aclose", lambda: asyncio.sleep(0))
        await first.adapter.aclose()
        assert sorted(each.partition.id for each in drained) == TWO
        owners = [lease.owner for lease in (await stored(stage)).values()]
        assert leases.member not in owners

    play(test, shards=2)


# -- ending -------------------------------------------------------------------------------------


def test_shard_is_not_taken_while_its_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the lease it is still ours, and read by nobody; see `Membership.end`."""

    async def test(stage: Stage) -> None:
        member = await stage.member()
        await member.holding(SHARD)
        asked: list[str] = []
        leases = leases_of(member)
        take, release = leases.take, leases.release

        async def ask(seen: Mapping[str, int]) -> Mapping[str, int]:
            asked.extend(seen)
            return await take(seen)

        async def slow(held: Mapping[str, int], *, ended: bool = False) -> None:
            leases._drop(held)  # type: ignore[attr-defined]
            await asyncio.sleep(5)
            await release(held, ended=ended)

        monkeypatch.setattr(leases, "take", ask)
        monkeypatch.setattr(leases, "release", slow)
        (outcome,) = await member.adapter.commit([end_of(member.assignment())])
        assert (outcome.kind, asked) == (OutcomeKind.DURABLE, [])
        assert (await stored(stage))[SHARD].ended

    play(test)


def test_shard_whose_end_cannot_be_told_comes_back_later_each_time() -> None:
    """A store that takes no writes is not asked for more in a tight loop."""

    async def test(stage: Stage) -> None:
        member = await stage.member()
        times: list[float] = []
        for _ in range(6):
            await member.holding(SHARD)
            times.append(asyncio.get_running_loop().time())
            member.store_faults.fail_next("lease_write")
            (outcome,) = await member.adapter.commit([end_of(member.assignment())])
            assert outcome.kind is OutcomeKind.RETRY
            await member.holding(SHARD)
        waits = [b - a for a, b in pairwise(times)]
        assert waits[-1] > 2 * waits[0]

    play(test)


def test_end_that_gets_no_answer_is_no_end() -> None:
    """It is given up when the lease is over, and tried again: the children wait for it."""

    async def test(stage: Stage) -> None:
        member = await stage.member()
        await member.holding(SHARD)
        member.store_faults.die()
        before = asyncio.get_running_loop().time()
        (outcome,) = await member.adapter.commit([end_of(member.assignment())])
        assert outcome.kind is OutcomeKind.RETRY
        assert asyncio.get_running_loop().time() - before == pytest.approx(10.0)

    play(test)


@pytest.mark.parametrize("error", [StoreError("broken"), TransientStoreError("down")])
def test_error_of_an_end_is_the_stores_own(
    error: StoreError, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that does not pass is not told as one that does."""

    async def test(stage: Stage) -> None:
        member = await stage.member()
        await member.holding(SHARD)

        async def fail(held: Mapping[str, int], *, ended: bool = False) -> None:
            assert (list(held), ended) == ([SHARD], True)
            raise error

        membership = member.adapter._session.membership
        with monkeypatch.context() as patch:
            patch.setattr(leases_of(member), "release", fail)
            with pytest.raises(StoreError) as raised:
                await membership.end(list(membership.grants))
        assert raised.value is error

    play(test)


# -- taking anew, and giving back -----------------------------------------------------------------


def test_older_epoch_of_a_shard_that_is_taken_anew_is_told_as_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leases knew of the loss before the member did."""

    async def test(stage: Stage) -> None:
        member = await stage.member()
        await member.holding(SHARD)
        old, take = member.assignment(), leases_of(member).take

        async def anew(seen: Mapping[str, int]) -> Mapping[str, int]:
            monkeypatch.setattr(leases_of(member), "take", take)
            return await take({SHARD: old.fence or 0} | dict(seen))

        monkeypatch.setattr(leases_of(member), "take", anew)
        member.adapter._session.membership.nudge()
        await stage.journal.until(lambda: bool(stage.journal.of("lost")), "the loss")
        (event,) = stage.journal.of("lost")
        assert list(event.assignments) == [old]
        await member.holding(SHARD)
        assert (member.assignment().fence or 0) > (old.fence or 0)

    play(test)


def test_shard_that_is_declined_is_asked_for_again_soon() -> None:
    """After its own short pause, and not after a third of the lease."""

    async def test(stage: Stage) -> None:
        member = stage.actor()
        member.owner.left_out = frozenset({SHARD})
        await member.open()
        loop = asyncio.get_running_loop()
        await stage.journal.until(lambda: len(stage.journal.of("assigned")) == 1, "a question")
        before = loop.time()
        await stage.journal.until(lambda: len(stage.journal.of("assigned")) == 2, "another")
        assert loop.time() - before < 1.0

    play(test)


def test_shard_that_is_lost_is_read_no_more() -> None:
    """Its reader ends with it; else there would be two when the shard comes back."""

    async def test(stage: Stage) -> None:
        member = await stage.member()
        await member.holding(SHARD)
        readers = member.adapter._session._readers
        await member.fetch(1.0)
        (reader,) = readers.values()
        member.adapter.drop(member.assignment())
        assert not readers
        await asyncio.sleep(0)
        assert reader.cancelled() or reader.cancelling()

    play(test)


# -- how often it asks --------------------------------------------------------------------------


def test_leases_are_held_for_their_duration_from_the_last_renewal() -> None:
    """Before the first one nothing is held, and nothing can run out."""

    async def test(stage: Stage) -> None:
        member = stage.actor()
        member.store_faults.fail_next("lease_renew", times=3)
        await member.open()
        assert member.adapter.held_until() == math.inf
        await member.holding(SHARD)
        loop = asyncio.get_running_loop()
        for _ in range(10):
            assert loop.time() + 10 * 2 / 3 - 0.1 <= member.adapter.held_until() <= loop.time() + 10
            await asyncio.sleep(1.0)

    play(test)


def test_lease_is_renewed_three_times_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two renewals may fail; more of them would be load without need."""

    async def test(stage: Stage) -> None:
        member = await stage.member()
        await member.holding(SHARD)
        await asyncio.sleep(5)
        calls = count_calls(member, monkeypatch)
        await asyncio.sleep(50)
        assert 14 <= calls.count("lease_renew") <= 16

    play(test)


@pytest.mark.parametrize("seam", ["lease_renew", "lease_read"])
def test_store_that_fails_is_asked_again_after_a_pause(
    seam: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in a tight loop."""

    async def test(stage: Stage) -> None:
        member = await stage.member()
        await member.holding(SHARD)
        calls = count_calls(member, monkeypatch)
        member.store_faults.fail_next(seam, times=1000)
        await asyncio.sleep(8)
        assert 5 <= calls.count(seam) <= 4 * 8 / RETRY

    play(test)
