"""How much is read ahead by all shards together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from consumer_sdk.adapters.kinesis.consumer.grants import Grant
from consumer_sdk.adapters.kinesis.consumer.read_ahead_budget import MOST_SHARDS, ReadAheadBudget
from consumer_sdk.adapters.kinesis.service.service import Page
from consumer_sdk.records import StartPoint
from consumer_sdk.testing import Simulation, simulate
from consumer_sdk.testing.kinesis import FakeService
from tests.adapters.kinesis.harness import shard_id
from tests.adapters.kinesis.stage import SHARD, Stage, begin, page, play

MEBIBYTE = 1 << 20


class Scene:
    """A room of 100 bytes, and who has come in."""

    def __init__(self) -> None:
        self.grants: list[Grant] = []
        self.room = ReadAheadBudget(lambda: self.grants, 100)
        self.inside: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def come(self, name: str, size: int) -> None:
        """Somebody who would like to reserve so much; all that can happen has happened then."""

        async def wait() -> None:
            await self.room.reserve(size)
            self.inside.append(name)

        self.tasks.append(asyncio.create_task(wait()))
        await asyncio.sleep(1)

    def holding(self, size: int) -> Grant:
        """A shard that has so much unread."""
        grant = Grant("s", SHARD, 1)
        grant.on_size = self.room.count
        begin(grant, StartPoint.EARLIEST)
        grant.take_in(page((1, b"x" * (size - 1))))
        self.grants.append(grant)
        return grant


def run(test: Callable[[Scene], Awaitable[None]]) -> None:
    """On virtual time."""

    async def main(_: Simulation) -> None:
        scene = Scene()
        await test(scene)
        for task in scene.tasks:
            task.cancel()
        await asyncio.gather(*scene.tasks, return_exceptions=True)

    simulate(main)


def test_only_so_many_reads_are_on_their_way_as_fit() -> None:
    """Kinesis trap 12: what they bring comes later; those that wait come in their order."""

    async def test(scene: Scene) -> None:
        for name, size in (("a", 60), ("b", 40), ("c", 30), ("d", 5)):
            await scene.come(name, size)
        assert scene.inside == ["a", "b"]
        scene.room.release(40)
        await asyncio.sleep(1)
        assert scene.inside == ["a", "b", "c", "d"]

    run(test)


def test_one_read_is_always_let_in_where_nothing_is_on_its_way() -> None:
    """However large: else nobody would ever read it."""

    async def test(scene: Scene) -> None:
        scene.holding(99)
        await scene.come("a", 1000)
        await scene.come("b", 1)
        assert scene.inside == ["a"]

    run(test)


def test_nobody_comes_in_while_all_is_full_and_a_fetch_wakes_those_that_fit() -> None:
    """Not all that wait: each of them would look at all shards."""

    async def test(scene: Scene) -> None:
        first, second = scene.holding(60), scene.holding(60)
        for name in "abc":
            await scene.come(name, 25)
        assert not scene.inside
        first.take(10, 1000)
        await asyncio.sleep(1)
        assert scene.inside == ["a"]
        second.take(10, 1000)
        await asyncio.sleep(1)
        assert scene.inside == ["a", "b", "c"]
        assert scene.room.held == 0

    run(test)


def test_shard_that_is_over_or_forgotten_holds_nothing() -> None:
    """The sum is kept, not made: it has to be right."""

    async def test(scene: Scene) -> None:
        first, second = scene.holding(60), scene.holding(70)
        assert scene.room.held == 130
        first.close()
        first.close()
        second.forget_unread()
        assert scene.room.held == 0

    run(test)


@pytest.mark.parametrize("moment", ["waiting", "admitted"])
def test_reader_that_is_cancelled_while_it_waits_leaves_its_place_to_others(moment: str) -> None:
    """Also when it was let in at that very moment."""

    async def test(scene: Scene) -> None:
        await scene.come("a", 80)
        await scene.come("gone", 80)
        if moment == "admitted":
            scene.room.release(80)
        scene.tasks[-1].cancel()
        await asyncio.sleep(1)
        if moment == "waiting":
            scene.room.release(80)
        await scene.come("b", 80)
        assert scene.inside == ["a", "b"]
        await scene.come("c", 80)  # what was reserved is still counted
        assert scene.inside == ["a", "b"]

    run(test)


def test_reader_that_is_cancelled_lets_those_behind_it_in() -> None:
    """They want less, and have waited because they came later."""

    async def test(scene: Scene) -> None:
        for name, size in (("a", 60), ("large", 80), ("b", 30)):
            await scene.come(name, size)
        scene.tasks[1].cancel()
        await asyncio.sleep(1)
        assert scene.inside == ["a", "b"]

    run(test)


def test_paused_shards_give_no_more_than_is_wanted() -> None:
    """What they give they have to read again."""

    async def test(scene: Scene) -> None:
        paused = [scene.holding(50) for _ in range(3)]
        for grant in paused:
            grant.pause()
        await scene.come("a", 10)
        assert scene.inside == ["a"]
        assert [grant.size for grant in paused] == [0, 0, 50]

    run(test)


def test_idle_shards_keep_nobody_out() -> None:
    """A thousand that wait for records, each with a read on its way."""
    room = ReadAheadBudget(list, 64 * MEBIBYTE)
    assert 1000 * room.share(0) < 64 * MEBIBYTE / 10
    assert room.share(1 << 40) == 32 * MEBIBYTE
    assert ReadAheadBudget(list, MOST_SHARDS - 1).share(0) == 0


class SlowService(FakeService):
    """Its answers take a while."""

    async def records(self, iterator: str, limit: int) -> Page:
        """Later."""
        await asyncio.sleep(0.05)
        return await super().records(iterator, limit)


def test_shards_that_were_left_alone_for_long_do_not_all_ask_at_once() -> None:
    """Kinesis trap 12: 16 shards with two megabytes each would fill the memory within a second."""

    async def test(stage: Stage) -> int:
        for shard in range(16):
            for _ in range(2):
                stage.kinesis.put("s", b"x" * 900_000, shard=shard_id(shard))
        member = stage.actor(buffer_bytes=4 * MEBIBYTE)
        member.adapter._make = lambda: SlowService(stage.kinesis, "s", member.faults)
        await member.open()
        await asyncio.sleep(30)
        held = member.adapter._session._room.held
        assert len(await member.read(600, max_records=2)) == 32
        return held

    assert MEBIBYTE < play(test, shards=16) < 8 * MEBIBYTE
