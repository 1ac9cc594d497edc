"""By which protocol a group is joined, as its coordinator answers."""

from __future__ import annotations

from typing import Any, cast

import pytest
from aiokafka import errors as kafka
from aiokafka.protocol.admin import DescribeGroupsResponse_v0
from aiokafka.protocol.types import CompactArray, Int16, Int32, Schema

from consumer_sdk.adapters.kafka.client.protocol import COMPACT_TEXT, END
from consumer_sdk.adapters.kafka.groups.choosing import (
    ClassicMembers,
    ConsumerGroupDescribeResponseV0,
    choose_protocol,
    describe_members,
)
from consumer_sdk.adapters.kafka.groups.coordinator import GroupCoordinator

CLASSIC, CONSUMER = 15, 69
"""Keys of the requests that describe groups of either protocol."""
MOVED, UNSUPPORTED, NOT_FOUND, REFUSED = 16, 35, 69, 30
WHOLE = Schema(
    ("throttle_time_ms", Int32),
    (
        "groups",
        CompactArray(
            ("error_code", Int16),
            ("error_message", COMPACT_TEXT),
            ("group", COMPACT_TEXT),
            ("state", COMPACT_TEXT),
            END,
        ),
    ),
)
"""More of the answer about a group than is read."""


class Coordinator:
    """Answers by codes and states; knows the requests that it has answers for."""

    def __init__(self, consumer: int | None, classic: tuple[Any, ...] = (0, "g", "")) -> None:
        self.consumer = consumer
        self.classic = (*classic, "consumer", "range", [("me", "", "", b"", b"")])
        self.asked: list[int] = []

    def check(self, code: int) -> None:
        """As the client's cluster does."""
        if code == MOVED:
            raise kafka.NotCoordinatorForGroupError("it is looked up again")

    async def send(self, request: Any) -> Any:
        """What it answers, as bytes and back."""
        versions = {CLASSIC: (0, 0)} | ({} if self.consumer is None else {CONSUMER: (0, 1)})
        made = request.prepare(versions)
        assert (made.API_KEY, made.API_VERSION) == (request.API_KEY, 0)
        assert ("tags" in made.SCHEMA.names) == made.FLEXIBLE_VERSION
        assert type(made).decode(made.encode()).groups == ["g"]
        self.asked.append(made.API_KEY)
        if made.API_KEY == CONSUMER:
            assert not made.include_authorized_operations
            data = WHOLE.encode([0, [(self.consumer, None, "g", "Stable", {})]])
            return ConsumerGroupDescribeResponseV0.decode(data)
        return DescribeGroupsResponse_v0.decode(DescribeGroupsResponse_v0([self.classic]).encode())


async def chosen(coordinator: Coordinator) -> str:
    """The protocol that a member joins by."""
    return await choose_protocol(cast("GroupCoordinator", coordinator), "g")


@pytest.mark.parametrize(
    "consumer, classic, expected",
    [
        (None, (0, "g", ""), "classic"),  # an old broker
        (UNSUPPORTED, (0, "g", ""), "classic"),
        (0, (0, "g", ""), "consumer"),
        (NOT_FOUND, (NOT_FOUND, "g", "Stable"), "consumer"),
        (NOT_FOUND, (0, "g", ""), "consumer"),
        (NOT_FOUND, (0, "g", "Dead"), "consumer"),
        (NOT_FOUND, (0, "g", "Empty"), "consumer"),
        (NOT_FOUND, (0, "g", "Stable"), "classic"),
        (NOT_FOUND, (0, "g", "PreparingRebalance"), "classic"),
    ],
)
async def test_group_without_classic_members_is_joined_by_the_consumer_protocol(
    consumer: int | None, classic: tuple[Any, ...], expected: str
) -> None:
    """A member of the other protocol could not join a group that has members of one."""
    coordinator = Coordinator(consumer, classic)
    assert await chosen(coordinator) == expected
    asked = [] if consumer is None else [CONSUMER, CLASSIC] if consumer == NOT_FOUND else [CONSUMER]
    assert coordinator.asked == asked


@pytest.mark.parametrize(
    "coordinator",
    [Coordinator(REFUSED), Coordinator(NOT_FOUND, (REFUSED, "g", ""))],
    ids=["consumer", "classic"],
)
async def test_refusal_is_no_answer(coordinator: Coordinator) -> None:
    """A guess could be the protocol that nobody else speaks."""
    with pytest.raises(kafka.GroupAuthorizationFailedError):
        await chosen(coordinator)


@pytest.mark.parametrize(
    "coordinator",
    [Coordinator(MOVED), Coordinator(NOT_FOUND, (MOVED, "g", ""))],
    ids=["consumer", "classic"],
)
async def test_coordinator_that_has_moved_is_looked_up_again(coordinator: Coordinator) -> None:
    """The group's coordinator hears of each code."""
    with pytest.raises(kafka.NotCoordinatorForGroupError, match="looked up again"):
        await chosen(coordinator)


@pytest.mark.parametrize(
    "code, expected",
    [(0, ClassicMembers("consumer", "range", 1)), (NOT_FOUND, None)],
)
async def test_members_are_described_where_there_is_a_group(
    code: int, expected: ClassicMembers | None
) -> None:
    """Their kind, what they share out by, and how many they are."""
    coordinator = Coordinator(None, (code, "g", "Stable"))
    found = await describe_members(cast("GroupCoordinator", coordinator), "g")
    assert found == expected
