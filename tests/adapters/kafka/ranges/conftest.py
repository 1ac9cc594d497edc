"""Range readers, each way of reading, on the shared Kafka."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeAlias

import pytest

from consumer_sdk.adapters.kafka.ranges import KafkaRanges, reader
from tests.adapters.kafka.harness import KafkaHarness

Opener: TypeAlias = Callable[..., Any]


@pytest.fixture(params=["direct", "plain"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How ranges are read: with this client's internals, or as if it had none."""
    name: str = request.param
    monkeypatch.setattr(reader, "can_read_directly", lambda: name == "direct")
    return name


@pytest.fixture
async def ranges(harness: KafkaHarness) -> AsyncIterator[Opener]:
    """Opens readers that are closed with the test."""
    async with AsyncExitStack() as stack:

        async def make(topics: Any = (), **options: Any) -> KafkaRanges:
            quick = {"read_timeout": 10.0, "retry_backoff_ms": 20}
            made = KafkaRanges(topics, bootstrap_servers=harness.servers, **(quick | options))
            stack.push_async_callback(made.aclose)
            await made.open()
            return made

        yield make
