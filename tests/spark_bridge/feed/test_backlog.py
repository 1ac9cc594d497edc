"""A feed that is as full as it may be."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import SupportsIndex

import pytest

from consumer_sdk import Consumer, Message
from consumer_sdk.errors import ConsumerClosedError
from consumer_sdk.spark_bridge import FeedStats, SparkFeed
from consumer_sdk.spark_bridge.feed.files import PosixFiles
from consumer_sdk.spark_bridge.feed.index import KeptSegment
from consumer_sdk.spark_bridge.feed.reader_marks import ReaderMark
from consumer_sdk.testing import MemoryAdapter, MemoryBroker
from tests.spark_bridge.feeding import messages, offsets


async def until(is_so: Callable[[], bool]) -> None:
    """Waits for something to be so."""
    async with asyncio.timeout(300):
        while not is_so():
            await asyncio.sleep(0.01)


async def test_a_full_feed_lets_records_wait_until_spark_has_committed(tmp_path: Path) -> None:
    """Trap 23, backlog cap: `put` waits, `stats` says why, and goes on by itself."""
    async with SparkFeed(tmp_path, max_wait=0.0, max_backlog_rows=20) as feed:
        await feed.write(messages(0, 9))
        await feed.write(messages(10, 19))
        waiting = asyncio.create_task(feed.write(messages(20, 29)))
        await until(lambda: feed.stats().is_full)
        stats = feed.stats()
        assert (stats.pending, stats.backlog_rows, stats.committed) == (10, 20, None)
        assert stats.backlog_bytes > 0
        ReaderMark(PosixFiles(tmp_path), "query").move(0)
        await until(lambda: feed.stats().committed == 0)
        assert not waiting.done()
        ReaderMark(PosixFiles(tmp_path), "query").move(1)
        await waiting
        assert not feed.stats().is_full
        assert feed.stats().backlog_rows == 20
    assert offsets(tmp_path) == list(range(30))


async def test_a_full_feed_says_once_whom_it_waits_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The slowest reader by its name, or that there is none; then silence until there was room."""
    async with SparkFeed(tmp_path, max_wait=0.0, max_backlog_rows=10) as feed:
        await feed.write(messages(0, 9))
        waiting = asyncio.create_task(feed.write(messages(10, 19)))
        await until(lambda: "no reader is registered" in caplog.text)
        ReaderMark(PosixFiles(tmp_path), "fast").move(1)
        await waiting
        ReaderMark(PosixFiles(tmp_path), "slow").move(0)
        ReaderMark(PosixFiles(tmp_path), "fast").move(2)
        waiting = asyncio.create_task(feed.write(messages(20, 29)))
        await until(lambda: feed.stats().committed == 0)
        ReaderMark(PosixFiles(tmp_path), "slow").move(2)
        await waiting
        assert caplog.text.count("is full") == 1
        ReaderMark(PosixFiles(tmp_path), "fast").move(4)
        ReaderMark(PosixFiles(tmp_path), "slow").move(3)
        await feed.write(messages(30, 39))
        waiting = asyncio.create_task(feed.write(messages(40, 49)))
        await until(lambda: "'slow' is the last one" in caplog.text)
        assert caplog.text.count("is full") == 2
        for name in ("slow", "fast"):
            ReaderMark(PosixFiles(tmp_path), name).move(4)
        await waiting


async def test_a_limit_in_bytes_counts_the_files(tmp_path: Path) -> None:
    """The first segment is let through, as the feed is empty; the second waits."""
    async with SparkFeed(tmp_path, max_wait=0.0, max_backlog_bytes=100) as feed:
        await feed.write(messages(0, 9))
        waiting = asyncio.create_task(feed.write(messages(10, 19)))
        await until(lambda: feed.stats().is_full)
        ReaderMark(PosixFiles(tmp_path), "query").move(1)
        await waiting


async def test_closing_a_full_feed_refuses_what_waits(tmp_path: Path) -> None:
    """Nothing is lost: what was not stored raises, so that its consumer delivers it again."""
    async with SparkFeed(tmp_path, max_wait=0.0, max_backlog_rows=10) as feed:
        await feed.write(messages(0, 9))
        waiting = asyncio.gather(*map(feed.put, messages(10, 19)), return_exceptions=True)
        await until(lambda: feed.stats().is_full)
    assert {type(answer) for answer in await waiting} == {ConsumerClosedError}
    assert offsets(tmp_path) == list(range(10))
    assert not feed.stats().is_full


async def test_what_was_fed_before_a_restart_counts(tmp_path: Path) -> None:
    """The backlog is the directory's; and who gives up waiting for room takes no memory."""
    async with SparkFeed(tmp_path, max_wait=0.0) as feed:
        await feed.write(messages(0, 9))
    async with SparkFeed(tmp_path, max_wait=0.0, max_backlog_rows=10) as feed:
        assert feed.stats().backlog_rows == 10
        waiting = asyncio.create_task(feed.put(messages(10, 10)[0]))
        await until(lambda: feed.stats().is_full)
        waiting.cancel()
        await until(lambda: feed.stats().pending == 0)
    assert offsets(tmp_path) == list(range(10))


async def test_a_consumer_pauses_and_counts_no_attempt(tmp_path: Path) -> None:
    """A full feed is no failure: the consumer stops fetching and goes on when there is room."""
    broker = MemoryBroker()
    broker.create_stream("orders")
    for at in range(400):
        broker.append("orders", b"%d" % at)
    attempts: set[int] = set()
    async with SparkFeed(tmp_path, max_wait=0.0, max_rows=10, max_backlog_rows=50) as feed:

        async def handle(message: Message) -> None:
            attempts.add(message.attempt)
            await feed.put(message)

        adapter = MemoryAdapter(broker, "orders", group="g")
        consumer = Consumer(adapter, max_in_flight=40)
        running = asyncio.create_task(consumer.run(handle, concurrency=32, handle_signals=False))
        await until(lambda: feed.stats().is_full)
        await until(lambda: bool(consumer.stats().paused))

        def is_all_there() -> bool:
            ReaderMark(PosixFiles(tmp_path), "query").move(feed.stats().segments)
            return feed.stats().written == 400

        await until(is_all_there)
        consumer.stop()
        await running
    assert attempts == {1}
    assert offsets(tmp_path) == list(range(400))


@pytest.mark.parametrize("name", ["max_backlog_rows", "max_backlog_bytes"])
async def test_a_limit_that_is_not_reached_changes_nothing(tmp_path: Path, name: str) -> None:
    """Far from its limit, a feed waits for nobody."""
    async with SparkFeed(tmp_path, max_wait=0.0, **{name: 10**9}) as feed:  # type: ignore[arg-type]  # an option by its name
        await feed.write(messages(0, 99))
        assert not feed.stats().is_full
    assert offsets(tmp_path) == list(range(100))


async def test_stats_are_right_while_the_feed_deletes(tmp_path: Path) -> None:
    """Deleting is another thread's work: who looks meanwhile sees all of it, or nothing."""
    seen: list[FeedStats] = []

    class Looked(list[KeptSegment]):
        def __delitem__(self, at: SupportsIndex | slice) -> None:
            super().__delitem__(at)
            seen.append(feed.stats())

    async with SparkFeed(tmp_path, max_wait=0.0, max_rows=10, keep_for=0.0) as feed:
        for first in range(0, 40, 10):
            await feed.write(messages(first, first + 9))
        index = feed._writer._index
        index.kept = Looked(index.kept)
        ReaderMark(PosixFiles(tmp_path), "query").move(2)
        await feed._in_thread(feed._writer.collect_garbage)
        assert [each.backlog_rows for each in (*seen, feed.stats())] == [20, 20]
        assert [each.segments for each in (*seen, feed.stats())] == [4, 2]


async def test_stats_say_how_old_the_backlog_is(tmp_path: Path) -> None:
    """Of the first segment that some reader needs, and of the last one; also after the end."""
    async with SparkFeed(tmp_path, max_wait=0.0, max_rows=10) as feed:
        empty = feed.stats()
        assert (empty.is_open, empty.backlog_segments) == (True, 0)
        assert (empty.backlog_age, empty.segment_age) == (0.0, None)
        for at in (1000, 3000):
            feed._writer._wall = partial(float, at)
            await feed.write(messages(at, at + 9))
        waits = feed.stats()
        assert waits.backlog_segments == 2
        assert waits.backlog_age is not None
        assert waits.segment_age is not None
        assert waits.backlog_age - waits.segment_age == pytest.approx(2000)
        assert waits.segment_age == pytest.approx(time.time() - 3000, abs=1000)
        ReaderMark(PosixFiles(tmp_path), "query").move(2)
        await feed._in_thread(feed._writer.collect_garbage)
        assert (feed.stats().backlog_segments, feed.stats().backlog_age) == (0, 0.0)
    assert (feed.stats().is_open, feed.stats().written) == (False, 20)
    assert feed.stats().directory == str(tmp_path)
