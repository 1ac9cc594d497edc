"""Groups of the consumer protocol (KIP-848), as Kafka's own tools see and end their members."""

# The client has no types, so that its classes cannot be subclassed for the type checker.
# mypy: disable-error-code="misc"

from __future__ import annotations

from typing import Any, ClassVar

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import AlterConfigsRequest
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

from consumer_sdk.adapters.kafka.client.protocol import Uuid
from consumer_sdk.adapters.kafka.groups.messages import ConsumerHeartbeat
from consumer_sdk.adapters.kafka.groups.structs import from_wire, to_wire

__all__ = ["end_members", "member_ids", "set_session"]

DESCRIBE = 69
NOT_THERE = (25, 69)
"""Error codes: unknown member, no such group."""
LEAVES = -1
"""The epoch of a heartbeat by which a member leaves."""
GROUP = 32
"""A type of resource that has a configuration."""

_TEXT = CompactString("utf-8")
_END = ("tags", TaggedFields)
_ASSIGNMENT = Schema(
    (
        "topic_partitions",
        CompactArray(
            ("topic_id", Uuid), ("topic", _TEXT), ("partitions", CompactArray(Int32)), _END
        ),
    ),
    _END,
)


class _DescribeResponse(Response):
    """The beginning of an answer about one group."""

    API_KEY = DESCRIBE
    API_VERSION = 0
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32),
        (
            "groups",
            CompactArray(
                ("error_code", Int16),
                ("error_message", _TEXT),
                ("group", _TEXT),
                ("state", _TEXT),
                ("group_epoch", Int32),
                ("assignment_epoch", Int32),
                ("assignor", _TEXT),
                (
                    "members",
                    CompactArray(
                        ("member_id", _TEXT),
                        ("instance_id", _TEXT),
                        ("rack", _TEXT),
                        ("epoch", Int32),
                        ("client_id", _TEXT),
                        ("client_host", _TEXT),
                        ("topics", CompactArray(_TEXT)),
                        ("pattern", _TEXT),
                        ("assignment", _ASSIGNMENT),
                        ("target", _ASSIGNMENT),
                        _END,
                    ),
                ),
            ),
        ),
    )


class _DescribeRequest(RequestStruct):
    FLEXIBLE_VERSION = True
    API_KEY = DESCRIBE
    API_VERSION = 0
    RESPONSE_TYPE = _DescribeResponse
    SCHEMA: ClassVar[Schema] = Schema(
        ("groups", CompactArray(_TEXT)), ("include_authorized_operations", Boolean), _END
    )


class _Describe(Request[_DescribeRequest]):
    API_KEY = DESCRIBE

    def __init__(self, group: str) -> None:
        self._group = group

    def build(self, request_struct_class: type[Any]) -> Any:
        return request_struct_class([self._group], False, {})


async def member_ids(admin: AIOKafkaAdminClient, group: str) -> list[str]:
    """The members that the group knows; none if there is no such group of this protocol."""
    coordinator = await admin.find_coordinator(group)
    ((code, *_, members),) = (await admin._send_request(_Describe(group), coordinator)).groups
    assert code in {0, *NOT_THERE}, f"{group}: {code}"
    return [member_id for member_id, *_ in members]


async def end_members(admin: AIOKafkaAdminClient, group: str) -> None:
    """Has a group forget all its members, as it does when their sessions end."""
    coordinator = await admin.find_coordinator(group)
    for member_id in await member_ids(admin, group):
        request = to_wire(ConsumerHeartbeat(group, member_id, LEAVES))
        left = from_wire(await admin._send_request(request, coordinator))
        assert left.error in {0, *NOT_THERE}, left


async def set_session(admin: AIOKafkaAdminClient, group: str, seconds: float) -> None:
    """Sets the session of a group's members; the broker's own is for all others."""
    settings = {"consumer.session.timeout.ms": str(round(seconds * 1000))}
    request = AlterConfigsRequest([(GROUP, group, list(settings.items()))])
    answer = await admin._send_request(request)
    assert not answer.resources[0][0], answer
