"""Requests that the client has no version of.

Metadata v12 (KIP-516, Kafka 3.0) brings topic ids. One changes when a topic is deleted and made again:
with it a checkpoint knows which topic it belongs to.

By topic id (KIP-848's OffsetCommit v10, Kafka 4.1) a commit of a deleted topic's position can never land
on the one that was made in its place. By name, a static member says which it is (KIP-345's v7, Kafka 2.3),
so that the broker refuses the commits of one that was replaced; members of the consumer protocol need v9 (KIP-848,
Kafka 3.7), or the broker refuses what they commit.
"""

# The client has no types, so that its classes cannot be subclassed for the type checker.
# mypy: disable-error-code="misc"

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Mapping, Sequence
from io import BytesIO
from typing import Any, ClassVar, NamedTuple

from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.commit import OffsetCommitRequest_v2, OffsetCommitRequest_v3
from aiokafka.protocol.metadata import (
    MetadataRequest_v1,
    MetadataRequest_v2,
    MetadataRequest_v3,
    MetadataRequest_v4,
    MetadataRequest_v5,
)
from aiokafka.protocol.types import (
    Array,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
    TaggedFields,
)

__all__ = [
    "NO_TOPIC_ID",
    "Item",
    "OffsetCommitById",
    "OffsetCommitByName",
    "OffsetEntry",
    "TopicDescriptions",
    "Uuid",
    "topic_id_text",
]

NO_TOPIC_ID = bytes(16)
_COMPACT_TEXT = CompactString("utf-8")
_TEXT = String("utf-8")


# -- what a broker knows of topics ------------------------------------------------------------


def topic_id_text(topic_id: bytes) -> str:
    """The id as Kafka's own tools print it."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


class Uuid(AbstractType[bytes]):
    """Sixteen bytes as they are."""

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        """The sixteen bytes."""
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        """The sixteen bytes."""
        return data.read(16)


class Item(Schema):
    """Fields of a struct inside a flexible one (KIP-482): tagged fields follow, of which we know none."""

    def encode(self, item: Any) -> bytes:
        """The fields, and that no tagged ones follow."""
        return bytes(super().encode(item) + TaggedFields.encode({}))

    def decode(self, data: BytesIO) -> tuple[Any, ...]:
        """The fields without the tagged ones."""
        fields = tuple(super().decode(data))
        TaggedFields.decode(data)
        return fields


class MetadataResponseV12(Response):
    """Brokers and topics, with topic ids."""

    API_KEY = 3
    API_VERSION = 12
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", _COMPACT_TEXT),
                ("port", Int32),
                ("rack", _COMPACT_TEXT),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", _COMPACT_TEXT),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("topic", _COMPACT_TEXT),
                ("topic_id", Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("topic_authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class MetadataRequestV12(RequestStruct):
    """Asks for some topics by name or id; null asks for all."""

    FLEXIBLE_VERSION = True
    API_KEY = 3
    API_VERSION = 12
    RESPONSE_TYPE = MetadataResponseV12
    SCHEMA: ClassVar[Schema] = Schema(
        (
            "topics",
            CompactArray(("topic_id", Uuid), ("name", _COMPACT_TEXT), ("tags", TaggedFields)),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class TopicDescriptions(
    Request[
        MetadataRequest_v1
        | MetadataRequest_v2
        | MetadataRequest_v3
        | MetadataRequest_v4
        | MetadataRequest_v5
        | MetadataRequestV12
    ]
):
    """What the broker knows of some topics, and who the brokers are; never creates a topic.

    Brokers before Kafka 3.0 tell neither topic ids nor epochs of leaders. Those before Kafka 0.11 create the topics.

    Args:
        topics: their names; None: all.
        ids: of more topics, whose names are not known; brokers before Kafka 3.0 know none.
    """

    API_KEY = 3

    def __init__(self, topics: Iterable[str] | None, ids: Collection[bytes] = ()) -> None:
        self._topics = None if topics is None else list(topics)
        self._ids = ids

    def build(self, request_struct_class: type[Any]) -> Any:
        """The request as it is sent."""
        names = self._topics
        if request_struct_class is MetadataRequestV12:
            wanted: Any = names and [(NO_TOPIC_ID, name, {}) for name in names]
            if self._ids:
                wanted = [*(wanted or ()), *((topic_id, None, {}) for topic_id in self._ids)]
            return request_struct_class(wanted, False, False, {})
        if request_struct_class in (MetadataRequest_v4, MetadataRequest_v5):
            return request_struct_class(names, False)
        return request_struct_class(names)


# -- commits ----------------------------------------------------------------------------------

NO_EPOCH = -1
"""The leader's is not known."""
KEPT = -1
"""As long as the broker keeps commits."""


class OffsetEntry(NamedTuple):
    """What is committed of one partition.

    Attributes:
        epoch: of the leader that wrote what lies before the offset, or soon behind it (KIP-320). Brokers before
            Kafka 2.3 are not told.
    """

    partition: int
    offset: int
    metadata: str
    epoch: int = NO_EPOCH


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
        topics: by their ids.
    """

    API_KEY = 8

    def __init__(
        self,
        group: str,
        generation: int,
        member: str,
        group_instance_id: str | None,
        topics: Mapping[bytes, Sequence[OffsetEntry]],
    ) -> None:
        self._head = (group, generation, member, group_instance_id)
        self._topics = topics

    def build(self, request_struct_class: type[OffsetCommitRequestV10]) -> OffsetCommitRequestV10:
        """The request as it is sent."""
        topics: list[Any] = [
            (topic_id, [(p, offset, epoch, text, {}) for p, offset, text, epoch in partitions], {})
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


class OffsetCommitResponseV9(Response):
    """One error code for each partition, by name."""

    API_KEY = 8
    API_VERSION = 9
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                Item(
                    ("topic", _COMPACT_TEXT),
                    (
                        "partitions",
                        CompactArray(Item(("partition", Int32), ("error_code", Int16))),
                    ),
                )
            ),
        ),
        ("tags", TaggedFields),
    )


class OffsetCommitRequestV9(RequestStruct):
    """Commits by name; the generation may be the epoch of a member of the consumer protocol."""

    FLEXIBLE_VERSION = True
    API_KEY = 8
    API_VERSION = 9
    RESPONSE_TYPE = OffsetCommitResponseV9
    SCHEMA: ClassVar[Schema] = Schema(
        ("group", _COMPACT_TEXT),
        ("generation", Int32),
        ("member", _COMPACT_TEXT),
        ("group_instance_id", _COMPACT_TEXT),
        (
            "topics",
            CompactArray(
                Item(
                    ("topic", _COMPACT_TEXT),
                    (
                        "partitions",
                        CompactArray(
                            Item(
                                ("partition", Int32),
                                ("offset", Int64),
                                ("leader_epoch", Int32),
                                ("metadata", _COMPACT_TEXT),
                            )
                        ),
                    ),
                )
            ),
        ),
        ("tags", TaggedFields),
    )


class OffsetCommitByName(
    Request[
        OffsetCommitRequest_v2
        | OffsetCommitRequest_v3
        | OffsetCommitRequestV7
        | OffsetCommitRequestV9
    ]
):
    """Commits positions by the topics' names.

    Brokers before Kafka 2.3 have no static members, and are not told the id.

    Args:
        topics: by their names.
    """

    API_KEY = 8

    def __init__(
        self,
        group: str,
        generation: int,
        member: str,
        group_instance_id: str | None,
        topics: Mapping[str, Sequence[OffsetEntry]],
    ) -> None:
        self._head = (group, generation, member)
        self._group_instance_id = group_instance_id
        self._topics = topics

    def build(self, request_struct_class: type[Any]) -> Any:
        """The request as it is sent."""
        version = request_struct_class.API_VERSION
        if version < OffsetCommitRequestV7.API_VERSION:
            old = [(topic, [each[:3] for each in given]) for topic, given in self._topics.items()]
            return request_struct_class(*self._head, KEPT, old)
        topics = [
            (topic, [(p, offset, epoch, text) for p, offset, text, epoch in partitions])
            for topic, partitions in self._topics.items()
        ]
        tags: list[Any] = [{}] if version >= OffsetCommitRequestV9.API_VERSION else []
        return request_struct_class(*self._head, self._group_instance_id, topics, *tags)
