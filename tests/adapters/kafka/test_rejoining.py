"""What a member may say while its new place in the group is being decided."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from consumer_sdk.records import OutcomeKind
from tests.adapters.kafka.world import World, coordinator_of, epoch_of, flush_of

pytestmark = pytest.mark.kafka


async def test_late_commit_behind_a_parked_join_is_refused_and_costs_no_second_rebalance(
    world: World,
) -> None:
    """T1: the client's own commit resets the new generation then, and the group starts over."""
    topic = await world.kafka.create_stream(2)
    slow, drained = world.owner(), asyncio.Event()
    async with world.member(topic, slow) as holding, world.member(topic) as quick:
        await holding.holding(1)
        (old,) = await quick.holding(1)
        slow.on_revoked = lambda _: drained.wait()
        third = world.adapter(topic, connect_timeout=2.0)
        await third.open(world.owner())  # its join is held up by the slow one
        try:
            await world.until("released", "member-2")
            generation = epoch_of(quick)
            (outcome,) = await quick.adapter.commit([flush_of(old, 5)])
            assert outcome.kind is OutcomeKind.FENCED
            assert epoch_of(quick) == generation
            slow.on_revoked = None
            drained.set()
            async with asyncio.timeout(world.kafka.patience):
                while epoch_of(quick) == generation:
                    await quick.fetch()
                while await world.state() != "Stable":
                    await quick.fetch()
            assert epoch_of(quick) == generation + 1
            assert await world.offsets(topic) == {}
        finally:
            await third.aclose()


async def test_commit_of_another_generation_moves_nothing_and_is_tried_again(world: World) -> None:
    """It may be the next one already, of whose start the member has not heard; it is no loss yet."""
    topic = await world.kafka.create_stream()
    async with world.member(topic) as member:
        (held,) = await member.holding(1)
        coordinator = coordinator_of(member)
        real = coordinator.member
        coordinator.member = SimpleNamespace(epoch=real.epoch - 1, member_id=real.member_id)
        (outcome,) = await member.adapter.commit([flush_of(held, 7)])
        assert outcome.kind is OutcomeKind.RETRY
        assert await world.offsets(topic) == {}
        coordinator.member = real
        (outcome,) = await member.adapter.commit([flush_of(held, 7)])
        assert outcome.kind is OutcomeKind.DURABLE
        assert await world.offsets(topic) == {0: 7}
