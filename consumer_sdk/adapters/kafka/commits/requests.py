"""The requests to commit that the client has no version of.

By topic id (KIP-848's OffsetCommit v10, Kafka 4.1) a commit of a deleted topic's position can
never land on the one that was made in its place. By name, a static member says which it is
(KIP-345's v7, Kafka 2.3), so that the broker refuses the commits of one that was replaced.
"""

# The client has no types, so that its classes cannot be subclassed for the type checker.
# mypy: disable-error-code="misc"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from consumer_sdk.adapters.kafka import client_support as _support  # noqa: F401 - is it there?

# isort: split
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.commit import OffsetCommitRequest_v2, OffsetCommitRequest_v3
from aiokafka.protocol.types import (
    Array,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
    TaggedFields,
)

from consumer_sdk.adapters.kafka.client.protocol import Uuid

__all__ = ["OffsetCommitById", "OffsetCommitByName"]

_COMPACT_TEXT = CompactString("utf-8")
_TEXT = String("utf-8")
NO_EPOCH = -1
"""The leader's, which nobody reads: truncation is found by the range check."""
KEPT = -1
"""As long as the broker keeps commits."""


class OffsetCommitResponseV10(Response):
    """One error code for each partition, by topic id."""

    API_KEY = 8
    API_VERSION = 10
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("topic", Uuid),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32), ("error_code", Int16), ("tags", TaggedFields)
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class OffsetCommitRequestV10(RequestStruct):
    """Commits by topic id, with generation, member and static member id."""

    FLEXIBLE_VERSION = True
    API_KEY = 8
    API_VERSION = 10
    RESPONSE_TYPE = OffsetCommitResponseV10
    SCHEMA: ClassVar[Schema] = Schema(
        ("group", _COMPACT_TEXT),
        ("generation", Int32),
        ("member", _COMPACT_TEXT),
        ("group_instance_id", _COMPACT_TEXT),
        (
            "topics",
            CompactArray(
                ("topic_id", Uuid),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("offset", Int64),
                        ("leader_epoch", Int32),
                        ("metadata", _COMPACT_TEXT),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class OffsetCommitById(Request[OffsetCommitRequestV10]):
    """Commits positions by topic id.

    Args:
        topics: topic id → (partition, offset, metadata) of each partition.
    """

    API_KEY = 8

    def __init__(
        self,
        group: str,
        generation: int,
        member: str,
        group_instance_id: str | None,
        topics: Mapping[bytes, Sequence[tuple[int, int, str]]],
    ) -> None:
        self._head = (group, generation, member, group_instance_id)
        self._topics = topics

    def build(self, request_struct_class: type[OffsetCommitRequestV10]) -> OffsetCommitRequestV10:
        """The request as it is sent."""
        topics: list[Any] = [
            (topic_id, [(p, offset, NO_EPOCH, text, {}) for p, offset, text in partitions], {})
            for topic_id, partitions in self._topics.items()
        ]
        return request_struct_class(*self._head, topics, {})


class OffsetCommitResponseV7(Response):
    """One error code for each partition, by name."""

    API_KEY = 8
    API_VERSION = 7
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            Array(
                ("topic", _TEXT),
                ("partitions", Array(("partition", Int32), ("error_code", Int16))),
            ),
        ),
    )


class OffsetCommitRequestV7(RequestStruct):
    """Commits by name, with generation, member and static member id."""

    API_KEY = 8
    API_VERSION = 7
    RESPONSE_TYPE = OffsetCommitResponseV7
    SCHEMA: ClassVar[Schema] = Schema(
        ("group", _TEXT),
        ("generation", Int32),
        ("member", _TEXT),
        ("group_instance_id", _TEXT),
        (
            "topics",
            Array(
                ("topic", _TEXT),
                (
                    "partitions",
                    Array(
                        ("partition", Int32),
                        ("offset", Int64),
                        ("leader_epoch", Int32),
                        ("metadata", _TEXT),
                    ),
                ),
            ),
        ),
    )


class OffsetCommitByName(
    Request[OffsetCommitRequest_v2 | OffsetCommitRequest_v3 | OffsetCommitRequestV7]
):
    """Commits positions by the topics' names.

    Brokers before Kafka 2.3 have no static members, and are not told the id.

    Args:
        topics: name → (partition, offset, metadata) of each partition.
    """

    API_KEY = 8

    def __init__(
        self,
        group: str,
        generation: int,
        member: str,
        group_instance_id: str | None,
        topics: Mapping[str, Sequence[tuple[int, int, str]]],
    ) -> None:
        self._head = (group, generation, member)
        self._group_instance_id = group_instance_id
        self._topics = topics

    def build(self, request_struct_class: type[Any]) -> Any:
        """The request as it is sent."""
        if not issubclass(request_struct_class, OffsetCommitRequestV7):
            return request_struct_class(*self._head, KEPT, list(self._topics.items()))
        topics = [
            (topic, [(p, offset, NO_EPOCH, text) for p, offset, text in partitions])
            for topic, partitions in self._topics.items()
        ]
        return request_struct_class(*self._head, self._group_instance_id, topics)
