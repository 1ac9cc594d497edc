"""How far a share group has come, by a coordinator that answers by a script."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    IncompatibleBrokerVersion,
    NotCoordinatorForGroupError,
)

from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.share.offsets import (
    DESCRIBE_OFFSETS,
    DescribeOffsetsResponseV0,
    DescribeOffsetsResponseV1,
    ShareOffset,
    share_offsets,
)
from tests.adapters.kafka.scripted_broker import COORDINATOR, ScriptedBroker, topic

TOPIC = bytes(range(16))
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
NOT_COORDINATOR, UNKNOWN_TOPIC, NOT_ALLOWED, NO_GROUP = 16, 3, 30, 69
RESPONSES = {0: DescribeOffsetsResponseV0, 1: DescribeOffsetsResponseV1}


@asynccontextmanager
async def asked(*answers: Any, version: int | None = 1) -> AsyncIterator[Any]:
    """A broker, and a cluster that is connected to it.

    Args:
        answers: of its groups, one after another: error code, and rows of its partitions without what stands in all.
        version: the newest that it knows; None: it does not know the request.
    """
    left = list(answers)

    async def answer(_request: Any) -> Any:
        code, partitions = left.pop(0)
        topics: Any = partitions and [("t", TOPIC, partitions)]
        return RESPONSES[version or 0](0, [("g", topics, code, None)], {})

    async with ScriptedBroker() as broker:
        broker.topics = [topic("t", (1, 5), (1, 5))]
        if version is not None:
            broker.newest[DESCRIBE_OFFSETS] = version
        broker.scripts[DESCRIBE_OFFSETS] = answer
        cluster = Cluster({"bootstrap_servers": [broker.address]}, ["t"])
        await cluster.open(30.0)
        try:
            yield broker, cluster
        finally:
            await cluster.aclose()


async def test_lag_comes_with_the_start_from_version_one_on() -> None:
    """Minus one is what the broker does not know: a group that has not begun, or has not settled anything yet."""
    rows = [(0, 5, 2, 37, 0, None), (1, -1, -1, -1, 0, None)]
    async with asked((0, rows)) as (broker, cluster):
        found = await share_offsets(cluster, "g", [SECOND, FIRST])
    assert found == {FIRST: ShareOffset(5, 37), SECOND: ShareOffset()}
    request = broker.seen[-1]
    assert request.groups == [("g", [("t", [0, 1])])]
    assert (1, "tags" in request.SCHEMA.names) == (request.API_VERSION, request.FLEXIBLE_VERSION)


async def test_older_broker_tells_the_start_alone() -> None:
    """That of Kafka 4.1."""
    async with asked((0, [(0, 5, 2, 0, None)]), version=0) as (broker, cluster):
        assert await share_offsets(cluster, "g", [FIRST]) == {FIRST: ShareOffset(5, None)}
    request = broker.seen[-1]
    assert (0, "tags" in request.SCHEMA.names) == (request.API_VERSION, request.FLEXIBLE_VERSION)


async def test_broker_without_the_request_is_said() -> None:
    """It has no share groups."""
    async with asked(version=None) as (_, cluster):
        with pytest.raises((IncompatibleBrokerVersion, NotImplementedError)):
            await share_offsets(cluster, "g", [FIRST])


async def test_group_or_partition_that_the_broker_does_not_know_has_not_begun() -> None:
    """That is no error: its first member may come yet."""
    missing = [(0, -1, -1, -1, UNKNOWN_TOPIC, "no such partition")]
    async with asked((NO_GROUP, []), (0, missing), (0, []), (0, None)) as (_, cluster):
        for _ in range(4):
            assert await share_offsets(cluster, "g", [FIRST]) == {FIRST: ShareOffset()}


async def test_broker_that_hides_an_error_is_asked_again_about_what_is_begun() -> None:
    """It says -1 for a moment where its share coordinator does not tell; what is not begun is not asked for again."""
    rows = [(0, -1, -1, -1, 0, None), (1, -1, -1, -1, 0, None)]
    async with asked((0, rows), (0, rows[:1]), (0, [(0, 5, 2, 0, 0, None)])) as (broker, cluster):
        found = await share_offsets(cluster, "g", [FIRST, SECOND], begun=[FIRST])
    assert found == {FIRST: ShareOffset(5, 0), SECOND: ShareOffset()}
    assert [request.groups for request in broker.seen[-2:]] == [[("g", [("t", [0])])]] * 2


async def test_lag_that_stays_unknown_is_none_and_not_zero() -> None:
    """After some questions."""
    row = (0, 5, 2, -1, 0, None)
    async with asked(*[(0, [row])] * 3) as (broker, cluster):
        found = await share_offsets(cluster, "g", [FIRST], begun=[FIRST], pauses=(0.0, 0.0))
    assert found == {FIRST: ShareOffset(5, None)}
    assert broker.asked[DESCRIBE_OFFSETS] == 3


@pytest.mark.parametrize(
    "answer", [(NOT_ALLOWED, []), (0, [(0, -1, -1, -1, NOT_ALLOWED, "no right")])]
)
async def test_refusal_is_raised(answer: Any) -> None:
    """Of the group as a whole, or of a partition."""
    async with asked(answer) as (_, cluster):
        with pytest.raises(GroupAuthorizationFailedError):
            await share_offsets(cluster, "g", [FIRST])


async def test_coordinator_that_has_moved_is_looked_up_again() -> None:
    """By whoever asks again."""
    async with asked((NOT_COORDINATOR, []), (0, [(0, 5, 2, 1, 0, None)])) as (broker, cluster):
        with pytest.raises(NotCoordinatorForGroupError):
            await share_offsets(cluster, "g", [FIRST])
        assert await share_offsets(cluster, "g", [FIRST]) == {FIRST: ShareOffset(5, 1)}
    assert broker.asked[COORDINATOR] == 2
