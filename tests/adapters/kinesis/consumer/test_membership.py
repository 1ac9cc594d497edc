"""Members of a group: who holds what, when they come, go, stop, die and lose the store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from consumer_sdk import Message
from consumer_sdk.abc import Leases, LeaseSource
from consumer_sdk.records import AckFlush, Assignment, Checkpoint, OutcomeKind, StartPoint
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing.conformance.adapters.harness import RecordingOwner
from tests.adapters.kinesis.harness import shard_id
from tests.adapters.kinesis.stage import SHARD, Actor, Stage, play, text_of
from tests.testing.kinesis.clock import HandClock


def all_held(*members: Actor) -> list[str]:
    """What they hold together; a shard that two hold is in it twice."""
    return sorted(shard for member in members for shard in member.held)


def shards(count: int) -> list[str]:
    """The first ids."""
    return [shard_id(each) for each in range(count)]


async def balanced(stage: Stage, *members: Actor) -> None:
    """Waits until they share all shards evenly."""
    count = len(stage.kinesis.shards("s"))

    def is_even() -> bool:
        sizes = [len(member.held) for member in members]
        return all_held(*members) == shards(count) and max(sizes) - min(sizes) <= 1

    await stage.journal.until(is_even, "an even share")


def end_of(assignment: Assignment) -> AckFlush:
    """All of it is settled."""
    return AckFlush(assignment, 1, Checkpoint(ended=True))


# -- coming and going ---------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, pytest.param(5, marks=pytest.mark.campaign)])
def test_members_share_the_shards_evenly(count: int) -> None:
    """Kinesis trap 19: also where some get none; nothing moves once it is even."""

    async def test(stage: Stage) -> None:
        members = [await stage.member() for _ in range(count)]
        await balanced(stage, *members)
        await asyncio.sleep(60)
        before = len(stage.journal.events)
        await asyncio.sleep(600)
        assert len(stage.journal.events) == before
        assert all_held(*members) == shards(4)

    play(test, shards=4)


@pytest.mark.parametrize("gap", [0.0, 0.05])
def test_members_that_start_together_share_at_once(gap: float) -> None:
    """The first one does not take all, to hand it over; alone it waits for half a second."""

    async def test(stage: Stage) -> None:
        members = [stage.actor() for _ in range(4)]
        opening = []
        for member in members:
            opening.append(asyncio.ensure_future(member.open()))
            await asyncio.sleep(gap)
        await asyncio.gather(*opening)
        await balanced(stage, *members)
        assert asyncio.get_running_loop().time() < 1.0
        await asyncio.sleep(60)
        assert stage.journal.of("revoked") == []

    play(test, shards=12)


def test_member_takes_no_more_than_its_maximum(caplog: pytest.LogCaptureFixture) -> None:
    """What is above it is told, and read by the next one that comes."""

    async def test(stage: Stage) -> None:
        small = await stage.member(max_shards=1)
        await small.holding(shard_id(0))
        await asyncio.sleep(300)
        assert len(small.held) == 1
        assert "nobody reads 3 shards (" in caplog.text
        large = await stage.member()
        await stage.journal.until(lambda: all_held(small, large) == shards(4), "all of them")
        assert len(small.held) == 1
        caplog.clear()
        await asyncio.sleep(300)
        assert "nobody reads" not in caplog.text

    play(test, shards=4)


def test_member_of_twice_the_weight_has_twice_the_shards() -> None:
    """For hosts of different size."""

    async def test(stage: Stage) -> None:
        light = await stage.member()
        await light.holding(*shards(6))
        heavy = await stage.member(weight=2)
        await stage.journal.until(lambda: len(light.held) == 2 and len(heavy.held) == 4, "shares")
        assert all_held(light, heavy) == shards(6)

    play(test, shards=6)


def test_wish_is_taken_back_when_the_shares_shift_before_the_owner_looks() -> None:
    """Left behind, it would have the shard taken without a handover much later."""

    async def test(stage: Stage) -> None:
        owner = stage.store.handle().leases("g", "s")
        await owner.sync(dict.fromkeys(shards(2), ()), identity=None)
        await owner.renew()
        fences = await owner.take(dict.fromkeys(shards(2), 0))
        member = await stage.member()
        while not (wanted := [p for p, x in (await owner.view()).leases.items() if x.wanted_by]):
            await asyncio.sleep(0.1)
            await owner.renew()
        (other,) = {*shards(2)} - {*wanted}
        await owner.release({other: fences[other]})
        await member.holding(other)
        await asyncio.sleep(2.0)
        await owner.renew()
        assert [x.wanted_by for x in (await owner.view()).leases.values()] == [None, None]
        await owner.aclose()

    play(test, shards=2)


def test_shard_is_drained_before_the_next_member_reads_it() -> None:
    """No record is in the hands of both."""

    async def test(stage: Stage) -> None:
        first = await stage.member()
        await first.holding(*shards(2))
        drained = asyncio.Event()
        moved: list[str] = []

        async def drain(assignments: Sequence[Assignment]) -> None:
            moved.extend(each.partition.id for each in assignments)
            await drained.wait()

        first.owner.on_revoked = drain
        second = await stage.member()
        await asyncio.sleep(15)
        assert (len(moved), second.held) == (1, [])
        drained.set()
        await second.holding(*moved)

    play(test, shards=2)


def test_nothing_of_a_shard_is_fetched_while_it_is_drained() -> None:
    """What was read ahead goes to the next owner."""

    async def test(stage: Stage) -> None:
        first = await stage.member()
        await first.holding(SHARD)
        stage.put("a")
        await asyncio.sleep(3)
        gate = asyncio.Event()
        first.owner.on_revoked = lambda _: gate.wait()
        closing = asyncio.create_task(first.adapter._session.aclose())
        await asyncio.sleep(0.1)
        assert await first.read(5) == []
        gate.set()
        await closing
        second = await stage.member()
        assert await second.read(5) == ["a"]

    play(test)


def test_shard_that_is_drained_gives_its_memory_to_the_others() -> None:
    """Nothing of it will be fetched; a slow drain must not keep the rest from reading."""

    async def test(stage: Stage) -> None:
        first = await stage.member(buffer_bytes=500)
        await first.holding(*shards(2))
        stage.put("x" * 600, shard=1)  # the second shard is the one that will move
        await asyncio.sleep(10)
        stage.put("waits", shard=0)
        first.owner.on_revoked = lambda _: asyncio.sleep(20)
        second = await stage.member()
        await stage.journal.until(lambda: bool(stage.journal.of("revoked")), "a handover")
        assert await first.read(15) == ["waits"]
        assert second.held == []
        await second.holding(shard_id(1))
        assert await second.read(5) == ["x" * 600]

    play(test, shards=2)


def test_member_that_leaves_gives_its_shards_up_at_once() -> None:
    """Nobody waits for its leases to run out."""

    async def test(stage: Stage) -> None:
        first, second = await stage.member(), await stage.member()
        await balanced(stage, first, second)
        before = asyncio.get_running_loop().time()
        await first.adapter.aclose()
        await second.holding(*shards(2))
        assert asyncio.get_running_loop().time() - before < 2

    play(test, shards=2)


@pytest.mark.parametrize("delay", [0.0, 0.3, 0.6, 1.0, 3.0, 3.4])
def test_member_that_has_left_is_nobody_whenever_it_leaves(delay: float) -> None:
    """A renewal that is under way must not bring it back, for others to keep shares for."""

    async def test(stage: Stage) -> None:
        first, second = await stage.member(), await stage.member()
        await balanced(stage, first, second)
        await asyncio.sleep(delay)
        await first.adapter.aclose()
        view = await second.adapter._session.membership._leases.view()
        assert len(view.members) == 1

    play(test, shards=2)


def test_killed_member_is_replaced_within_two_lease_times() -> None:
    """Kinesis trap 14: by observation of its silence alone."""

    async def test(stage: Stage) -> None:
        first, second = await stage.member(), await stage.member()
        await balanced(stage, first, second)
        first.store_faults.die()
        first.faults.die()
        before = asyncio.get_running_loop().time()
        await second.holding(*shards(4))
        assert asyncio.get_running_loop().time() - before <= 20

    play(test, shards=4)


def test_shards_that_end_together_are_told_of_in_few_writes_and_not_taken_again() -> None:
    """Each write is of the whole table, and others write it too."""

    async def test(stage: Stage) -> None:
        first = await stage.member()
        await first.holding(*shards(100))
        before = len(stage.journal.of("granted"))
        leases = first.adapter._session.membership._leases
        version = (await leases._backend.read()).version  # type: ignore[attr-defined]
        outcomes = await first.adapter.commit([end_of(each) for each in first.owner.held])
        assert {each.kind for each in outcomes} == {OutcomeKind.DURABLE}
        assert (await leases._backend.read()).version == version + 1  # type: ignore[attr-defined]
        await asyncio.sleep(20)
        assert len(stage.journal.of("granted")) == before

    play(test, shards=100)


# -- losing -------------------------------------------------------------------------------------


def test_member_cut_off_from_the_store_gives_up_before_others_take_over() -> None:
    """Kinesis trap 14: nobody tells it; it counts the time since its last renewal."""

    async def test(stage: Stage) -> None:
        first = await stage.member()
        await first.holding(SHARD)
        second = await stage.member()
        first.store_faults.die()
        await second.holding(SHARD)
        assert first.held == []
        kinds = [(event.kind, event.member) for event in stage.journal.events]
        assert kinds.index(("lost", "member-1")) < kinds.index(("granted", "member-2"))

    play(test)


def test_member_whose_loop_was_blocked_learns_of_its_loss_and_ends_nothing_after() -> None:
    """Kinesis trap 13: another one took the shard meanwhile; what comes late changes nothing."""

    async def test(stage: Stage) -> None:
        first = await stage.member()
        await first.holding(SHARD)
        old = first.assignment()
        clock = HandClock()
        other = stage.store.handle().leases("g", "s", duration=10, handover=30, clock=clock)
        # None of this gives the loop a turn: to the first member it is as if it had been blocked.
        await other.renew()
        await other.view()
        clock.now += 20
        await other.renew()
        seen = await other.view()
        assert await other.take({SHARD: seen.leases[SHARD].fence})
        assert first.held == [SHARD]
        await first.adapter.commit([end_of(old)])
        lease = (await other.view()).leases[SHARD]
        assert (lease.owner, lease.ended) == (other.member, False)
        await asyncio.sleep(5)
        assert first.held == []

    play(test)


def test_shard_taken_by_an_operator_is_lost_and_read_on_under_a_higher_fence() -> None:
    """Its holder lives, and hears of it with its next renewal; what it commits late ends nothing."""

    async def test(stage: Stage) -> None:
        first = await stage.member()
        await first.holding(SHARD)
        second = await stage.member()
        old, before = first.assignment(), asyncio.get_running_loop().time()
        operator = stage.store.handle().leases("g", "s", duration=10, handover=30)
        seen = (await operator.view()).leases[SHARD].fence
        assert await operator.evict({SHARD: seen}) == [SHARD]
        await stage.journal.until(lambda: old not in first.owner.held, "the loss")
        assert asyncio.get_running_loop().time() - before <= 10 / 3 + 1
        await stage.journal.until(lambda: all_held(first, second) == [SHARD], "a new holder")
        (outcome,) = await first.adapter.commit([end_of(old)])
        assert outcome.kind is OutcomeKind.FENCED
        lease = (await operator.view()).leases[SHARD]
        assert lease.fence > seen
        assert not lease.ended

    play(test)


def test_records_in_hand_when_an_operator_takes_the_shard_come_again() -> None:
    """Nothing that was not settled is lost, and what was settled late counts nowhere."""

    async def test(stage: Stage) -> None:
        seen: list[str] = []

        async def handle(message: Message) -> None:
            seen.append(text_of(message))
            await asyncio.sleep(20 if len(seen) == 1 else 0)

        stage.put("a", "b")
        async with stage.consumer() as consumer:
            task = asyncio.create_task(consumer.run(handle, ordering="partition"))
            await asyncio.sleep(5)
            operator = stage.store.handle().leases("g", "s", duration=10, handover=30)
            fence = (await operator.view()).leases[SHARD].fence
            assert await operator.evict({SHARD: fence}) == [SHARD]
            await asyncio.sleep(40)
            assert consumer.stats().in_flight == 0
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert seen == ["a", "a", "b"]

    play(test)


def test_shard_lost_while_it_is_drained_is_closed_at_once() -> None:
    """Kinesis trap 18: the handover has taken too long; it is over, whoever still works on it."""

    async def test(stage: Stage) -> None:
        first = await stage.member()
        await first.holding(SHARD, shard_id(1))
        stuck: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        moved: list[Assignment] = []

        async def hang(assignments: Sequence[Assignment]) -> None:
            moved.extend(assignments)
            await asyncio.wait({stuck}, timeout=100)

        first.owner.on_revoked = hang
        second = await stage.member()
        before = asyncio.get_running_loop().time()
        await stage.journal.until(lambda: len(second.held) == 1, "to be taken by force")
        waited = asyncio.get_running_loop().time() - before
        assert 40 <= waited <= 50  # handover and duration
        assert second.held == [each.partition.id for each in moved]
        await asyncio.sleep(5)
        assert moved[0] not in first.owner.held
        (outcome,) = await first.adapter.commit([end_of(moved[0])])
        assert outcome.kind is OutcomeKind.FENCED
        first.owner.on_revoked = None
        stuck.set_result(None)
        await asyncio.sleep(0)

    play(test, shards=2)


def test_member_that_dies_in_the_middle_of_a_handover_is_replaced() -> None:
    """Kinesis trap 18: half-done handovers leave nothing stuck."""

    async def test(stage: Stage) -> None:
        first = await stage.member()
        await first.holding(*shards(2))

        async def die(_: Sequence[Assignment]) -> None:
            first.store_faults.die()
            first.faults.die()

        first.owner.on_revoked = die
        second = await stage.member()
        await stage.journal.until(lambda: bool(stage.journal.of("revoked")), "a handover")
        before = asyncio.get_running_loop().time()
        await second.holding(*shards(2))
        assert asyncio.get_running_loop().time() - before <= 20

    play(test, shards=2)


def test_handover_whose_release_was_lost_is_released_by_the_next_look() -> None:
    """Kinesis trap 15: owned, not held, and wanted: nobody waits until it is taken by force."""

    async def test(stage: Stage) -> None:
        first = await stage.member()
        await first.holding(*shards(2))

        async def lose_the_release(_: Sequence[Assignment]) -> None:
            first.store_faults.fail_next("lease_write")

        first.owner.on_revoked = lose_the_release
        second = await stage.member()
        await stage.journal.until(lambda: bool(stage.journal.of("released")), "the drain's end")
        before = asyncio.get_running_loop().time()
        await second.holding(shard_id(1))
        assert asyncio.get_running_loop().time() - before <= 5

    play(test, shards=2)


@pytest.mark.parametrize("handover", [10.0, 30.0])
def test_handler_may_take_the_time_for_a_handover(handover: float) -> None:
    """It ends, and its record is not delivered again; the shard changes hands right after it."""

    async def test(stage: Stage) -> None:
        seen: list[str] = []
        busy = asyncio.Event()

        async def handle(message: Message) -> None:
            busy.set()
            seen.append(text_of(message))
            await asyncio.sleep(0.9 * handover)

        options: dict[str, Any] = {"adapter": {"handover_timeout": handover}}
        stage.put("a", shard=0)
        stage.put("b", shard=1)
        async with stage.consumer(**options) as first:
            running = asyncio.create_task(first.run(handle))
            await busy.wait()
            async with stage.consumer(**options) as second:
                other = asyncio.create_task(second.run(handle))
                await asyncio.sleep(10 * handover)
                second.stop()
                await other
            first.stop()
            await running
        assert sorted(seen) == ["a", "b"]

    play(test, shards=2)


@pytest.mark.parametrize("duration,handover,least", [(10.0, 30.0, 30.0), (10.0, 60.0, 54.0)])
def test_handlers_have_the_whole_handover_where_there_is_room(
    duration: float, handover: float, least: float
) -> None:
    """The owner gives them four fifths; a longer handover ends before the shard is taken."""

    class Owner(RecordingOwner):
        async def revoked(self, assignments: Sequence[Assignment], *, deadline: float) -> None:
            given.append(deadline - asyncio.get_running_loop().time())
            await super().revoked(assignments, deadline=deadline)

    given: list[float] = []

    async def test(stage: Stage) -> None:
        options: dict[str, Any] = {"lease_duration": duration, "handover_timeout": handover}
        first = stage.actor(**options)
        first.owner = Owner("first", stage.journal)
        first.owner.adapter = first.adapter
        await first.open()
        await first.holding(*shards(2))
        await balanced(stage, first, await stage.member(**options))
        assert least <= given[0] * 0.8
        assert given[0] < handover + duration

    play(test, shards=2)


def test_other_shards_are_kept_alive_while_one_is_drained() -> None:
    """Renewal waits for nobody: a drain takes longer than a lease lasts."""

    async def test(stage: Stage) -> None:
        first = await stage.member()
        await first.holding(*shards(4))
        first.owner.on_revoked = lambda _: asyncio.sleep(22)
        second = await stage.member()
        kept = {a.partition.id: a for a in first.owner.held}
        await balanced(stage, first, second)
        assert all(kept[each.partition.id] is each for each in first.owner.held)

    play(test, shards=4)


# -- the store ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seam", ["lease_read", "lease_write", "lease_renew"])
@pytest.mark.parametrize("strike", ["before", "after"])
def test_store_that_fails_or_whose_replies_are_lost_only_delays(seam: str, strike: Any) -> None:
    """Kinesis trap 15: a take without a reply shows up as owned and not held, and is taken again."""

    async def test(stage: Stage) -> None:
        first, second = stage.actor(), stage.actor()
        for member in (first, second):
            member.store_faults.fail_next(seam, strike, times=5)
            await member.open()
        await balanced(stage, first, second)
        stage.put("a", shard=0)
        stage.put("b", shard=1)
        first.store_faults.fail_next(seam, strike, times=5)
        second.store_faults.fail_next(seam, strike, times=5)
        found = await first.read(10) + await second.read(10)
        assert sorted(found) == ["a", "b"]
        first.store_faults.fail_next(seam, strike, times=2)
        await first.adapter.aclose()
        await second.holding(*shards(2))

    play(test, shards=2)


def test_member_keeps_its_shards_through_a_short_outage() -> None:
    """Kinesis trap 17: shorter than a lease; nothing is revoked."""

    async def test(stage: Stage) -> None:
        member = await stage.member()
        await member.holding(SHARD)
        before = member.assignment()
        member.store_faults.fail_next("lease_renew", times=20)
        member.store_faults.fail_next("lease_read", times=20)
        await asyncio.sleep(60)
        assert member.assignment() is before

    play(test)


@pytest.mark.parametrize("seconds", [4.0, 4.9])
def test_member_keeps_its_shards_though_the_store_answers_late(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next renewal is due a third of a lease after the last one was begun, not after its answer."""

    async def test(stage: Stage) -> None:
        member = await stage.member()
        await member.holding(SHARD)
        before = member.assignment()

        async def wait(seam: str) -> None:
            if seam == "lease_renew":  # before its effect, and after it
                await asyncio.sleep(seconds / 2)

        monkeypatch.setattr(member.store_faults, "wait", wait)
        loop = asyncio.get_running_loop()
        for _ in range(600):
            await asyncio.sleep(1.0)
            assert loop.time() < member.adapter.held_until()
        assert member.held == [SHARD]
        assert member.assignment() is before

    play(test)


def test_leaving_is_bounded_while_the_store_is_down() -> None:
    """The program ends; others take the shards later."""

    async def test(stage: Stage) -> None:
        member = await stage.member()
        await member.holding(SHARD)
        member.store_faults.die()
        before = asyncio.get_running_loop().time()
        await member.adapter.aclose()
        assert asyncio.get_running_loop().time() - before <= 25
        assert member.held == []

    play(test)


def test_release_after_a_drain_that_hangs_is_bounded() -> None:
    """The store went silent in the middle of a handover; the member can still be closed."""

    async def test(stage: Stage) -> None:
        first = await stage.member()
        await first.holding(*shards(2))
        first.owner.on_revoked = lambda _: asyncio.sleep(1)
        second = await stage.member()
        await stage.journal.until(lambda: bool(stage.journal.of("revoked")), "a handover")
        first.store_faults.die()
        before = asyncio.get_running_loop().time()
        await first.adapter.aclose()
        assert asyncio.get_running_loop().time() - before <= 60
        await second.holding(*shards(2))

    play(test, shards=2)


def test_leases_that_cannot_be_read_end_the_consumer() -> None:
    """Kinesis trap 17: somebody else has written there; not to be overwritten, not to be ignored."""

    async def test(stage: Stage) -> None:
        member = await stage.member()
        await member.holding(SHARD)
        (stored,) = stage.store._state.leases.values()
        stored.version, stored.text = stored.version + 1, "not ours"
        with pytest.raises(Exception, match="holds no leases that can be read"):
            await member.read(30)

    play(test)


# -- dropping and ending ------------------------------------------------------------------------


def test_dropped_shard_comes_back_under_a_higher_fence_later_each_time() -> None:
    """An epoch that cannot be flushed is not taken again in a tight loop."""

    async def test(stage: Stage) -> None:
        member = await stage.member()
        times: list[float] = []
        for _ in range(6):
            await member.holding(SHARD)
            times.append(asyncio.get_running_loop().time())
            old = member.assignment()
            member.adapter.drop(old)
            assert member.held == []
            await member.holding(SHARD)
            assert (member.assignment().fence or 0) > (old.fence or 0)
        waits = [b - a for a, b in pairwise(times)]
        assert waits[-1] > 2 * waits[0]

    play(test)


def test_dropped_shard_whose_release_was_lost_comes_back_all_the_same() -> None:
    """Kinesis trap 15: seen in the leases as owned and not held."""

    async def test(stage: Stage) -> None:
        member = await stage.member()
        await member.holding(SHARD)
        for strike in ("before", "after"):
            member.store_faults.fail_next("lease_write", strike)
            member.adapter.drop(member.assignment())
            await member.holding(SHARD)

    play(test)


@pytest.mark.parametrize("strike", ["before", "after"])
def test_end_whose_release_fails_asks_for_another_try_and_is_not_lost(strike: Any) -> None:
    """Kinesis traps 15 and 21: the children start once the lease says it."""

    async def test(stage: Stage) -> None:
        stage.kinesis.split("s", SHARD)
        member = await stage.member()
        await member.holding(SHARD)
        member.store_faults.fail_next("lease_write", strike)
        (outcome,) = await member.adapter.commit([end_of(member.assignment())])
        assert outcome.kind is OutcomeKind.RETRY
        member.owner.start = lambda a: (
            StartPoint.ENDED if a.partition.id == SHARD else StartPoint.EARLIEST
        )
        await member.holding(shard_id(1), shard_id(2))

    play(test)


def test_children_start_at_once_when_their_parents_end() -> None:
    """Kinesis trap 21: nobody polls for that."""

    async def test(stage: Stage) -> None:
        first, second = await stage.member(), await stage.member()
        await balanced(stage, first, second)
        stage.kinesis.merge("s", shard_id(0), shard_id(1))
        await asyncio.sleep(70)
        assert all_held(first, second) == shards(2)
        for member in (first, second):
            (shard,) = member.held
            await member.adapter.commit([end_of(member.assignment(shard))])
            if member is first:
                await asyncio.sleep(30)
                assert all_held(first, second) == second.held  # the merged one waits for both
        before = asyncio.get_running_loop().time()
        await stage.journal.until(
            lambda: all_held(first, second) == [shard_id(2)], "the merged shard"
        )
        assert asyncio.get_running_loop().time() - before < 1

    play(test, shards=2)


def test_end_that_is_flushed_while_the_member_leaves_is_put_into_the_lease() -> None:
    """Kinesis trap 21: the last flush of a handover; the next member need not find out."""

    async def test(stage: Stage) -> None:
        stage.kinesis.split("s", SHARD)
        member = await stage.member()
        await member.holding(SHARD)
        kinds: list[OutcomeKind] = []

        async def flush(assignments: Sequence[Assignment]) -> None:
            outcomes = await member.adapter.commit([end_of(each) for each in assignments])
            kinds.extend(outcome.kind for outcome in outcomes)

        member.owner.on_revoked = flush
        await member.adapter.aclose()
        assert kinds == [OutcomeKind.DURABLE]
        second = await stage.member()
        await second.holding(shard_id(1), shard_id(2))

    play(test)


def test_shard_fenced_while_the_member_leaves_is_dropped_quietly() -> None:
    """The runtime drops what the store refuses, at whatever moment."""

    async def test(stage: Stage) -> None:
        member = await stage.member()
        await member.holding(SHARD)

        async def fence(assignments: Sequence[Assignment]) -> None:
            member.adapter.drop(assignments[0])

        member.owner.on_revoked = fence
        await member.adapter.aclose()
        second = await stage.member()
        await second.holding(SHARD)

    play(test)


def test_alone_nothing_is_shared_and_nothing_is_lost_to_a_blocked_loop() -> None:
    """Without a group the leases are the process's own: nobody can take them."""

    async def test(stage: Stage) -> None:
        first, second = await stage.member(None), await stage.member(None)
        await first.holding(*shards(2))
        await second.holding(*shards(2))
        await asyncio.sleep(100)
        assert not stage.journal.of("lost")

    play(test, shards=2)


def test_source_of_leases_is_asked_for_the_group_the_stream_and_the_times() -> None:
    """Each adapter is a member of its own."""

    async def test(stage: Stage) -> None:
        asked: list[Any] = []

        def source(
            group: str,
            stream: str,
            *,
            duration: float = 0.0,
            handover: float = 0.0,
            most: int | None = None,
            weight: int = 1,
        ) -> Leases | None:
            asked.append((group, stream, duration, handover, most, weight))
            return MemoryStore().leases(group, stream, duration=duration, handover=handover)

        leases: LeaseSource = source
        actor = stage.actor(
            "mine", lease_duration=7.0, handover_timeout=9.0, max_shards=2, weight=3
        )
        await actor.adapter.open(actor.owner, leases)
        assert asked == [("mine", "s", 7.0, 9.0, 2, 3)]

    play(test)
