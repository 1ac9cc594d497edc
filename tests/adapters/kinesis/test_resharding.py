"""Whole consumers while shards are split and merged, whatever the service tells of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from consumer_sdk import Consumer, Message, Ordering
from consumer_sdk.leases.stores import ended_partitions
from consumer_sdk.stores.reopening import reopen_ended
from consumer_sdk.testing.kinesis import Quirks
from tests.adapters.kinesis.stage import Stage, play

QUIRKS = [
    Quirks(),
    Quirks(names_children=False),
    Quirks(null_with_last_records=False),
    Quirks(list_lag=30.0),
    Quirks(empty_pages=3),
]
KEYS = 8


class Scene:
    """Numbered records of several keys, and what consumers made of them.

    Attributes:
        put: how many were put.
        seen: the numbers, by key, in the order of handling.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.put = 0
        self.seen: dict[bytes, list[int]] = {b"k%d" % key: [] for key in range(KEYS)}

    @property
    def numbers(self) -> list[int]:
        """All that were handled."""
        return sorted(number for numbers in self.seen.values() for number in numbers)

    def append(self, count: int) -> None:
        """Puts some records, where their keys belong."""
        for number in range(self.put, self.put + count):
            self.stage.kinesis.put("s", b"%d" % number, f"k{number % KEYS}")
        self.put += count

    def split(self, place: int) -> None:
        """Splits the open shard at a place of their list."""
        kinesis = self.stage.kinesis
        kinesis.split("s", kinesis.stream("s").open_shards()[place].id)

    def merge(self) -> None:
        """Merges the first two neighbours."""
        kinesis = self.stage.kinesis
        shards = sorted(kinesis.stream("s").open_shards(), key=lambda shard: shard.hashes)
        kinesis.merge("s", shards[0].id, shards[1].id)

    async def handle(self, message: Message) -> None:
        """A handler that takes a moment."""
        await asyncio.sleep(0.01)
        self.seen[message.key or b""].append(int(message.value or b"-1"))

    @asynccontextmanager
    async def running(self, **options: Any) -> AsyncIterator[Consumer]:
        """A member that has the time to join; it is closed in the end."""
        consumer = self.stage.consumer(**options)
        task = asyncio.create_task(
            consumer.run(self.handle, handle_signals=False, ordering=Ordering.KEY)
        )
        await asyncio.sleep(5)
        try:
            yield consumer
        finally:
            consumer.stop()
            await task

    async def until(self, count: int) -> None:
        """Waits until so many were handled."""
        while len(self.numbers) < count:
            await asyncio.sleep(0.1)

    def is_whole(self, first: int = 0) -> bool:
        """Each record came once, from the first on, and each key's in order."""
        is_ordered = all(numbers == sorted(numbers) for numbers in self.seen.values())
        return is_ordered and self.numbers == list(range(first, self.put))


@pytest.mark.parametrize("quirks", QUIRKS, ids=str)
def test_chain_of_changes_is_read_once_and_in_order_by_members_that_come_and_go(
    quirks: Quirks,
) -> None:
    """Kinesis trap 20: A, B become C, then E, F, while one member goes and another comes."""

    async def test(stage: Stage) -> bool:
        scene = Scene(stage)
        scene.append(40)
        async with scene.running():
            async with scene.running():
                scene.split(0)
                scene.append(40)
                scene.merge()
                scene.append(40)
            scene.split(-1)
            scene.append(40)
            await scene.until(100)
        scene.merge()
        scene.append(40)
        async with scene.running():
            await scene.until(200)
        return scene.is_whole()

    assert play(test, shards=2, quirks=quirks)


@pytest.mark.parametrize("quirks", QUIRKS, ids=str)
def test_checkpoint_of_before_several_changes_leads_through_all_of_them(quirks: Quirks) -> None:
    """Kinesis trap 20: nobody was there when a merge and a split came (FLINK-32218)."""

    async def test(stage: Stage) -> bool:
        scene = Scene(stage)
        scene.append(40)
        async with scene.running():
            await scene.until(40)
        scene.append(40)
        scene.merge()
        scene.append(40)
        scene.split(0)
        scene.append(40)
        async with scene.running():
            await scene.until(160)
        return scene.is_whole()

    assert play(test, shards=2, quirks=quirks)


@pytest.mark.parametrize("quirks", QUIRKS, ids=str)
def test_children_of_a_shard_that_began_at_latest_are_read_from_their_first_record(
    quirks: Quirks,
) -> None:
    """Kinesis trap 20: at "latest" they would miss what came before they were found."""

    async def test(stage: Stage) -> bool:
        scene = Scene(stage)
        scene.append(40)
        await asyncio.sleep(60)
        async with scene.running(start="latest"):
            scene.append(40)
            scene.split(0)
            scene.append(40)
            await scene.until(80)
        return scene.is_whole(first=40)

    assert play(test, quirks=quirks)


def test_group_that_begins_at_latest_after_a_split_reads_only_what_is_newer() -> None:
    """Flink began the descendants of known shards at their horizon (FLINK-36523)."""

    async def test(stage: Stage) -> bool:
        scene = Scene(stage)
        scene.append(40)
        scene.split(0)
        scene.append(40)
        await asyncio.sleep(60)
        async with scene.running(start="latest"):
            scene.append(40)
            await scene.until(40)
        async with scene.running(start="latest"):
            scene.append(40)
            await scene.until(80)
        return scene.is_whole(first=80)

    assert play(test)


def test_shard_split_before_the_group_that_began_at_latest_was_restarted_leaves_no_gap() -> None:
    """The pin is the group's: what came while nobody was there is read, before its first ack too."""

    async def test(stage: Stage) -> bool:
        scene = Scene(stage)
        async with scene.running(start="latest"):
            pass
        scene.append(40)
        scene.split(0)
        scene.append(40)
        async with scene.running(start="latest"):
            await scene.until(80)
        return scene.is_whole()

    assert play(test)


def test_group_whose_checkpoints_are_deleted_after_a_reshard_reads_all_of_it_again() -> None:
    """Kinesis trap 20: what the leases know of ends was of the checkpoints."""

    async def test(stage: Stage) -> None:
        scene = Scene(stage)
        scene.append(40)
        async with scene.running():
            scene.split(0)
            scene.append(40)
            await scene.until(80)
            await asyncio.sleep(5)
        store = stage.store.handle()
        await store.delete("g", await store.list("g"))
        again = Scene(stage)
        again.put = scene.put
        async with again.running():
            await again.until(80)
        assert again.is_whole()

    play(test)


def test_end_that_an_operator_takes_back_is_read_on_and_ends_again() -> None:
    """Nothing of it comes twice, and its children go on."""

    async def test(stage: Stage) -> None:
        scene = Scene(stage)
        scene.append(40)
        async with scene.running():
            scene.split(0)
            scene.append(40)
            await scene.until(80)
            store = stage.store.handle()
            ended = sorted(await ended_partitions(store, "g"))
            assert await reopen_ended(store, "g", ended) == ended
            await asyncio.sleep(120)
            scene.append(40)
            await scene.until(120)
            assert sorted(await ended_partitions(store, "g")) == ended
        assert scene.is_whole()

    play(test)


def test_lease_of_an_ended_shard_goes_when_the_shard_is_listed_no_more() -> None:
    """Kinesis trap 21: it is a tombstone, without which the shard would be read again."""

    async def leases(stage: Stage) -> list[tuple[str, bool]]:
        found = stage.store.handle().leases("g", "s")
        assert found is not None
        return sorted(
            (shard[-1], lease.ended) for shard, lease in (await found.view()).leases.items()
        )

    async def test(stage: Stage) -> tuple[list[tuple[str, bool]], list[tuple[str, bool]], bool]:
        scene = Scene(stage)
        scene.append(40)
        async with scene.running():
            await scene.until(40)
            scene.split(0)
            await asyncio.sleep(300)
            scene.append(40)
            await scene.until(80)
            before = await leases(stage)
            stage.kinesis.trim("s", stage.simulation.clock.wall() - 200)
            await asyncio.sleep(300)
        return before, await leases(stage), scene.is_whole()

    before, after, is_whole = play(test)
    assert before == [("0", True), ("1", False), ("2", False)]
    assert after == [("1", False), ("2", False)]
    assert is_whole
