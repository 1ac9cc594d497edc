"""The client is tried before its internals are relied on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from aiokafka.protocol import fetch

from consumer_sdk.adapters.kafka.ranges import batches
from consumer_sdk.adapters.kafka.ranges.self_test import can_read_directly


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
