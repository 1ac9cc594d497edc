"""Topics that grow, and topics that are deleted and made again."""

from __future__ import annotations

import asyncio

import pytest

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import StartPoint
from tests.adapters.kafka.world import World, cluster_of, flush_of, numbered, values

pytestmark = pytest.mark.kafka


async def test_without_a_group_all_partitions_are_read_and_nothing_is_committed(
    world: World,
) -> None:
    """Give the consumer a store: the broker keeps no position."""
    topic = await world.kafka.create_stream(3)
    for partition in range(3):
        await world.kafka.append(topic, numbered(0, 2), partition)
    async with world.member(topic, group=None) as member:
        held = await member.holding(3)
        assert sorted(values(await member.read(6))) == [0, 0, 0, 1, 1, 1]
        assert not member.adapter.capabilities.commits
        assert await member.adapter.committed(held) == dict.fromkeys(held)
        with pytest.raises(ConfigurationError, match="group="):
            await member.adapter.commit([flush_of(held[0], 1)])


async def test_new_partition_without_a_group_leaves_the_others_where_they_are(
    world: World,
) -> None:
    """The client's own way re-read all records, and with "latest" lost 50 of 50 in the new one."""
    topic = await world.kafka.create_stream()
    await world.kafka.append(topic, numbered(0, 5))
    owner = world.owner()
    async with world.member(topic, owner, group=None) as member:
        (first,) = await member.holding(1)
        assert values(await member.read(5)) == list(range(5))
        member.adapter.pause(first)
        await world.kafka.grow(topic, 2)
        await world.kafka.append(topic, numbered(10, 13), 1)
        assert values(await member.read(3)) == [10, 11, 12]
        await world.kafka.append(topic, numbered(5, 7), 0)
        assert await member.fetch() == []  # still paused
        member.adapter.resume(first)
        assert values(await member.read(2)) == [5, 6]
        assert [a.discovered for a in await member.holding(2)] == [False, True]


@pytest.mark.parametrize("group", ["g", None])
async def test_topic_made_again_is_read_from_its_start_in_a_new_epoch(
    world: World, group: str | None
) -> None:
    """At the old position the new topic's first records would be passed over in silence."""
    topic = await world.kafka.create_stream()
    await world.kafka.append(topic, numbered(0, 3))
    async with world.member(topic, group=group, metadata_max_age_ms=60_000) as member:
        (old,) = await member.holding(1)
        await member.read(3)
        identity = member.adapter.identity(old)
        await world.kafka.recreate(topic)
        await world.kafka.append(topic, numbered(100, 110))
        await cluster_of(member).refresh()
        found: list[int] = []
        async with asyncio.timeout(world.kafka.patience):
            while 109 not in found:
                runs = await member.fetch()
                found += [
                    int(m.value or b"") for r in runs if r.assignment is not old for m in r.messages
                ]
        assert found == list(range(100, 110))
        (new,) = await member.holding(1)
        assert member.adapter.identity(new) not in {identity, None}


async def test_deleted_topic_is_not_created_again(world: World) -> None:
    """The client's metadata requests would bring it back, empty, while it is being read."""
    topic = await world.kafka.create_stream()
    await world.kafka.append(topic, numbered(0, 3))
    async with world.member(topic, metadata_max_age_ms=100) as member:
        await member.holding(1)
        await member.read(3)
        await world.kafka.delete(topic)
        await world.kafka.until_absent(topic)
        for _ in range(5):
            await cluster_of(member).refresh()
            await member.fetch()
        assert topic not in await world.kafka.admin.list_topics()


async def test_latest_in_a_quiet_partition_misses_nothing_that_comes_after(world: World) -> None:
    """The position is resolved once, before the first fetch."""
    topic = await world.kafka.create_stream()
    await world.kafka.append(topic, numbered(0, 3))
    owner = world.owner()
    owner.start = StartPoint.LATEST
    async with world.member(topic, owner, group=None) as member:
        await member.holding(1)
        await member.read_nothing()
        await world.kafka.append(topic, numbered(3, 6))
        assert values(await member.read(3)) == [3, 4, 5]
