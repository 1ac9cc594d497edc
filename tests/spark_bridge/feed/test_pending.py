"""Groups of waiting records."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from consumer_sdk.spark_bridge.errors import TransientFeedError
from consumer_sdk.spark_bridge.feed.pending import Entry, Pending
from tests.spark_bridge.feeding import messages


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that makes futures; it never runs."""
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def entry(loop: asyncio.AbstractEventLoop, rows: int, size: int = 1, since: float = 0.0) -> Entry:
    """One call's records."""
    return Entry(messages(1, rows), size, since, loop.create_future())


def test_a_group_is_full_by_rows_or_bytes(loop: asyncio.AbstractEventLoop) -> None:
    """Either limit closes the group, and what is over it waits for the next."""
    pending = Pending(max_rows=5, max_bytes=100)
    for rows, size in ((3, 1), (2, 1), (1, 100), (1, 1)):
        pending.add(entry(loop, rows, size))
    groups = []
    while pending:
        groups.append((pending.is_full, [len(each.messages) for each in pending.take()]))
    assert groups == [(True, [3, 2]), (True, [1]), (False, [1])]
    assert pending.rows == 0


def test_cancelled_calls_are_left_out(loop: asyncio.AbstractEventLoop) -> None:
    """They take no room in the group either."""
    pending = Pending(max_rows=2, max_bytes=100)
    entries = [entry(loop, 1) for _ in range(4)]
    for each in entries:
        pending.add(each)
    entries[0].answer.cancel()
    assert pending.take() == entries[1:3]


def test_the_oldest_is_the_first_in_line(loop: asyncio.AbstractEventLoop) -> None:
    """What a full group left behind keeps its own time of arrival."""
    pending = Pending(max_rows=1, max_bytes=100)
    for since in (1.0, 2.0):
        pending.add(entry(loop, 1, since=since))
    seen = [(pending.oldest, len(pending.take())) for _ in range(3)]
    assert seen == [(1.0, 1), (2.0, 1), (None, 0)]


def test_a_large_call_is_parted(loop: asyncio.AbstractEventLoop) -> None:
    """No part is larger than a group, and the parts are the whole."""
    pending = Pending(max_rows=4, max_bytes=1000)
    whole = messages(0, 9)
    parts = list(pending.parts(whole))
    assert [len(part) for part, _ in parts] == [4, 4, 2]
    assert [message for part, _ in parts for message in part] == whole
    assert sum(size for _, size in parts) == sum(message.size for message in whole)
    assert list(pending.parts([])) == []


def test_an_answer_reaches_only_who_still_waits(loop: asyncio.AbstractEventLoop) -> None:
    """A cancelled caller is left alone; an error is each caller's own."""
    error = TransientFeedError("full")
    first, second, gone = (entry(loop, 1) for _ in range(3))
    gone.answer.cancel()
    for each in (first, second, gone):
        each.settle(error)
    assert first.answer.exception() is not second.answer.exception()
    assert isinstance(first.answer.exception(), TransientFeedError)
    assert gone.answer.cancelled()
