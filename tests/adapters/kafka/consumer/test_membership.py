"""Rebalances of a classic group on a real Kafka: what clients get wrong, and how it comes out right."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from consumer_sdk.errors import StoreError
from consumer_sdk.records import Assignment, AtPosition, OutcomeKind
from tests.adapters.kafka.world import World, coordinator_of, flush_of, muted, numbered, values

pytestmark = pytest.mark.kafka

HELD: dict[str, Any] = {"session_timeout": 8.0, "heartbeat_interval": 0.2}
"""Not so short that a member loses its session by what else the machine does."""


async def test_owner_that_loads_longer_than_the_session_is_not_evicted(world: World) -> None:
    """No heartbeats go out during the client's assigned callback: a 9 s load was evicted."""
    topic = await world.kafka.create_stream()
    await world.kafka.append(topic, numbered(0, 3))
    owner = world.owner()
    owner.gate.clear()
    async with world.member(topic, owner, **HELD) as member:
        await world.until("assigned", "member-1")
        await asyncio.sleep(HELD["session_timeout"] + 1)
        owner.gate.set()
        (held,) = await member.holding(1)
        assert values(await member.read(3)) == [0, 1, 2]
        (outcome,) = await member.adapter.commit([flush_of(held, 3)])
    assert outcome.kind is OutcomeKind.DURABLE
    assert world.kinds("member-1") == ["assigned", "granted", "revoked", "released"]


async def test_first_record_is_the_granted_one_though_the_group_stands_elsewhere(
    world: World,
) -> None:
    """A slow assigned callback handed out 500 records from the wrong place: the committed one."""
    topic = await world.kafka.create_stream()
    await world.kafka.append(topic, numbered(0, 20))
    async with world.member(topic) as member:
        (held,) = await member.holding(1)
        await member.adapter.commit([flush_of(held, 5)])
    owner = world.owner()
    owner.gate.clear()
    owner.start = AtPosition(15)
    async with world.member(topic, owner) as member:
        await world.until("assigned", "member-2")
        for _ in range(3):
            await member.read_nothing()
        owner.gate.set()
        assert values(await member.read(5)) == list(range(15, 20))


async def test_member_drains_longer_than_its_session_and_still_commits(world: World) -> None:
    """T16: heartbeats go on while the owner drains, and the last commit is in time."""
    topic = await world.kafka.create_stream(2)
    owner = world.owner()
    outcomes = []
    async with world.member(topic, owner, **HELD) as old:
        await old.holding(2)

        async def drain(assignments: Sequence[Assignment]) -> None:
            await asyncio.sleep(HELD["session_timeout"] + 1)
            outcomes.extend(await old.adapter.commit([flush_of(a, 7) for a in assignments]))

        owner.on_revoked = drain
        async with world.member(topic, **HELD) as new:
            await new.holding(1)
            owner.on_revoked = None
        assert [outcome.kind for outcome in outcomes] == [OutcomeKind.DURABLE] * 2
        assert await world.offsets(topic) == {0: 7, 1: 7}
        assert "lost" not in world.kinds("member-1")


async def test_drain_that_never_ends_is_cut_off_and_its_partitions_are_lost(world: World) -> None:
    """T17: a stuck revoke is bounded by the rebalance timeout; afterwards it cannot commit."""
    topic = await world.kafka.create_stream(2)
    owner = world.owner()
    async with world.member(topic, owner, rebalance_timeout=3.0) as old:
        before = await old.holding(2)
        owner.on_revoked = lambda _: asyncio.Event().wait()
        async with world.member(topic, rebalance_timeout=3.0) as new:
            await new.holding(1)
            owner.on_revoked = None
            assert "lost" in world.kinds("member-1")
            stale = await old.adapter.commit([flush_of(a, 9) for a in before])
            assert [outcome.kind for outcome in stale] == [OutcomeKind.FENCED] * 2
        assert await world.offsets(topic) == {}


@pytest.mark.parametrize("error", [RuntimeError("drain"), asyncio.CancelledError()])
async def test_what_revoked_raises_does_not_end_the_membership(
    world: World, error: BaseException
) -> None:
    """The client swallows a listener's errors, and a CancelledError kills its coordination."""
    topic = await world.kafka.create_stream(2)
    await world.kafka.append(topic, numbered(0, 3), 0)
    await world.kafka.append(topic, numbered(3, 6), 1)
    owner = world.owner()

    async def fail(_assignments: Sequence[Assignment]) -> None:
        raise error

    async with world.member(topic, owner) as old:
        await old.holding(2)
        owner.on_revoked = fail
        async with world.member(topic) as new:
            await new.holding(1)
            owner.on_revoked = None
            await world.until("granted", "member-1", times=2)
            owner.held = dict.fromkeys(world.journal.of("granted", "member-1")[-1].assignments)
            if isinstance(error, RuntimeError):
                with pytest.raises(RuntimeError, match="drain"):
                    await old.fetch()
            found = await old.read(3) + await new.read(3)
            assert sorted(values(found)) == list(range(6))


async def test_what_assigned_raises_comes_out_of_fetch_though_the_client_swallows_it(
    world: World,
) -> None:
    """An exception in the client's listener is only logged, and records flow anyway."""
    topic = await world.kafka.create_stream()
    await world.kafka.append(topic, numbered(0, 3))
    owner = world.owner()
    owner.failures = [StoreError("the disk is on fire")]
    async with world.member(topic, owner) as member:
        with pytest.raises(StoreError, match="on fire"):
            while True:
                assert not await member.fetch()
        assert values(await member.read(3)) == [0, 1, 2]


async def test_evicted_member_loses_its_partitions_and_gets_them_in_a_new_epoch(
    world: World,
) -> None:
    """The broker forgot this member while it could not heartbeat: lost, not revoked."""
    topic = await world.kafka.create_stream()
    async with world.member(topic) as member:
        (old,) = await member.holding(1)
        await member.adapter.commit([flush_of(old, 50)])
        async with muted(member):
            await _evict(world)
            (outcome,) = await member.adapter.commit([flush_of(old, 60)])
            assert outcome.kind is OutcomeKind.FENCED
        assert await world.offsets(topic) == {0: 50}
        await world.until("granted", "member-1", times=2)
        (new,) = await member.holding(1)
        assert new.epoch > old.epoch
        assert world.kinds("member-1")[:4] == ["assigned", "granted", "lost", "assigned"]


async def _evict(world: World) -> None:
    """The broker throws the member out."""
    await world.kafka.end_sessions(world.group_id)
    assert await world.state() == "Empty"


async def test_loss_in_the_middle_of_a_drain_is_told_at_once(world: World) -> None:
    """Heartbeats go on meanwhile: the drain learns of it, and its commit fails."""
    topic = await world.kafka.create_stream(2)
    owner = world.owner()
    outcomes = []
    async with world.member(topic, owner) as old:
        await old.holding(2)

        async def lose(assignments: Sequence[Assignment]) -> None:
            await world.kafka.end_sessions(world.group_id, coordinator_of(old).stamp.member_id)
            await world.until("lost", "member-1")
            outcomes.extend(await old.adapter.commit([flush_of(a, 7) for a in assignments]))

        owner.on_revoked = lose
        async with world.member(topic) as new:
            await new.holding(1)
            owner.on_revoked = None
        assert [outcome.kind for outcome in outcomes] == [OutcomeKind.FENCED] * 2
        assert world.kinds("member-1")[2:5] == ["revoked", "lost", "released"]
        assert await world.offsets(topic) == {}


async def test_loss_while_the_owner_is_asked_is_told_when_it_has_answered(world: World) -> None:
    """It would hold for ever what it began to hold after it was told of the loss."""
    topic = await world.kafka.create_stream()
    owner = world.owner()
    owner.gate.clear()
    async with world.member(topic, owner) as member:
        await world.until("assigned", "member-1")
        grant = _grants(member)[0]
        member.adapter._session.grants.close([grant])  # type: ignore[attr-defined]  # Kafka's
        owner.gate.set()
        await world.until("lost", "member-1")
        assert world.kinds("member-1") == ["assigned", "granted", "lost"]
        assert not owner.held


@pytest.mark.parametrize("way", ["revoked", "lost"])
async def test_partition_that_was_dropped_is_not_granted_again_in_a_rebalance(
    world: World, way: str
) -> None:
    """It is offered in a new epoch when the old one has ended; by then it may be another member's."""
    topic = await world.kafka.create_stream()
    owner = world.owner()
    async with world.member(topic, owner) as member:
        (held,) = await member.holding(1)
        session: Any = member.adapter._session  # type: ignore[attr-defined]  # Kafka's
        owner.on_revoked = lambda _: asyncio.sleep(0)
        member.adapter.drop(held)  # the round that grants it anew begins in the revoke
        holdings, tps = session._holdings, [(topic, 0)]
        if way == "revoked":
            await holdings.drain(holdings.take(tps))
        else:
            await world.until("revoked", "member-1")
            holdings.lose(tps, "the session is over")
        await asyncio.wait({session._rounds._round})
        assert _grants(member) == []
    assert world.kinds("member-1").count("granted") == 1


def _grants(member: Any) -> list[Any]:
    return list(member.adapter._session.grants)


async def test_fetch_is_bounded_and_cancellable_while_the_group_rebalances(world: World) -> None:
    """The client's getmany ignores its timeout during a rebalance: 200 ms took 8 s."""
    topic = await world.kafka.create_stream(2)
    owner, drained = world.owner(), asyncio.Event()
    async with world.member(topic, owner) as old:
        await old.holding(2)
        owner.on_revoked = lambda _: drained.wait()
        async with world.member(topic, connect_timeout=2.0) as new:  # its join is held up
            await world.until("revoked", "member-1")
            loop = asyncio.get_running_loop()
            for member in (old, new):
                began = loop.time()
                assert await member.adapter.fetch(max_records=9, max_bytes=99, max_wait=0.1) == []
                assert loop.time() - began < 30
                fetch = asyncio.create_task(member.fetch(max_wait=60))
                await asyncio.sleep(0)
                fetch.cancel()
                await asyncio.wait({fetch}, timeout=30)
                assert fetch.cancelled()
            drained.set()
            owner.on_revoked = None
            await new.holding(1)


async def test_draining_member_fetches_nothing_more_of_what_it_gives_up(world: World) -> None:
    """T26, T28: what is being revoked is not fetched; what was buffered is not handed out."""
    topic = await world.kafka.create_stream()
    await world.kafka.append(topic, numbered(0, 10))
    owner, drained = world.owner(), asyncio.Event()
    async with world.member(topic, owner) as old:
        await old.holding(1)
        (run,) = await old.fetch(max_records=2, max_wait=world.kafka.patience)
        assert values(run.messages) == [0, 1]
        owner.on_revoked = lambda _: drained.wait()
        async with world.member(topic, connect_timeout=2.0):
            await world.until("revoked", "member-1")
            assert await old.adapter.fetch(max_records=9, max_bytes=99, max_wait=0.1) == []
            drained.set()
            owner.on_revoked = None
            await world.until("released", "member-1")


async def test_pause_ends_with_its_epoch(world: World) -> None:
    """T18: after an eager rebalance everything is a new grant, and nothing of it is paused."""
    topic = await world.kafka.create_stream(2)
    async with world.member(topic) as old:
        for assignment in await old.holding(2):
            old.adapter.pause(assignment)
        async with world.member(topic) as new:
            await new.holding(1)
            (kept,) = await old.holding(1)
            await world.kafka.append(topic, numbered(0, 3), int(kept.partition.id))
            assert values(await old.read(3)) == [0, 1, 2]


async def test_declined_partition_is_offered_again_in_a_new_epoch(world: World) -> None:
    """A group cannot take one partition back: it stays gated and is offered until it is taken."""
    topic = await world.kafka.create_stream()
    await world.kafka.append(topic, numbered(0, 3))
    owner = world.owner()
    owner.left_out = frozenset({"0"})
    async with world.member(topic, owner) as member:
        await world.until("assigned", "member-1", times=2)
        owner.left_out = frozenset()
        assert values(await member.read(3)) == [0, 1, 2]
        offers = [event.assignments[0].epoch for event in world.journal.of("assigned")]
        assert offers == sorted(set(offers))


async def test_second_drop_in_a_row_waits_longer_than_the_first(world: World) -> None:
    """A store that keeps saying FENCED does not make the adapter spin."""
    topic = await world.kafka.create_stream()
    loop = asyncio.get_running_loop()
    async with world.member(topic) as member:
        for times in range(1, 4):
            await world.until("granted", "member-1", times=times)
            (held,) = await member.holding(1)
            began = loop.time()
            member.adapter.drop(held)
        await world.until("granted", "member-1", times=4)
        assert loop.time() - began > 0.15
