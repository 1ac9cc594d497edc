"""Which protocol to join a group by, where that is left open."""

# The client has no types, so that its classes cannot be subclassed for the type checker.
# mypy: disable-error-code="misc"

from __future__ import annotations

from typing import Any, ClassVar, Literal

from consumer_sdk.adapters.kafka import client_support as _support  # noqa: F401 - is it there?

# isort: split
from aiokafka import errors as kafka
from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.admin import DescribeGroupsRequest
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

from consumer_sdk.adapters.kafka.groups.coordinator import Coordinator

__all__ = ["choose_protocol"]

DESCRIBE = 69
_TEXT = CompactString("utf-8")
MOVED = (14, 15, 16)  # is loading, not available, not the coordinator
NOT_FOUND = 69
UNSUPPORTED = 35
NO_MEMBERS = ("", "Dead", "Empty")
"""States of a classic group that anybody may join by another protocol."""


class ConsumerGroupDescribeResponseV0(Response):
    """The beginning of an answer about one group; what follows is not read."""

    API_KEY = DESCRIBE
    API_VERSION = 0
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32),
        (
            "groups",
            CompactArray(("error_code", Int16), ("error_message", _TEXT), ("group", _TEXT)),
        ),
    )


class ConsumerGroupDescribeRequestV0(RequestStruct):
    """Asks for groups of the consumer protocol."""

    FLEXIBLE_VERSION = True
    API_KEY = DESCRIBE
    API_VERSION = 0
    RESPONSE_TYPE = ConsumerGroupDescribeResponseV0
    SCHEMA: ClassVar[Schema] = Schema(
        ("groups", CompactArray(_TEXT)),
        ("include_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class ConsumerGroupDescribe(Request[ConsumerGroupDescribeRequestV0]):
    """Asks for one group of the consumer protocol."""

    API_KEY = DESCRIBE

    def __init__(self, group: str) -> None:
        self._group = group

    def build(self, request_struct_class: type[Any]) -> Any:
        """The request as it is sent."""
        return request_struct_class([self._group], False, {})


async def choose_protocol(coordinator: Coordinator, group: str) -> Literal["classic", "consumer"]:
    """The consumer protocol, unless the broker has none, or classic members are in the group.

    Raises:
        KafkaError, OSError, TimeoutError: the coordinator does not say.
    """
    try:
        (answer, *_) = (await coordinator.send(ConsumerGroupDescribe(group))).groups
    except (IncompatibleBrokerVersion, NotImplementedError):
        return "classic"
    _check(coordinator, answer[0], {NOT_FOUND, UNSUPPORTED})
    if answer[0] != NOT_FOUND:
        return "classic" if answer[0] == UNSUPPORTED else "consumer"
    (found, *_) = (await coordinator.send(DescribeGroupsRequest([group]))).groups
    code, _name, state, *_ = found
    _check(coordinator, code, {NOT_FOUND})
    return "consumer" if code == NOT_FOUND or state in NO_MEMBERS else "classic"


def _check(coordinator: Coordinator, code: int, meant: set[int]) -> None:
    if code in MOVED:
        coordinator.coordinator_moved()
    if code and code not in meant:
        raise kafka.for_code(code)(code)
