"""How far share groups have come, by their coordinator: all before a partition's start offset is settled for ever."""

# The client has no types, so that its classes cannot be subclassed for the type checker.
# mypy: disable-error-code="misc"

from __future__ import annotations

from typing import Any, ClassVar

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

from consumer_sdk.adapters.kafka.client.protocol import Uuid

__all__ = ["start_offsets"]

_TEXT = CompactString("utf-8")
_END = ("tags", TaggedFields)


class DescribeOffsetsResponse(Response):
    """A start offset for each partition; -1 for none."""

    API_KEY = 90
    API_VERSION = 0
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32),
        (
            "groups",
            CompactArray(
                ("group", _TEXT),
                (
                    "topics",
                    CompactArray(
                        ("topic", _TEXT),
                        ("topic_id", Uuid),
                        (
                            "partitions",
                            CompactArray(
                                ("partition", Int32),
                                ("start_offset", Int64),
                                ("leader_epoch", Int32),
                                ("error_code", Int16),
                                ("error_message", _TEXT),
                                _END,
                            ),
                        ),
                        _END,
                    ),
                ),
                ("error_code", Int16),
                ("error_message", _TEXT),
                _END,
            ),
        ),
        _END,
    )


class DescribeOffsetsRequest(RequestStruct):
    """DescribeShareGroupOffsets."""

    FLEXIBLE_VERSION = True
    API_KEY = 90
    API_VERSION = 0
    RESPONSE_TYPE = DescribeOffsetsResponse
    SCHEMA: ClassVar[Schema] = Schema(
        (
            "groups",
            CompactArray(
                ("group", _TEXT),
                (
                    "topics",
                    CompactArray(("topic", _TEXT), ("partitions", CompactArray(Int32)), _END),
                ),
                _END,
            ),
        ),
        _END,
    )


class DescribeOffsets(Request[DescribeOffsetsRequest]):
    """Of one group and one topic."""

    API_KEY = 90

    def __init__(self, group: str, topic: str, partitions: int) -> None:
        self._groups: list[Any] = [(group, [(topic, list(range(partitions)), {})], {})]

    def build(self, request_struct_class: type[Any]) -> Any:
        """The request as it is sent."""
        return request_struct_class(self._groups, {})


async def start_offsets(servers: str, group: str, topic: str, partitions: int) -> dict[str, int]:
    """By partition; 0 where the group has none."""
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        node = await admin.find_coordinator(group)
        answer = await admin._send_request(DescribeOffsets(group, topic, partitions), node)
    finally:
        await admin.close()
    ((_, topics, code, why, _),) = answer.groups
    assert not code, f"{group}: {code} {why}"
    return {
        str(partition): max(start, 0) for _, _, found, _ in topics for partition, start, *_ in found
    }
