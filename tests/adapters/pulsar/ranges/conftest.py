"""A topic for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from consumer_sdk.testing.servers.ports import free_ports
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
    return free_ports(1)[0]
