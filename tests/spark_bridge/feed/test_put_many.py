"""Whole batches of a consumer in one call: the promises of `SparkFeed.put`, record by record."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from consumer_sdk import Batch, Consumer, Message, RetryPolicy
from consumer_sdk.dead_letters import MemoryDeadLetters
from consumer_sdk.records import Assignment, Partition
from consumer_sdk.spark_bridge import FeedRecordError, SparkFeed
from consumer_sdk.spark_bridge.feed.files import PosixFiles
from consumer_sdk.spark_bridge.feed.writer import FeedWriter
from consumer_sdk.testing import MemoryAdapter, MemoryBroker
from tests.spark_bridge.feeding import manifests, messages, offsets, rows
from tests.trackers.counting import operations

BAD = (("\udc80", b""),)
"""Headers that no column of text takes."""

AGAIN = RetryPolicy(max_attempts=2, initial=0.0)


def all_kinds() -> list[Message]:
    """Partitions in turn; tombstones, no keys, headers, no times, and positions that are text."""
    found: list[Message] = []
    numbers = [Assignment(Partition("orders", str(at)), 1) for at in range(3)]
    shard = Assignment(Partition("clicks", "shard-1"), 1)
    for at in range(6):
        found += [
            Message.make(
                place,
                at,
                None if at == 5 else b"value %d" % at,
                key=None if at % 3 == 0 else b"key",
                headers=(("name", b"x"), ("none", None)) if at % 4 == 0 else (),
                timestamp=None if at == 2 else 1000 + at,
            )
            for place in numbers
        ]
        found.append(Message.make(shard, (at, 0), b"click %d" % at))
    found.append(found[5])  # delivered twice
    return found


async def test_a_batch_gives_the_rows_that_its_messages_give_one_by_one(tmp_path: Path) -> None:
    """The same columns, each partition in its order, each record once."""
    batch = all_kinds()
    async with SparkFeed(tmp_path / "one", max_wait=0.0) as feed:
        for message in batch:
            await feed.put(message)
    async with SparkFeed(tmp_path / "many", max_wait=0.0, max_rows=10) as feed:
        await feed.put_many(batch)
    one, many = rows(tmp_path / "one"), rows(tmp_path / "many")
    assert len(one) == len(many) == len(batch) - 1
    for place in {row["partitionId"] for row in one}:
        assert [row for row in many if row["partitionId"] == place] == [
            row for row in one if row["partitionId"] == place
        ]
    assert len(manifests(tmp_path / "many")) == 3


async def test_an_empty_batch_is_no_segment(tmp_path: Path) -> None:
    """It returns, and nothing waits."""
    async with SparkFeed(tmp_path, max_wait=60.0) as feed:
        await feed.put_many([])
    assert manifests(tmp_path) == []


def broker_with(good: int, *bad_at: int) -> MemoryBroker:
    """A stream of so many records; those at ``bad_at`` do not fit a feed."""
    broker = MemoryBroker()
    broker.create_stream("s")
    for at in range(good):
        broker.append("s", b"%d" % at, headers=BAD if at in bad_at else ())
    return broker


def consumer_of(broker: MemoryBroker, letters: MemoryDeadLetters | None = None) -> Consumer:
    """A consumer of that stream, of group ``g``."""
    return Consumer(
        MemoryAdapter(broker, "s", group="g"), retry=AGAIN, dead_letters=letters, drain_timeout=0.1
    )


def committed(broker: MemoryBroker) -> int:
    """The group's position."""
    return broker.committed("g", "s").get(Partition("s", "0"), 0)


async def test_of_a_batch_only_what_cannot_be_stored_fails(tmp_path: Path) -> None:
    """It alone is tried again and dead-lettered; its neighbours are stored in order, and acked."""
    broker, letters = broker_with(100, 7, 55), MemoryDeadLetters()
    consumer = consumer_of(broker, letters)
    batches: list[int] = []

    async with SparkFeed(tmp_path, max_rows=30) as feed:

        async def handle(batch: Batch) -> None:
            batches.append(len(batch))
            await feed.put_many(batch)

        running = asyncio.create_task(consumer.run(handle, batch_size=100, handle_signals=False))
        async with asyncio.timeout(300):
            while committed(broker) < 100:
                assert not running.done()
                await asyncio.sleep(0.01)
        consumer.stop()
        await running
    assert [row["offset"] for row in rows(tmp_path)] == [n for n in range(100) if n not in (7, 55)]
    assert sorted(letter.position for letter in letters.letters) == ["55", "7"]
    assert {letter.attempts for letter in letters.letters} == {2}
    assert all("does not fit the feed's columns" in letter.error for letter in letters.letters)
    assert batches[0] == 100
    assert sum(batches) == 102


async def test_what_is_pulled_is_acked_but_for_what_cannot_be_stored(tmp_path: Path) -> None:
    """``batch.ack()`` after it does not ack a record that is not there."""
    broker, letters = broker_with(20, 3), MemoryDeadLetters()
    async with SparkFeed(tmp_path, max_wait=0.0) as feed, consumer_of(broker, letters) as consumer:
        async for batch in consumer.batches(max_messages=20):
            await feed.put_many(batch)
            acked = batch.ack()
            if batch[0].attempt == 2:
                break
            assert acked == 19
        await consumer.flush()
    assert offsets(tmp_path) == [n for n in range(20) if n != 3]
    assert [letter.position for letter in letters.letters] == ["3"]


async def test_messages_of_no_consumer_raise_what_is_wrong(tmp_path: Path) -> None:
    """Nobody can be asked to deliver them again: the error names each one, and the rest is stored."""
    batch = messages(0, 9)
    batch[4].headers = batch[8].headers = BAD
    async with SparkFeed(tmp_path, max_wait=0.0) as feed:
        with pytest.raises(FeedRecordError, match=r"orders/0@4.* 1 more") as caught:
            await feed.put_many(batch)
    assert [message for message, _reason in caught.value.records] == [batch[4], batch[8]]
    assert offsets(tmp_path) == [0, 1, 2, 3, 5, 6, 7, 9]


async def test_cancelled_anywhere_nothing_is_lost_or_acked_unwritten(tmp_path: Path) -> None:
    """What is acked is in the feed at that moment; what was cancelled is there once in the end."""
    broker = broker_with(120)
    async with SparkFeed(tmp_path, max_wait=0.0, max_rows=10) as feed:
        for turns in (0, 2, 5, 9, 14, 30):
            async with consumer_of(broker) as consumer:
                store = asyncio.create_task(feed_all(consumer, feed, tmp_path, 30))
                for _ in range(turns):
                    await asyncio.sleep(0)
                store.cancel()
                await asyncio.wait([store])
            assert set(range(committed(broker))) <= set(offsets(tmp_path))
        async with consumer_of(broker) as consumer:
            await feed_all(consumer, feed, tmp_path, 120)
    assert [row["offset"] for row in rows(tmp_path)] == list(range(120))


async def feed_all(consumer: Consumer, feed: SparkFeed, directory: Path, size: int) -> None:
    """Feeds and acks batches until the group's position is the stream's end."""
    async for batch in consumer.batches(max_messages=size, max_wait=0.0):
        await feed.put_many(batch)
        assert {message.position for message in batch} <= set(offsets(directory))
        batch.ack()
        await consumer.flush()
        if batch[-1].position == 119:
            return


async def test_a_run_cancelled_in_the_middle_of_a_batch_loses_nothing(tmp_path: Path) -> None:
    """The drain gives up on the handler: the group's position stays below what is not written."""
    broker = broker_with(60)
    async with SparkFeed(tmp_path / "full", max_backlog_rows=20, max_rows=20) as feed:
        consumer = consumer_of(broker)

        async def stop_when_full() -> None:
            async with asyncio.timeout(300):
                while not feed.stats().is_full:
                    await asyncio.sleep(0.01)
            running.cancel()

        running = asyncio.create_task(
            consumer.run(feed.put_many, batch_size=20, handle_signals=False)
        )
        stopping = asyncio.create_task(stop_when_full())
        await asyncio.wait([running])
        await stopping
    assert committed(broker) == 20
    assert offsets(tmp_path / "full") == list(range(20))


def test_a_batch_costs_no_call_for_each_record(tmp_path: Path) -> None:
    """All that is done for a record is done by functions that are given all of them."""
    writer = FeedWriter(PosixFiles(tmp_path))
    writer.open()
    few, many = messages(0, 999), messages(1000, 8999)
    first = operations(lambda: writer.commit([few]))
    second = operations(lambda: writer.commit([many]))
    writer.close()
    assert offsets(tmp_path) == list(range(9000))
    assert second - first < 100
