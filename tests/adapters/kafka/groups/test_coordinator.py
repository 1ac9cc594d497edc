"""Whoever keeps a group: looked up, asked, and looked up again, with a client that does what a test says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from consumer_sdk.adapters.kafka.groups import coordinator as module
from consumer_sdk.adapters.kafka.groups.coordinator import Coordinator


class ScriptedClient:
    """Two brokers: the first one that is asked who the coordinator is may stand still."""

    def __init__(self) -> None:
        self._conns: dict[Any, Any] = {}
        self.lookups = 0
        self.is_stopped = asyncio.Event()
        self.stands_still = 1

    async def coordinator_lookup(self, _kind: Any, _group: str) -> int:
        """The other broker's number."""
        self.lookups += 1
        if self.lookups <= self.stands_still:
            await self.is_stopped.wait()
        return 2

    async def send(self, node: int, request: Any, *, group: Any) -> Any:
        """An echo."""
        return node, request, group


async def test_broker_that_stands_still_is_not_asked_for_long_who_the_coordinator_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The session would end meanwhile; the client itself waits for a whole request timeout."""
    monkeypatch.setattr(module, "LOOKUP", 0.01)
    client = ScriptedClient()
    coordinator = Coordinator(client, "g")
    with pytest.raises(TimeoutError):
        await coordinator.ask("heartbeat", 30.0)
    answer = await coordinator.ask("heartbeat", 30.0)
    assert answer == (2, "heartbeat", module.MEMBERSHIP)
    assert client.lookups == 2
