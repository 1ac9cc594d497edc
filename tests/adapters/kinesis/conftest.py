"""A server whose answers a test arranges, and the adapter's client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from consumer_sdk.adapters.kinesis.service.client import ClientService
from tests.adapters.kinesis.answering import Answering, answering, opened


@pytest.fixture
async def server() -> AsyncIterator[Answering]:
    """A server that knows the stream ``orders``."""
    async with answering() as server:
        yield server


@pytest.fixture
async def service(server: Answering) -> AsyncIterator[ClientService]:
    """A service that is open on it."""
    async with opened(server.url) as service:
        yield service
