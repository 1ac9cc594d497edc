"""The client is tried before its internals are relied on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from aiokafka.protocol import fetch

from consumer_sdk.adapters.kafka.ranges import KafkaRanges, batches
from consumer_sdk.adapters.kafka.ranges.client_support import can_read_directly
from consumer_sdk.errors import ConfigurationError


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """The answer is asked for anew, before the test and after it."""
    can_read_directly.cache_clear()
    yield
    can_read_directly.cache_clear()


def test_installed_client_is_read_directly() -> None:
    """The slow way is for clients that we do not know."""
    assert can_read_directly()


def test_other_requests_lead_to_the_public_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose requests are made in another way."""
    monkeypatch.setattr(fetch, "FetchRequest", object)
    assert not can_read_directly()


def test_other_batches_lead_to_the_public_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose batches are opened in another way."""
    monkeypatch.setattr(batches, "MemoryRecords", object)
    assert not can_read_directly()


async def test_size_of_records_is_not_told_the_public_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""
    monkeypatch.setattr(batches, "MemoryRecords", object)
    reader = KafkaRanges("t", bootstrap_servers="127.0.0.1:1")
    with pytest.raises(ConfigurationError, match="pip install"):
        await reader.record_size([])
