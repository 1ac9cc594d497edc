"""The request for topic ids, which the client has no version of: Metadata v12 (KIP-516, Kafka 3.0).

A topic id changes when a topic is deleted and made again: with it a checkpoint knows which topic
it belongs to.
"""

# The client has no types, so that its classes cannot be subclassed for the type checker.
# mypy: disable-error-code="misc"

from __future__ import annotations

import base64
from collections.abc import Sequence
from io import BytesIO
from typing import Any, ClassVar

from aiokafka.protocol.abstract import AbstractType
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

__all__ = ["NO_TOPIC_ID", "TopicDescriptions", "Uuid", "topic_id_text"]

NO_TOPIC_ID = bytes(16)
_TEXT = CompactString("utf-8")


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
                ("host", _TEXT),
                ("port", Int32),
                ("rack", _TEXT),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", _TEXT),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("topic", _TEXT),
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
    """Asks for some topics by name."""

    FLEXIBLE_VERSION = True
    API_KEY = 3
    API_VERSION = 12
    RESPONSE_TYPE = MetadataResponseV12
    SCHEMA: ClassVar[Schema] = Schema(
        (
            "topics",
            CompactArray(("topic_id", Uuid), ("name", _TEXT), ("tags", TaggedFields)),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class TopicDescriptions(Request[MetadataRequestV12]):
    """What the broker knows of some topics; never creates one."""

    API_KEY = 3

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[MetadataRequestV12]) -> MetadataRequestV12:
        """The request as it is sent."""
        names: list[Any] = [(NO_TOPIC_ID, topic, {}) for topic in self._topics]
        return request_struct_class(names, False, False, {})
