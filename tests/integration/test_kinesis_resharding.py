"""Shards are split and merged while whole consumers read them: nothing is lost, keys stay in order."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from consumer_sdk.adapters.kinesis.service import client
from consumer_sdk.testing.servers import KinesisServer
from tests.integration.field import until
from tests.integration.kinesis_field import KinesisField, Seen

pytestmark = pytest.mark.kinesis


@pytest.fixture
def field(kinesis_server: KinesisServer, tmp_path: Path) -> KinesisField:
    """A stream of the test's own."""
    return KinesisField(kinesis_server, tmp_path)


async def reshard(field: KinesisField, first: str, second: str) -> tuple[set[str], set[str]]:
    """A split, a merge of a child with a neighbour, and a split of that; (closed, open) shards."""
    low, high = await field.server.split(field.stream, first)
    await field.append(100)
    merged = await field.server.merge(field.stream, high, second)
    await field.append(100)
    last = await field.server.split(field.stream, merged)
    await field.append(100)
    return {first, second, high, merged}, {low, *last}


async def test_shards_split_and_merged_under_two_members_lose_nothing_and_keep_the_order(
    field: KinesisField,
) -> None:
    """Kinesis trap 20: a chain of changes; after a restart no closed shard is asked for again."""
    first, second = await field.create(2)
    seen = Seen()
    async with AsyncExitStack() as members:
        tasks = [
            await members.enter_async_context(field.running(field.consumer(), seen.handle))
            for _ in range(2)
        ]
        await field.append(100)
        await until(lambda: len(seen.numbers) > 50, "half of it", *tasks)
        closed, left = await reshard(field, first, second)
        await until(lambda: len(set(seen.numbers)) == field.put, "all of it", *tasks)
        await field.until_leases(lambda leases: all(leases[shard].ended for shard in closed))
    assert seen.is_ordered()
    checkpoints = await field.checkpoints()
    assert {shard for shard, found in checkpoints.items() if found.ended} == closed
    adapter = field.adapter()
    async with field.running(field.consumer(adapter), seen.handle) as task:
        await field.append(100)
        await until(lambda: len(set(seen.numbers)) == field.put, "what is new", task)
    assert set(adapter.asked) == left
    assert seen.is_ordered()
    assert {shard for shard, lease in (await field.leases()).items() if lease.ended} == closed


async def test_record_that_is_not_settled_keeps_the_children_of_its_shard_waiting(
    field: KinesisField,
) -> None:
    """Kinesis trap 21: the end of a shard is its last record settled, not its last one read."""
    (parent,) = await field.create()
    seen = Seen()
    seen.stuck = frozenset({7})
    await field.append(20)
    async with field.running(field.consumer(), seen.handle) as task:
        await until(lambda: len(seen.numbers) == 19, "all but one", task)
        children = await field.server.split(field.stream, parent)
        await field.append(20)
        await field.until_leases(lambda leases: leases.keys() >= set(children))
        leases = await field.leases()
        assert not leases[parent].ended
        assert [leases[child].fence for child in children] == [0, 0]
        assert len(seen.numbers) == 19
        seen.let_go.set()
        await until(lambda: len(seen.numbers) == 40, "the children", task)
    assert (await field.checkpoints())[parent].ended


async def test_child_of_two_members_shards_waits_for_both(field: KinesisField) -> None:
    """Kinesis trap 20: the parents of a merge are read by different members."""
    first, second = await field.create(2)
    seen = Seen()
    seen.stuck = frozenset({19})
    async with AsyncExitStack() as members:
        tasks = [
            await members.enter_async_context(field.running(field.consumer(), seen.handle))
            for _ in range(2)
        ]
        await field.until_leases(
            lambda leases: (
                None not in (owners := {each.owner for each in leases.values()})
                and len(owners) == 2
            )
        )
        await field.append(10, shard=first)
        await field.append(10, shard=second)
        await until(lambda: len(seen.numbers) == 19, "all but one", *tasks)
        child = await field.server.merge(field.stream, first, second)
        await field.append(10)
        await field.until_leases(lambda leases: leases[first].ended and child in leases)
        leases = await field.leases()
        assert not leases[second].ended
        assert not leases[child].fence
        seen.let_go.set()
        await until(lambda: len(seen.numbers) == 30, "the child", *tasks)
    assert sorted(seen.numbers) == list(range(30))


@pytest.mark.campaign
async def test_shard_split_while_nobody_reads_is_finished_before_its_children(
    field: KinesisField,
) -> None:
    """Kinesis trap 20: a checkpoint from before, whose shard was closed in the meantime."""
    (parent,) = await field.create()
    seen = Seen()
    await field.append(20)
    async with field.running(field.consumer(), seen.handle) as task:
        await until(lambda: len(seen.numbers) == 20, "the first", task)
    await field.append(20)
    await field.server.split(field.stream, parent)
    await field.append(40)
    async with field.running(field.consumer(), seen.handle) as task:
        await until(lambda: len(seen.numbers) == 80, "the rest", task)
    assert sorted(seen.numbers) == list(range(80))
    assert seen.is_ordered()


async def test_consumer_closed_between_a_shards_end_and_its_checkpoint_reads_on_at_its_children(
    field: KinesisField,
) -> None:
    """Flink lost records where a restart met a split (FLINK-37627): here the end is read again."""
    (parent,) = await field.create()
    seen = Seen()
    seen.stuck = frozenset({19})
    await field.append(20)
    async with field.running(field.consumer(drain_timeout=0.1), seen.handle) as task:
        await until(lambda: len(seen.numbers) == 19, "all but the last", task)
        children = await field.server.split(field.stream, parent)
        await field.append(20)
        await field.until_leases(lambda leases: leases.keys() >= set(children))
    assert not (await field.leases())[parent].ended
    seen.stuck = frozenset()
    async with field.running(field.consumer(), seen.handle) as task:
        await until(lambda: len(seen.numbers) == 40, "the rest", task)
    assert sorted(seen.numbers) == list(range(40))


async def test_shards_on_several_pages_are_all_read(
    field: KinesisField, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kinesis trap 20: the list of shards ends with its last page."""
    monkeypatch.setattr(client, "SHARDS_PER_PAGE", 2)
    shards = await field.create(5)
    for shard in shards:
        await field.append(2, shard=shard)
    seen = Seen()
    adapter = field.adapter()
    async with field.running(field.consumer(adapter), seen.handle) as task:
        await until(lambda: len(seen.numbers) == 10, "all shards", task)
        assert {p.id for p in await adapter.partitions(field.stream)} == set(shards)
    assert set(adapter.asked) == set(shards)


async def test_consumer_without_a_group_reads_a_split_shard_and_its_children(
    field: KinesisField,
) -> None:
    """The leases are its own then, and the order is the same."""
    (parent,) = await field.create()
    await field.append(20)
    seen = Seen()
    consumer = field.consumer(field.adapter(group=None), store=None)
    async with asyncio.timeout(300), field.running(consumer, seen.handle) as task:
        await until(lambda: len(seen.numbers) == 20, "the parent", task)
        await field.server.split(field.stream, parent)
        await field.append(20)
        await until(lambda: len(seen.numbers) == 40, "the children", task)
    assert seen.is_ordered()
