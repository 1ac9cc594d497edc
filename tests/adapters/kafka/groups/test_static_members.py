"""Members with a ``group_instance_id`` in a group of the consumer protocol, on a real Kafka."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest

from consumer_sdk.adapters.kafka.consumer import membership
from consumer_sdk.adapters.kafka.groups.messages import ConsumerHeartbeat
from consumer_sdk.errors import AdapterError
from consumer_sdk.records import OutcomeKind
from consumer_sdk.testing.conformance.adapters.harness import Member
from tests.adapters.kafka.world import World, coordinator_of, epoch_of, flush_of, muted

pytestmark = pytest.mark.kafka


def static(name: str) -> dict[str, Any]:
    """Options of a member."""
    return {"protocol": "consumer", "group_instance_id": name}


async def numbers(member: Member, count: int) -> set[str]:
    """The partitions that it holds, once there are so many."""
    return {each.partition.id for each in await member.holding(count)}


async def test_static_member_that_comes_back_has_its_partitions_and_nobody_else_is_told(
    world: World,
) -> None:
    """Nothing moves when it leaves, nor when it is back; its successor commits what it holds."""
    topic = await world.kafka.create_stream(4)
    async with world.member(topic, **static("one")) as one:
        async with world.member(topic, **static("two")) as two:
            before = await numbers(two, 2)
            kept, told, epoch = await one.holding(2), world.kinds("member-1"), epoch_of(one)
        async with world.member(topic, **static("two")) as back:
            assert await numbers(back, 2) == before
            found = await back.adapter.commit([flush_of(a, 5) for a in await back.holding(2)])
            assert [outcome.kind for outcome in found] == [OutcomeKind.DURABLE] * 2
            assert await one.holding(2) == kept
            assert (world.kinds("member-1"), epoch_of(one)) == (told, epoch)


async def test_second_member_of_a_name_is_refused_and_the_first_one_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for a session, in which a dead one would have gone; then its error says what to do."""

    async def short(*_: object) -> float:
        return 0.2

    topic = await world.kafka.create_stream()
    async with world.member(topic, **static("one")) as first:
        held = await first.holding(1)
        monkeypatch.setattr(membership, "read_session_timeout", short)
        second = world.adapter(topic, **static("one"))
        with pytest.raises(AdapterError, match="another member has this group_instance_id: give"):
            await second.open(world.owner())
        assert await first.holding(1) == held
        (found,) = await first.adapter.commit([flush_of(each, 3) for each in held])
        assert found.kind is OutcomeKind.DURABLE
        assert world.kinds("member-1") == ["assigned", "granted"]


async def test_member_whose_name_another_one_took_is_fenced(world: World) -> None:
    """It was silent for a session; nothing that it held is committed any more."""
    topic = await world.kafka.create_stream()
    async with world.member(topic, **static("one")) as first, AsyncExitStack() as stack:
        held = await first.holding(1)
        async with muted(first):
            await _end_session(world, first)
            second = await stack.enter_async_context(world.member(topic, **static("one")))
            await second.holding(1)
        with pytest.raises(AdapterError, match="this member was replaced"):
            while True:
                await first.fetch()
        (found,) = await first.adapter.commit([flush_of(each, 9) for each in held])
        assert found.kind is OutcomeKind.FENCED
        assert "lost" in world.kinds("member-1")
        assert await world.offsets(topic) == {}


async def _end_session(world: World, member: Member) -> None:
    stamp = coordinator_of(member).stamp
    leave = ConsumerHeartbeat(world.group_id, stamp.member_id, -1, "one")
    assert (await world.kafka.ask_group(world.group_id, leave)).error == 0
