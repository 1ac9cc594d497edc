"""Looks up by which protocol to join a group, and which assignors its members have."""

# The client has no types, so that its classes cannot be subclassed for the type checker.
# mypy: disable-error-code="misc"

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

from aiokafka import errors as kafka
from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.admin import DescribeGroupsRequest
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    Int16,
    Int32,
    Schema,
)

from consumer_sdk.adapters.kafka.client.protocol import COMPACT_TEXT, END
from consumer_sdk.adapters.kafka.groups.coordinator import GroupCoordinator

__all__ = ["ClassicMembers", "choose_protocol", "describe_members"]

DESCRIBE = 69
NOT_FOUND = 69
UNSUPPORTED = 35
NO_MEMBERS = ("", "Dead", "Empty")
"""States of a classic group that anybody may join by another protocol."""


class ClassicMembers(NamedTuple):
    """The members of a classic group.

    Attributes:
        kind: ``consumer`` for consumers; Kafka Connect's workers have another one.
        assignor: that they share out by; empty while they rebalance.
        size: how many there are.
    """

    kind: str
    assignor: str
    size: int


class ConsumerGroupDescribeResponseV0(Response):
    """The beginning of an answer about one group; what follows is not read."""

    API_KEY = DESCRIBE
    API_VERSION = 0
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32),
        (
            "groups",
            CompactArray(
                ("error_code", Int16), ("error_message", COMPACT_TEXT), ("group", COMPACT_TEXT)
            ),
        ),
    )


class ConsumerGroupDescribeRequestV0(RequestStruct):
    """Asks for groups of the consumer protocol."""

    FLEXIBLE_VERSION = True
    API_KEY = DESCRIBE
    API_VERSION = 0
    RESPONSE_TYPE = ConsumerGroupDescribeResponseV0
    SCHEMA: ClassVar[Schema] = Schema(
        ("groups", CompactArray(COMPACT_TEXT)),
        ("include_authorized_operations", Boolean),
        END,
    )


class ConsumerGroupDescribe(Request[ConsumerGroupDescribeRequestV0]):
    """Asks for one group of the consumer protocol."""

    API_KEY = DESCRIBE

    def __init__(self, group: str) -> None:
        self._group = group

    def build(self, request_struct_class: type[Any]) -> Any:
        """The request as it is sent."""
        return request_struct_class([self._group], False, {})


async def choose_protocol(
    coordinator: GroupCoordinator, group: str
) -> Literal["classic", "consumer"]:
    """The consumer protocol, unless the broker has none, or classic members are in the group.

    Raises:
        KafkaError, OSError, TimeoutError: the coordinator does not say.
    """
    try:
        (answer, *_) = (await coordinator.send(ConsumerGroupDescribe(group))).groups
    except IncompatibleBrokerVersion:
        return "classic"
    _check(coordinator, answer[0], {NOT_FOUND, UNSUPPORTED})
    if answer[0] != NOT_FOUND:
        return "classic" if answer[0] == UNSUPPORTED else "consumer"
    code, _name, state, *_ = await _describe(coordinator, group)
    return "consumer" if code == NOT_FOUND or state in NO_MEMBERS else "classic"


async def describe_members(coordinator: GroupCoordinator, group: str) -> ClassicMembers | None:
    """How the members of a classic group share out; None where there is no such group.

    Raises:
        KafkaError, OSError, TimeoutError: the coordinator does not say.
    """
    code, _name, _state, kind, assignor, members, *_ = await _describe(coordinator, group)
    return None if code == NOT_FOUND else ClassicMembers(kind, assignor, len(members))


async def _describe(coordinator: GroupCoordinator, group: str) -> Any:
    """Code, name, state, kind, assignor and members of a classic group."""
    (found, *_) = (await coordinator.send(DescribeGroupsRequest([group]))).groups
    _check(coordinator, found[0], {NOT_FOUND})
    return found


def _check(coordinator: GroupCoordinator, code: int, meant: set[int]) -> None:
    coordinator.check(code)
    if code and code not in meant:
        raise kafka.for_code(code)(code)
