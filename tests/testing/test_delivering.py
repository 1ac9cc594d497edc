"""`deliver`: what is told of each value."""

from __future__ import annotations

import asyncio

import pytest

from consumer_sdk import Batch, Message, Reject, Retry, RetryPolicy
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.testing import SimulationTimeoutError, deliver


def test_each_value_is_acked_retried_or_dead() -> None:
    """As it was given: bytes, texts, tombstones, and what JSON is made of; hours take no time."""
    seen: list[tuple[bytes | None, int]] = []

    async def handle(message: Message) -> None:
        seen.append((message.value, message.attempt))
        await asyncio.sleep(60)
        if message.value == b"text":
            raise Reject("no texts")
        if message.value == b"[1]" and message.attempt < 3:
            raise Retry("later", delay=60)
        if message.value == b"bytes":
            raise ValueError("never")

    delivered = deliver(
        handle, b"bytes", "text", None, [1], retry=RetryPolicy(max_attempts=3, initial=1.0)
    )
    assert delivered.acked == [None, [1]]
    assert sorted(map(str, delivered.retried)) == ["[1]", "[1]", "b'bytes'", "b'bytes'"]
    assert [(each.value, each.error) for each in delivered.dead] == [
        (b"text", "no texts"),
        (b"bytes", "ValueError: never"),
    ]
    assert len(seen) == 8


def test_no_value_calls_nobody() -> None:
    """And does not wait for one."""

    async def handle(message: Message) -> None:
        raise AssertionError

    assert deliver(handle).acked == []


def test_batches_and_middleware_are_those_of_run() -> None:
    """With their mistakes."""
    sizes: list[int] = []

    async def handle(batch: Batch) -> None:
        sizes.append(len(batch))

    assert deliver(handle, 1, 2, 3, batch_size=2).acked == [1, 2, 3]
    assert sizes == [2, 1]
    with pytest.raises(ConfigurationError, match="it takes a batch"):
        deliver(handle, 1)


def test_record_that_nobody_settles_ends_in_an_error() -> None:
    """A tree with a branch that is never acked, say."""

    async def handle(message: Message) -> None:
        message.tree().branch()

    with pytest.raises(SimulationTimeoutError):
        deliver(handle, 1, time_limit=60)
