"""The building blocks of our own requests, and the request that describes topics.

Metadata v12 (KIP-516, Kafka 3.0) brings topic ids. The id changes when a topic is deleted and created again, so a
checkpoint knows which topic it belongs to.
"""

# The client has no types, so that its classes cannot be subclassed for the type checker.
# mypy: disable-error-code="misc"

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable
from io import BytesIO
from typing import Any, ClassVar, TypeVar

from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
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
    Int8,
    Int16,
    Int32,
    Schema,
    String,
    TaggedFields,
)

__all__ = [
    "COMPACT_TEXT",
    "END",
    "NO_TOPIC_ID",
    "PARTITIONS_BY_NAME",
    "TEXT",
    "TOPIC_PARTITIONS",
    "Item",
    "Nullable",
    "TopicDescriptions",
    "Uuid",
    "WireRequest",
    "by_topic",
    "items",
    "milliseconds",
    "plain_by_topic",
    "topic_id_text",
]

NO_TOPIC_ID = bytes(16)
TEXT = String("utf-8")
COMPACT_TEXT = CompactString("utf-8")
END = ("tags", TaggedFields)
"""Ends the fields of a flexible request or answer (KIP-482)."""
_Struct = TypeVar("_Struct", bound=RequestStruct)


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


class Nullable(Item):
    """A struct that may be missing."""

    def encode(self, item: Any) -> bytes:
        """One byte says whether it is there."""
        return bytes(Int8.encode(-1)) if item is None else Int8.encode(1) + super().encode(item)

    def decode(self, data: BytesIO) -> Any:
        """The fields, or None."""
        return None if Int8.decode(data) < 0 else super().decode(data)


def items(*fields: tuple[str, Any]) -> CompactArray:
    """Structs in an array of a flexible request or answer."""
    return CompactArray(Item(*fields))


def by_topic(*fields: tuple[str, Any], topic: Any = COMPACT_TEXT) -> CompactArray:
    """These fields of each partition, by topic; by its id with `Uuid`."""
    return items(("topic", topic), ("partitions", items(*fields)))


def plain_by_topic(*fields: tuple[str, Any]) -> Array:
    """The same of a request or answer that is not flexible."""
    return Array(("topic", TEXT), ("partitions", Array(*fields)))


TOPIC_PARTITIONS = items(("topic_id", Uuid), ("partitions", CompactArray(Int32)))
"""Partitions by topic id."""
PARTITIONS_BY_NAME = items(("topic", COMPACT_TEXT), ("partitions", CompactArray(Int32)))


class WireRequest(Request[_Struct]):
    """A request in one of several versions.

    Args:
        fields: what the versions may have; each takes those that it knows.

    Attributes:
        fields: by name.
    """

    API_KEY = -1

    def __init__(self, **fields: Any) -> None:
        self.fields = fields | {"tags": {}}

    def build(self, request_struct_class: type[_Struct]) -> Any:
        """The request as it is sent."""
        names = request_struct_class.SCHEMA.names
        return request_struct_class(**{name: self.fields[name] for name in names})


def milliseconds(seconds: float) -> int:
    """As Kafka's requests have times."""
    return round(seconds * 1000)


# -- what a broker knows of topics ------------------------------------------------------------


def topic_id_text(topic_id: bytes) -> str:
    """The id as Kafka's own tools print it."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


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
                ("host", COMPACT_TEXT),
                ("port", Int32),
                ("rack", COMPACT_TEXT),
                END,
            ),
        ),
        ("cluster_id", COMPACT_TEXT),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("topic", COMPACT_TEXT),
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
                        END,
                    ),
                ),
                ("topic_authorized_operations", Int32),
                END,
            ),
        ),
        END,
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
            CompactArray(("topic_id", Uuid), ("name", COMPACT_TEXT), END),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_topic_authorized_operations", Boolean),
        END,
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
