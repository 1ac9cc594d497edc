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
from consumer_sdk.errors import AdapterError, TransientStoreError
from consumer_sdk.records import Assignment, Capabilities, Checkpoint, Partition
from consumer_sdk.runtime import checkpoint_cleanup
from consumer_sdk.runtime.checkpoint_cleanup import CheckpointCleanup
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing import Simulation, simulate
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


class Ends:
    """An adapter that knows which partitions are gone.

    Attributes:
        gone_ones: those.
        asked: when it was asked, and for how many.
        troubles: what it raises first.
    """

    broker = "memory"
    decode_position = int

    def __init__(self, group: str | None = "g", *, wants_ends: bool = True) -> None:
        self.group = group
        self.capabilities = Capabilities(wants_ends=wants_ends)
        self.gone_ones: list[Partition] = []
        self.asked: list[tuple[float, int]] = []
        self.troubles: list[Exception] = []

    async def gone(self, partitions: Sequence[Partition]) -> list[Partition]:
        """Says which."""
        self.asked.append((asyncio.get_running_loop().time(), len(partitions)))
        if self.troubles:
            raise self.troubles.pop()
        return self.gone_ones

    def identity(self, assignment: Assignment) -> None:
        """Streams have none here."""


async def cleanup(adapter: Any, store: MemoryStore | None, seconds: float) -> bool:
    """Runs for so long; whether it ends by itself."""
    task = asyncio.create_task(CheckpointCleanup(adapter, store).run())
    await asyncio.sleep(seconds)
    if task.done():
        task.result()
        return True
    task.cancel()
    return False


async def filled(count: int) -> MemoryStore:
    """A store with a checkpoint of each partition."""
    store = MemoryStore()
    for number in range(count):
        held = Assignment(Partition("s", f"{number:02}"), 1)
        await store.claim("g", [held])
        text, _ = encode_checkpoint(
            Checkpoint(1, 2), broker="memory", partition=held.partition, encode_position=str
        )
        await store.save("g", [StoreItem(held, text)])
    return store


def test_look_that_fails_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """The next one comes as late as always; the log says why."""

    async def test(_: Simulation) -> None:
        adapter = Ends()
        adapter.troubles = [TransientStoreError("down"), AdapterError("forbidden")]
        assert not await cleanup(adapter, await filled(3), 60)
        assert adapter.asked == [(5.0, 3), (25.0, 3), (45.0, 3)]

    simulate(test)
    assert "could not be removed: down" in caplog.text
    assert "could not be removed: forbidden" in caplog.text


@pytest.mark.parametrize("count, names", [(10, "s/09"), (11, "s/09, …")])
def test_line_of_the_log_names_ten_partitions(
    count: int, names: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One that is gone without a checkpoint is not counted."""

    async def test(_: Simulation) -> None:
        adapter, store = Ends(), await filled(count)
        adapter.gone_ones = [*await store.list("g"), Partition("s", "never stored")]
        await cleanup(adapter, store, 10)
        assert await store.list("g") == []

    with caplog.at_level(logging.INFO, "consumer_sdk.runtime.checkpoint_cleanup"):
        simulate(test)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"removed {count} checkpoints of what is gone: s/00, s/01")
    assert line.endswith(names)


@pytest.mark.parametrize(
    "group, has_store, wants_ends", [(None, True, True), ("g", False, True), ("g", True, False)]
)
def test_nothing_is_looked_for_without_a_group_a_store_or_ends(
    group: str | None, *, has_store: bool, wants_ends: bool
) -> None:
    """There is nothing to remove, or nobody who knows."""

    async def test(_: Simulation) -> None:
        adapter = Ends(group, wants_ends=wants_ends)
        assert await cleanup(adapter, MemoryStore() if has_store else None, 10)
        assert adapter.asked == []

    simulate(test)
