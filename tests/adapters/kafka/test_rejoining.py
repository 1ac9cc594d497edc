"""What a member may say while its new place in the group is being decided."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from consumer_sdk.adapters.kafka import KafkaAdapter
from consumer_sdk.records import OutcomeKind
from tests.adapters.kafka.world import World, coordinator_of, flush_of

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
            generation = coordinator_of(quick).generation
            (outcome,) = await quick.adapter.commit([flush_of(old, 5)])
            assert outcome.kind is OutcomeKind.FENCED
            assert coordinator_of(quick).generation == generation
            slow.on_revoked = None
            drained.set()
            async with asyncio.timeout(world.kafka.patience):
                while coordinator_of(quick).generation == generation:
                    await quick.fetch()
                while await world.state() != "Stable":
                    await quick.fetch()
            assert coordinator_of(quick).generation == generation + 1
            assert await world.offsets(topic) == {}
        finally:
            await third.aclose()


async def test_commit_carries_the_generation_of_its_assignment_whatever_the_client_believes(
    world: World,
) -> None:
    """T1: the client would send its current one, and the broker take a stale position for good."""
    topic = await world.kafka.create_stream()
    async with world.member(topic) as member:
        (held,) = await member.holding(1)
        assert isinstance(member.adapter, KafkaAdapter)
        session = member.adapter._session
        real = coordinator_of(member)
        mistaken: Any = SimpleNamespace(
            _send_req=real._send_req, generation=real.generation + 1, member_id="somebody"
        )
        session.committer._consumer = SimpleNamespace(
            _coordinator=mistaken, _client=session._consumer._client
        )
        (outcome,) = await member.adapter.commit([flush_of(held, 5)])
        assert outcome.kind is OutcomeKind.DURABLE
        (grant,) = session.grants
        grant.generation -= 1
        (outcome,) = await member.adapter.commit([flush_of(held, 7)])
        assert outcome.kind is OutcomeKind.FENCED
        assert await world.offsets(topic) == {0: 5}
