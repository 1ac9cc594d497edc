"""The owner is asked where shards start: what it answers, when it fails, what changes meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from consumer_sdk.errors import (
    AdapterError,
    CheckpointFormatError,
    TransientAdapterError,
    TransientStoreError,
)
from consumer_sdk.records import AckFlush, Assignment, AtTime, Checkpoint, OutcomeKind, StartPoint
from tests.adapters.kinesis.harness import shard_id
from tests.adapters.kinesis.stage import SHARD, Actor, Stage, play

TWO = [shard_id(0), shard_id(1)]


def kinds(actor: Actor) -> list[str]:
    """What the owner was told, in order."""
    return [event.kind for event in actor.journal.events if event.member == actor.owner.name]


def test_nothing_is_read_before_the_owner_has_answered() -> None:
    """Kinesis trap 17: a store that does not answer is waited for; nothing starts anywhere."""

    async def test(stage: Stage) -> None:
        stage.put("a")
        member = stage.actor()
        member.owner.gate.clear()
        await member.open()
        assert await member.read(60) == []
        member.owner.gate.set()
        assert await member.read(5) == ["a"]

    play(test)


def test_all_shards_that_wait_are_asked_for_at_once() -> None:
    """One round trip to the store for a thousand shards."""

    async def test(stage: Stage) -> None:
        member = await stage.member()
        await member.holding(*[shard_id(each) for each in range(20)])
        (event,) = stage.journal.of("assigned")
        assert len(event.assignments) == 20

    play(test, shards=20)


@pytest.mark.parametrize("error", [TransientStoreError("down"), TransientAdapterError("down")])
def test_owner_that_cannot_answer_yet_is_asked_again(error: Exception) -> None:
    """Kinesis trap 17: an outage passes; the user hears of it in the log alone."""

    async def test(stage: Stage) -> None:
        stage.put("a")
        member = stage.actor()
        member.owner.failures += [error] * 5
        await member.open()
        assert await member.read(60) == ["a"]
        assert kinds(member).count("assigned") == 6

    play(test)


@pytest.mark.parametrize("error", [AdapterError("no"), CheckpointFormatError("broken")])
def test_error_of_the_owner_that_does_not_pass_comes_out_of_fetch(error: Exception) -> None:
    """Kinesis trap 17: never "start at latest"; a caller that goes on has it asked again."""

    async def test(stage: Stage) -> None:
        stage.put("a")
        member = stage.actor()
        member.owner.failures.append(error)
        await member.open()
        with pytest.raises(type(error)):
            await member.fetch(5)
        assert await member.read(5) == ["a"]

    play(test)


def test_shard_that_is_not_granted_is_released_and_taken_again_later() -> None:
    """The store refused its fence: another one has claimed it, and may be gone by now."""

    async def test(stage: Stage) -> None:
        stage.put("a")
        member = stage.actor()
        member.owner.left_out = frozenset({SHARD})
        await member.open()
        assert await member.read(3) == []
        asked = stage.journal.of("assigned")
        fences = [event.assignments[0].fence or 0 for event in asked]
        assert len(fences) > 2
        assert fences == sorted(set(fences))
        member.owner.left_out = frozenset()
        assert await member.read(10) == ["a"]

    play(test)


def test_shard_that_was_declined_does_not_hold_up_the_others() -> None:
    """Kinesis trap 10: it is left alone for a while."""

    async def test(stage: Stage) -> None:
        stage.put("a", shard=1)
        member = stage.actor()
        member.owner.left_out = frozenset({SHARD})
        await member.open()
        assert await member.read(5) == ["a"]

    play(test, shards=2)


def test_shard_that_had_ended_is_released_as_that_and_not_asked_for_again() -> None:
    """Kinesis trap 21: a crash between the store and the lease; the children follow."""

    async def test(stage: Stage) -> None:
        stage.kinesis.split("s", SHARD)
        member = stage.actor()
        member.owner.start = lambda a: (
            StartPoint.ENDED if a.partition.id == SHARD else StartPoint.EARLIEST
        )
        await member.open()
        await member.holding(shard_id(1), shard_id(2))
        asked = [
            a.partition.id for event in stage.journal.of("assigned") for a in event.assignments
        ]
        assert sorted(asked) == [shard_id(0), shard_id(1), shard_id(2)]

    play(test)


def test_end_that_could_not_be_released_is_taken_and_ended_again() -> None:
    """Kinesis trap 21: the store was down at that moment."""

    async def test(stage: Stage) -> None:
        stage.kinesis.split("s", SHARD)
        member = stage.actor()
        member.owner.start = lambda a: (
            StartPoint.ENDED if a.partition.id == SHARD else StartPoint.EARLIEST
        )
        member.owner.gate.clear()
        await member.open()
        await asyncio.sleep(1)
        member.store_faults.fail_next("lease_write", times=3)
        member.owner.gate.set()
        await member.holding(shard_id(1), shard_id(2))

    play(test)


def test_shard_that_is_wanted_while_the_owner_thinks_is_handed_over() -> None:
    """The question is ended first; the one about the other shard is asked again."""

    async def test(stage: Stage) -> None:
        first = stage.actor()
        first.owner.gate.clear()
        await first.open()
        await asyncio.sleep(1)
        second = await stage.member()
        await stage.journal.until(lambda: len(second.held) == 1, "the second to have one")
        first.owner.gate.set()
        await stage.journal.until(lambda: len(first.held) == 1, "the first to have one")
        assert first.held + second.held in (TWO, TWO[::-1])
        assert kinds(first)[:2] == ["assigned", "cancelled"]
        assert "revoked" in kinds(first)

    play(test, shards=2)


def test_shard_that_is_lost_while_the_owner_thinks_is_not_started() -> None:
    """Kinesis trap 13: the member was cut off from the store for longer than its leases last."""

    async def test(stage: Stage) -> None:
        stage.put("a")
        first = stage.actor()
        first.owner.gate.clear()
        await first.open()
        await asyncio.sleep(1)
        first.store_faults.die()
        second = await stage.member()
        await second.holding(SHARD)
        first.owner.gate.set()
        assert await first.read(20) == []
        assert first.held == []
        assert await second.read(5) == ["a"]

    play(test)


def test_member_that_closes_while_the_owner_thinks_ends_the_question_first() -> None:
    """And leaves; the next one has the shard at once."""

    async def test(stage: Stage) -> None:
        first = stage.actor()
        first.owner.gate.clear()
        await first.open()
        await asyncio.sleep(1)
        await first.adapter.aclose()
        assert kinds(first)[:4] == ["assigned", "cancelled", "revoked", "released"]
        before = asyncio.get_running_loop().time()
        second = await stage.member()
        await second.holding(SHARD)
        assert asyncio.get_running_loop().time() - before < 2

    play(test)


def test_owner_that_raises_when_it_is_cancelled_stops_nothing() -> None:
    """A store may answer the cancellation with an error of its own."""

    async def test(stage: Stage) -> None:
        member = stage.actor()
        member.owner.gate.clear()
        ask = member.owner.assigned

        async def assigned(assignments: list[Assignment]) -> object:
            try:
                return await ask(assignments)
            except asyncio.CancelledError:
                raise TransientStoreError("cut off") from None

        member.owner.assigned = assigned  # type: ignore[method-assign,assignment]  # one of its own
        await member.open()
        await asyncio.sleep(1)
        member.adapter._session.abort()
        await asyncio.sleep(1)
        await member.adapter.aclose()

    play(test)


def test_answer_is_where_the_shard_is_read() -> None:
    """A time here; conformance has the others."""

    async def test(stage: Stage) -> None:
        stage.put("old")
        await asyncio.sleep(10)
        member = stage.actor()
        member.owner.start = AtTime(stage.simulation.clock.wall() - 5)
        stage.put("new")
        await member.open()
        assert await member.read(5) == ["new"]

    play(test)


def test_late_commit_of_an_epoch_that_is_over_ends_nothing() -> None:
    """Kinesis trap 5: the shard goes on under its new epoch."""

    async def test(stage: Stage) -> None:
        member = await stage.member()
        await member.holding(SHARD)
        old = member.assignment()
        member.adapter.drop(old)
        await asyncio.sleep(5)
        assert member.assignment().epoch > old.epoch
        assert (member.assignment().fence or 0) > (old.fence or 0)
        (outcome,) = await member.adapter.commit([AckFlush(old, 1, Checkpoint(ended=True))])
        assert outcome.kind is OutcomeKind.FENCED
        stage.put("a")
        assert await member.read(5) == ["a"]

    play(test)
