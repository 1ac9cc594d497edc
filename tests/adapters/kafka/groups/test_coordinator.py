"""Whoever keeps a group: looked up, asked, and looked up again, on brokers that answer by a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiokafka.protocol.group import HeartbeatRequest

from consumer_sdk.adapters.kafka.client import cluster as cluster_module
from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.groups.coordinator import GroupCoordinator
from tests.adapters.kafka.scripted_broker import COORDINATOR, HEARTBEAT, ScriptedBroker

HANG = 100.0
"""Seconds that only something that hangs takes."""


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    """One that keeps every group."""
    async with ScriptedBroker() as made:
        yield made


@pytest.fixture
async def coordinator(broker: ScriptedBroker) -> AsyncIterator[GroupCoordinator]:
    """Of a group, on an opened cluster."""
    cluster = Cluster({"bootstrap_servers": broker.address})
    await cluster.open(HANG)
    yield GroupCoordinator(cluster, "g")
    await cluster.aclose()


def heartbeat() -> HeartbeatRequest:
    """Any request to a coordinator."""
    return HeartbeatRequest("g", 1, "me")


async def silent(_request: Any) -> None:
    """Answers nothing."""


async def until(is_so: Callable[[], bool]) -> None:
    """Waits for something to become true."""
    async with asyncio.timeout(HANG):
        while not is_so():
            await asyncio.sleep(0.001)


async def test_broker_that_stands_still_is_not_asked_for_long_who_the_coordinator_is(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session would end meanwhile: another one is asked long before a request times out."""
    monkeypatch.setattr(cluster_module, "PATIENCE", 0.05)
    async with ScriptedBroker(node=2) as second:
        broker.others = [second]
        broker.scripts[COORDINATOR] = silent
        cluster = Cluster({"bootstrap_servers": broker.address})
        await cluster.open(HANG)
        async with asyncio.timeout(HANG):
            answer = await GroupCoordinator(cluster, "g").ask(heartbeat(), 30.0)
        assert (answer.error_code, second.asked[HEARTBEAT]) == (0, 1)
        await cluster.aclose()


async def test_commits_do_not_wait_behind_a_join(
    broker: ScriptedBroker, coordinator: GroupCoordinator
) -> None:
    """A broker answers it when all members have joined, and until then nothing else of that connection."""
    broker.scripts[HEARTBEAT] = silent
    joining = asyncio.create_task(coordinator.ask(heartbeat(), HANG))
    await until(lambda: broker.asked[HEARTBEAT] == 1)
    del broker.scripts[HEARTBEAT]
    async with asyncio.timeout(HANG):
        assert (await coordinator.send(heartbeat())).error_code == 0
    assert not joining.done()
    joining.cancel()


@pytest.mark.parametrize("way", ["cancelled", "late"])
async def test_join_that_nobody_waits_for_ends_its_connection(
    broker: ScriptedBroker, coordinator: GroupCoordinator, way: str
) -> None:
    """The next one would wait behind it; and the coordinator may be another one by now."""
    broker.scripts[HEARTBEAT] = silent
    joining = asyncio.create_task(coordinator.ask(heartbeat(), HANG if way == "cancelled" else 0.1))
    await until(lambda: broker.asked[HEARTBEAT] == 1)
    if way == "cancelled":
        joining.cancel()
    with pytest.raises(asyncio.CancelledError if way == "cancelled" else TimeoutError):
        await joining
    await until(lambda: broker.open_connections == 1)
    del broker.scripts[HEARTBEAT]
    async with asyncio.timeout(HANG):
        assert (await coordinator.ask(heartbeat(), HANG)).error_code == 0
    assert broker.asked[COORDINATOR] == 2
