"""Range readers on the shared Kafka."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeAlias

import pytest

from consumer_sdk.adapters.kafka.ranges import KafkaRanges
from tests.adapters.kafka.harness import KafkaHarness

Opener: TypeAlias = Callable[..., Any]


@pytest.fixture
async def ranges(harness: KafkaHarness) -> AsyncIterator[Opener]:
    """Opens readers that are closed with the test."""
    async with AsyncExitStack() as stack:

        async def make(topics: Any = (), **options: Any) -> KafkaRanges:
            quick = {"read_timeout": 120.0, "retry_backoff_ms": 20}
            made = KafkaRanges(topics, bootstrap_servers=harness.servers, **(quick | options))
            stack.push_async_callback(made.aclose)
            await made.open()
            return made

        yield make
