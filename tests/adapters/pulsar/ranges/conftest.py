"""A topic for each test."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from tests.adapters.pulsar.ranges.stage import Stage

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import PulsarServer


@pytest.fixture
async def stage(pulsar_server: PulsarServer) -> Stage:
    """A topic that is not partitioned, and keeps everything."""
    made = Stage(pulsar_server)
    await made.create()
    return made


@pytest.fixture
def own_port() -> int:
    """A port at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
