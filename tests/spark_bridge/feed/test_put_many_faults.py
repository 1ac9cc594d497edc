"""What goes wrong in the middle of a batch that is put into a feed, and whom it concerns."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk import Batch, Consumer, RetryPolicy
from consumer_sdk.dead_letters import MemoryDeadLetters
from consumer_sdk.spark_bridge import FeedRecordError, SparkFeed, TransientFeedError
from consumer_sdk.spark_bridge.feed.files import PosixFiles
from consumer_sdk.spark_bridge.feed.reader_marks import ReaderMark
from consumer_sdk.testing import MemoryAdapter, MemoryBroker
from tests.spark_bridge.feeding import messages, offsets, rows

BAD = (("\udc80", b""),)
"""Headers that no column of text takes."""


ODD = [
    ("value", 5),
    ("key", 5),
    ("position", None),
    ("position", [3]),
    ("position", 1.5),
    ("position", ("a", 1)),
    ("headers", 5),
    ("headers", (("a",),)),
    ("timestamp", 2**62),
    ("timestamp", "now"),
]


@pytest.mark.parametrize("name, odd", ODD, ids=str)
async def test_what_is_odd_fails_alone(tmp_path: Path, name: str, odd: Any) -> None:
    """Neither its neighbours fail, nor another call of its group; the error names it."""
    batch, other = messages(0, 5), messages(6, 9)
    setattr(batch[3], name, odd)
    async with SparkFeed(tmp_path) as feed:
        answers = await asyncio.gather(
            feed.put_many(batch), feed.put_many(other), feed.put(batch[3]), return_exceptions=True
        )
    assert [type(each) for each in answers] == [FeedRecordError, type(None), FeedRecordError]
    assert [message for message, _reason in answers[0].records] == [batch[3]]  # type: ignore[union-attr]
    assert f"orders/0@{batch[3].position!r}" in str(answers[0])
    assert offsets(tmp_path) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("made", [None, b"3", 3, ["3"]], ids=str)
async def test_a_form_that_is_no_text_fails_its_record(tmp_path: Path, made: Any) -> None:
    """Two records with such a form would count as one, and one of them be lost."""
    batch = messages(0, 5)
    for at in (2, 3):
        batch[at].position = ("odd", at)
    async with SparkFeed(tmp_path, encode_position=lambda _at: made) as feed:
        with pytest.raises(FeedRecordError, match=r"encode_position\(.* not text") as caught:
            await feed.put_many(batch)
    assert [message for message, _reason in caught.value.records] == batch[2:4]
    assert offsets(tmp_path) == [0, 1, 4, 5]


async def test_no_headers_are_none_whatever_the_neighbours_have(tmp_path: Path) -> None:
    """A record that fits alone fits a group."""
    batch = messages(0, 1)
    batch[0].headers = None  # type: ignore[assignment]
    batch[1].headers = (("a", b"b"),)
    async with SparkFeed(tmp_path) as feed:
        await feed.put_many(batch)
    assert [row["headers"] for row in rows(tmp_path)] == [None, [{"key": "a", "value": b"b"}]]


async def test_a_write_names_all_that_cannot_be_stored_when_the_rest_is(tmp_path: Path) -> None:
    """Whoever acks all others at that moment, of whatever segment, loses nothing."""
    batch = messages(0, 9)
    for at in (1, 8):
        batch[at].headers = BAD
    async with SparkFeed(tmp_path, max_rows=5) as feed:
        with pytest.raises(FeedRecordError, match="1 more") as caught:
            await feed.write(batch)
        assert offsets(tmp_path) == [0, 2, 3, 4, 5, 6, 7, 9]
    assert [message.position for message, _reason in caught.value.records] == [1, 8]


@pytest.mark.parametrize("put", [SparkFeed.write, SparkFeed.put_many])
async def test_nothing_is_stored_behind_a_part_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put: Callable[..., Any]
) -> None:
    """The disk is full for one segment while the feed closes: put again, the order is whole."""
    add, refusals = PosixFiles.add, [OSError(errno.ENOSPC, "no space")]

    def add_later(files: PosixFiles, name: str, data: Any) -> None:
        if refusals:
            raise refusals.pop()
        add(files, name, data)

    monkeypatch.setattr(PosixFiles, "add", add_later)
    async with SparkFeed(tmp_path, max_rows=5) as feed:
        putting = asyncio.create_task(put(feed, messages(0, 14)))
        await asyncio.sleep(0)
    with pytest.raises(TransientFeedError, match="no space"):
        await putting
    async with SparkFeed(tmp_path, max_rows=5) as feed:
        await put(feed, messages(0, 14))
    assert [row["offset"] for row in rows(tmp_path)] == list(range(15))


async def test_a_handler_that_raises_after_it_fails_each_delivery_once(tmp_path: Path) -> None:
    """Stored records come again and are dropped; what cannot be stored has no attempt less."""
    broker, letters = MemoryBroker(), MemoryDeadLetters()
    broker.create_stream("s")
    for at in range(10):
        broker.append("s", b"%d" % at, headers=BAD if at == 4 else ())
    consumer = Consumer(
        MemoryAdapter(broker, "s", group="g"),
        retry=RetryPolicy(max_attempts=3, initial=0.0),
        dead_letters=letters,
    )
    calls = 0

    async with SparkFeed(tmp_path, max_wait=0.0) as feed:

        async def handle(batch: Batch) -> None:
            nonlocal calls
            calls += 1
            await feed.put_many(batch)
            if calls == 1:
                raise RuntimeError("after it was stored")

        running = asyncio.create_task(consumer.run(handle, batch_size=10, handle_signals=False))
        async with asyncio.timeout(300):
            while not broker.committed("g", "s") or max(broker.committed("g", "s").values()) < 10:
                assert not running.done()
                await asyncio.sleep(0.01)
        consumer.stop()
        await running
    assert [row["offset"] for row in rows(tmp_path)] == [n for n in range(10) if n != 4]
    assert [(letter.position, letter.attempts) for letter in letters.letters] == [("4", 3)]


async def test_puts_of_one_batch_at_once_are_one(tmp_path: Path) -> None:
    """Whoever else puts the same records, by one or by many: each is there once, in order."""
    batch = messages(0, 99)
    async with SparkFeed(tmp_path, max_rows=30) as feed:
        await asyncio.gather(
            feed.put_many(batch), *map(feed.put, batch[20:40]), feed.put_many(batch[-5:]),
            feed.write(batch), feed.put_many(batch),
        )  # fmt: skip
    assert offsets(tmp_path) == list(range(100))


async def test_an_ack_leaves_out_what_was_not_stored_also_after_the_ack_timeout(
    tmp_path: Path,
) -> None:
    """The feed was full for so long that another delivery is to come: that one is not acked."""
    broker = MemoryBroker()
    broker.create_stream("s")
    for at in range(10):
        broker.append("s", b"%d" % at, headers=BAD if at == 4 else ())
    adapter = MemoryAdapter(broker, "s", group="g")
    retry = RetryPolicy(max_attempts=5, initial=3600.0, maximum=3600.0)
    async with (
        SparkFeed(tmp_path, max_wait=0.0, max_backlog_rows=5) as feed,
        Consumer(adapter, retry=retry, ack_timeout=0.01) as consumer,
    ):
        await feed.put_many(messages(0, 9))
        batch = await anext(consumer.batches(max_messages=10))
        putting = asyncio.create_task(feed.put_many(batch))
        async with asyncio.timeout(300):
            while sum(each.retrying for each in consumer.explain().values()) < 10:
                await asyncio.sleep(0.01)
        ReaderMark(PosixFiles(tmp_path), "query").move(1)
        await putting
        assert batch.ack() == 9
        await consumer.flush()
    assert set(broker.committed("g", "s").values()) == {4}
