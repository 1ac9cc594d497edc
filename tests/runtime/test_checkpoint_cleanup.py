"""Checkpoints of partitions that are gone are removed, and no others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from consumer_sdk import Message
from consumer_sdk.abc import StoreItem
from consumer_sdk.adapters.kinesis.service.service import Shard
from consumer_sdk.checkpoints.positions import encode_sequence
from consumer_sdk.records import Assignment, Checkpoint, Partition
from consumer_sdk.runtime import checkpoint_cleanup
from consumer_sdk.testing.kinesis import FakeService
from consumer_sdk.trackers import encode_checkpoint
from tests.adapters.kinesis.harness import shard_id
from tests.adapters.kinesis.stage import Stage, play


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks are seconds apart: a consumer asks each second whether there are records."""
    monkeypatch.setattr(checkpoint_cleanup, "FIRST", 5.0)
    monkeypatch.setattr(checkpoint_cleanup, "PACE", 20.0)


async def handle(message: Message) -> None:
    """Acks it."""


async def stored(stage: Stage, group: str = "g") -> list[str]:
    """The shards that have a checkpoint."""
    return [partition.id for partition in await stage.store.list(group)]


async def live(stage: Stage, seconds: float, **options: Any) -> None:
    """A consumer runs for so long."""
    async with stage.consumer(**options) as consumer:
        asyncio.get_running_loop().call_later(seconds, consumer.stop)
        await consumer.run(handle)


async def split_and_forget(stage: Stage) -> None:
    """The first shard is read, split, and has left the retention period; its children are read."""
    stage.put("parent")
    await live(stage, 10)
    stage.kinesis.split("s", shard_id(0))
    await live(stage, 10)
    stage.put("child")
    await live(stage, 10)
    await asyncio.sleep(100)
    stage.kinesis.trim("s", stage.simulation.clock.wall() - 50)
    assert shard_id(0) not in [each.id for each in stage.kinesis.shards("s")]
    assert shard_id(0) in await stored(stage)


def test_checkpoint_of_a_shard_that_is_gone_is_removed(caplog: pytest.LogCaptureFixture) -> None:
    """Those of its children stay, also where all of their records have expired."""
    caplog.set_level(logging.INFO, "consumer_sdk.runtime.checkpoint_cleanup")

    async def test(stage: Stage) -> None:
        await split_and_forget(stage)
        before = await stored(stage)
        await live(stage, 20)
        assert await stored(stage) == [each for each in before if each != shard_id(0)]
        assert f"removed 1 checkpoints of what is gone: s/{shard_id(0)}" in caplog.text
        await live(stage, 60)
        assert caplog.text.count("removed") == 1

    play(test)


def test_shard_that_one_list_lacks_keeps_its_checkpoint() -> None:
    """A list that is not consistent: absence counts when it is confirmed."""

    class Lacking(FakeService):
        times = 0

        async def shards(self) -> Sequence[Shard]:
            type(self).times += 1
            found = await super().shards()
            return found if self.times % 2 else [each for each in found if each.id != shard_id(0)]

    async def test(stage: Stage) -> None:
        stage.put("0", shard=0)
        stage.put("1", shard=1)
        await live(stage, 10)
        adapter = {"discovery_interval": 1e6}
        await live(stage, 100, service=Lacking, adapter=adapter)
        assert Lacking.times > 3
        assert await stored(stage) == [shard_id(0), shard_id(1)]

    play(test, shards=2)


def test_shard_with_a_lease_keeps_its_checkpoint() -> None:
    """Another member may hold it, who has seen what this one has not."""

    async def test(stage: Stage) -> None:
        await split_and_forget(stage)
        leases = stage.store.leases("g", "s")
        children = {shard_id(each): (shard_id(0),) for each in (1, 2)}
        await leases.sync({shard_id(0): (), **children})
        await leases.reopen([shard_id(0)])
        await leases.renew()
        await leases.take({shard_id(0): (await leases.view()).leases[shard_id(0)].fence})
        member = await stage.member()
        asking = asyncio.ensure_future(member.adapter.gone(await stage.store.list("g")))
        while not asking.done():
            await leases.renew()
            await asyncio.sleep(1)
        assert asking.result() == []
        await leases.aclose()

    play(test)


def text_of(shard: str, identity: str | None) -> str:
    """A checkpoint that the adapter can read."""
    partition, checkpoint = Partition("s", shard), Checkpoint((1, 0), (1, 0), identity=identity)
    return encode_checkpoint(
        checkpoint, broker="kinesis", partition=partition, encode_position=encode_sequence
    )[0]


def test_what_is_of_another_stream_or_cannot_be_read_stays() -> None:
    """Of a stream that was made again under its name, for instance: that is the operator's."""

    async def test(stage: Stage) -> None:
        store = stage.store.handle()
        texts = {
            Partition("other", shard_id(7)): text_of(shard_id(7), None),
            Partition("s", shard_id(7)): "no checkpoint",
            Partition("s", shard_id(8)): text_of(shard_id(8), "another@1"),
            Partition("s", shard_id(9)): text_of(shard_id(9), None),
        }
        claims = {Assignment(each, n): text for n, (each, text) in enumerate(texts.items())}
        await store.claim("g", list(claims))
        await store.save("g", [StoreItem(*each) for each in claims.items()])
        await live(stage, 20)
        gone = Partition("s", shard_id(9))
        assert set(await stage.store.list("g")) - {Partition("s", shard_id(0))} == {*texts} - {gone}

    play(test)
