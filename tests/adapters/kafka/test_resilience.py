"""A Kafka that is killed, restarted and paused under a reading member."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

from consumer_sdk.errors import TransientAdapterError
from consumer_sdk.records import Assignment, OutcomeKind
from consumer_sdk.testing.conformance.adapters.harness import Member
from tests.adapters.kafka.harness import KafkaHarness
from tests.adapters.kafka.world import World, flush_of, numbered, values

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import KafkaServer

pytestmark = pytest.mark.kafka

STEADY: dict[str, Any] = {
    "session_timeout": 300.0,  # a member that hears nothing for so long gives its partitions up
    "rebalance_timeout": 300.0,
    "heartbeat_interval": 0.5,
}


@pytest.fixture
async def own(own_kafka_server: KafkaServer) -> AsyncIterator[World]:
    """A group on a Kafka that may die."""
    async with KafkaHarness(own_kafka_server.bootstrap_servers) as harness:
        harness.patience = 300.0
        yield World(harness)


async def read_through(member: Member, count: int) -> list[int]:
    """Reads on whatever the broker does, as the runtime would."""
    found: list[int] = []
    async with asyncio.timeout(300):
        while len(found) < count:
            try:
                runs = await member.fetch(max_records=50)
            except TransientAdapterError:
                continue
            found += values([m for run in runs for m in run.messages])
    return found


async def commit_until_durable(member: Member, held: Assignment, resume: int) -> None:
    """Commits again while the broker is away, as the runtime would."""
    async with asyncio.timeout(300):
        while True:
            (outcome,) = await member.adapter.commit([flush_of(held, resume)])
            if outcome.kind is OutcomeKind.DURABLE:
                return
            assert outcome.kind is OutcomeKind.RETRY, outcome
            await asyncio.sleep(0.1)  # as the runtime backs off


async def test_killed_broker_comes_back_and_nothing_is_lost_or_repeated(
    own: World, own_kafka_server: KafkaServer
) -> None:
    """T31: order and position survive; so does the membership, and commits go on."""
    topic = await own.kafka.create_stream()
    await own.kafka.append(topic, numbered(0, 600))
    async with own.member(topic, **STEADY) as member:
        (held,) = await member.holding(1)
        found = await read_through(member, 200)
        await commit_until_durable(member, held, 100)
        await own_kafka_server.kill()
        assert await member.adapter.fetch(max_records=0, max_bytes=0, max_wait=0.1) == []
        await own_kafka_server.restart()
        found += await read_through(member, 600 - len(found))
        assert found == list(range(600))
        await commit_until_durable(member, held, 600)
        assert await own.offsets(topic) == {0: 600}
        assert own.kinds("member-1") == ["assigned", "granted"]


@pytest.mark.campaign
async def test_paused_broker_is_waited_for(own: World, own_kafka_server: KafkaServer) -> None:
    """A broker that hangs for a moment changes nothing; commits meanwhile are retried."""
    topic = await own.kafka.create_stream()
    await own.kafka.append(topic, numbered(0, 100))
    quick = STEADY | {"request_timeout_ms": 1500, "rebalance_timeout": 1.5}
    quick["heartbeat_interval"] = 0.2
    async with own.member(topic, **quick) as member:
        (held,) = await member.holding(1)
        own_kafka_server.pause()
        try:
            (outcome,) = await member.adapter.commit([flush_of(held, 1)])
        finally:
            own_kafka_server.resume()
        assert outcome.kind is OutcomeKind.RETRY
        assert isinstance(outcome.error, TransientAdapterError)
        assert await read_through(member, 100) == list(range(100))
        await commit_until_durable(member, held, 100)
