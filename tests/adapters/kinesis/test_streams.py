"""One adapter reads several streams."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any, Literal

import pytest

from consumer_sdk import Consumer, Message
from consumer_sdk.adapters.kinesis import KinesisAdapter
from consumer_sdk.adapters.kinesis.consumer.grants import Grant
from consumer_sdk.adapters.kinesis.consumer.session import Session
from consumer_sdk.adapters.kinesis.options import KinesisOptions
from consumer_sdk.adapters.kinesis.service.service import Service
from consumer_sdk.errors import AdapterError, ConfigurationError
from consumer_sdk.records import AckFlush, Checkpoint, OutcomeKind
from consumer_sdk.testing.conformance.adapters.harness import RecordingOwner
from consumer_sdk.testing.kinesis import FakeKinesis, FakeService
from tests.adapters.kinesis.stage import TIMES, Stage, play


class StreamsAdapter(KinesisAdapter):
    """An adapter whose services are in this process."""

    kinesis: FakeKinesis

    def _make_service(self, options: KinesisOptions) -> Service:
        return FakeService(self.kinesis, options.stream_name)


def consumer(
    stage: Stage, *streams: str, start: Literal["earliest", "latest"] = "earliest"
) -> Consumer:
    """A member of the group."""
    times: dict[str, Any] = TIMES
    adapter = StreamsAdapter(*streams, group="g", **times)
    adapter.kinesis = stage.kinesis
    return Consumer(adapter, store=stage.store.handle(), start=start, clock=stage.simulation.clock)


class Seen:
    """What handlers were given, as stream and value."""

    def __init__(self) -> None:
        self.values: list[tuple[str, bytes]] = []

    async def handle(self, message: Message) -> None:
        """Notes it."""
        self.values.append((message.partition.stream, message.value or b""))


async def stop(tasks: Collection[asyncio.Task[None]]) -> None:
    """Ends whole consumers."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def put(stage: Stage, *values: str) -> set[tuple[str, bytes]]:
    """One of each in either stream."""
    for stream in "st":
        for value in values:
            stage.kinesis.put(stream, value.encode(), key=value)
    return {(stream, value.encode()) for stream in "st" for value in values}


def test_streams_are_read_and_resumed_together() -> None:
    """Each record of either comes once, over a restart and a split, shared by two members."""

    async def test(stage: Stage) -> None:
        stage.kinesis.create_stream("t", 3)
        seen = Seen()
        expected = put(stage, "a", "b")
        tasks = [asyncio.create_task(consumer(stage, "s", "t").run(seen.handle))]
        await asyncio.sleep(100)
        tasks.append(asyncio.create_task(consumer(stage, "s", "t").run(seen.handle)))
        await asyncio.sleep(100)
        expected |= put(stage, "c", "d")
        stage.kinesis.split("t", "shardId-000000000001")
        expected |= put(stage, "e")
        await asyncio.sleep(100)
        await stop(tasks)
        expected |= put(stage, "f")
        again = asyncio.create_task(consumer(stage, "s", "t").run(seen.handle))
        await asyncio.sleep(100)
        await stop([again])
        assert sorted(seen.values) == sorted(expected)
        streams = {partition.stream for partition in await stage.store.list("g")}
        assert streams == {"s", "t"}

    play(test, shards=2)


def test_close_releases_the_leases_of_all_streams() -> None:
    """Nobody has to wait until they expire."""

    async def test(stage: Stage) -> None:
        stage.kinesis.create_stream("t", 2)
        task = asyncio.create_task(consumer(stage, "s", "t").run(Seen().handle))
        await asyncio.sleep(100)
        await stop([task])
        for stream in "st":
            leases = stage.store.leases("g", stream)
            view = await leases.view()
            assert (view.members, len(view.leases)) == (frozenset(), 2)
            assert {lease.owner for lease in view.leases.values()} == {None}

    play(test, shards=2)


def test_ends_of_all_streams_are_told_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is slow for one of them keeps the others waiting no longer than for one."""

    async def test(stage: Stage) -> None:
        stage.kinesis.create_stream("t", 1)
        times: dict[str, Any] = TIMES
        adapter = StreamsAdapter("s", "t", group="g", **times)
        adapter.kinesis = stage.kinesis
        owner = RecordingOwner("member", stage.journal)
        owner.adapter = adapter
        await adapter.open(owner, stage.store.handle().leases)
        await stage.journal.until(lambda: len(owner.held) == 2, "both")
        together = asyncio.Barrier(2)

        async def end(session: Session, grants: Sequence[Grant]) -> None:
            await together.wait()

        monkeypatch.setattr(Session, "end", end)
        ends = [AckFlush(each, 1, Checkpoint(ended=True)) for each in owner.held]
        async with asyncio.timeout(60):
            outcomes = await adapter.commit(ends)
        assert [outcome.kind for outcome in outcomes] == [OutcomeKind.DURABLE] * 2
        await adapter.aclose()

    play(test)


def test_stream_that_is_deleted_ends_the_consumer_with_its_name() -> None:
    """The others are given up in order."""

    async def test(stage: Stage) -> None:
        stage.kinesis.create_stream("t", 2)
        seen = Seen()
        task = asyncio.create_task(consumer(stage, "s", "t").run(seen.handle))
        await asyncio.sleep(100)
        expected = put(stage, "a")
        await asyncio.sleep(100)
        stage.kinesis.delete_stream("t")
        with pytest.raises(AdapterError, match="the stream 't' was deleted"):
            await task
        assert set(seen.values) == expected
        view = await stage.store.leases("g", "s").view()
        assert {lease.owner for lease in view.leases.values()} == {None}

    play(test)


def test_stream_that_is_not_there_is_refused_when_opened() -> None:
    """And what was opened before it is closed."""

    async def test(stage: Stage) -> None:
        with pytest.raises(ConfigurationError, match="no stream 't'"):
            await consumer(stage, "s", "t").run(Seen().handle)
        assert (await stage.store.leases("g", "s").view()).members == frozenset()

    play(test)


def test_latest_is_one_time_for_all_streams() -> None:
    """What comes after the opening is read of each, also by a member that is started later."""

    async def test(stage: Stage) -> None:
        stage.kinesis.create_stream("t", 1)
        put(stage, "before")
        await asyncio.sleep(10)
        seen = Seen()
        task = asyncio.create_task(consumer(stage, "s", "t", start="latest").run(seen.handle))
        await asyncio.sleep(100)
        expected = put(stage, "a")
        await asyncio.sleep(100)
        await stop([task])
        assert set(seen.values) == expected

    play(test)
