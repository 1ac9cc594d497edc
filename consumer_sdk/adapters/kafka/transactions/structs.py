"""Requests of transactions that the client has not, or only in old versions.

InitProducerId v3 (KIP-360, Kafka 2.5) says which producer asks for its next epoch, so that one that another has replaced
is refused. TxnOffsetCommit v3 (KIP-447, Kafka 2.5) says which member of the group commits, and of which generation or epoch, so
that a former owner of a partition is refused.
"""

# The client has no types, so that its classes cannot be subclassed for the type checker.
# mypy: disable-error-code="misc"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from consumer_sdk.adapters.kafka import client_support as _support  # noqa: F401 - is it there?

# isort: split
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

from consumer_sdk.adapters.kafka.client.protocol import Item, OffsetEntry

__all__ = [
    "INIT_PRODUCER_ID",
    "NOBODY",
    "TXN_OFFSET_COMMIT",
    "InitProducerId",
    "ProducerId",
    "TxnOffsetCommit",
    "codes_in",
]

INIT_PRODUCER_ID = 22
TXN_OFFSET_COMMIT = 28
_TEXT = CompactString("utf-8")
_END = ("tags", TaggedFields)


class ProducerId(NamedTuple):
    """Who writes: the broker refuses all but the newest epoch of a transactional id."""

    id: int
    epoch: int


NOBODY = ProducerId(-1, -1)


class InitProducerIdResponseV3(Response):
    """The producer's id and epoch."""

    API_KEY = INIT_PRODUCER_ID
    API_VERSION = 3
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        _END,
    )


class InitProducerIdRequestV3(RequestStruct):
    """Asks for the next epoch."""

    FLEXIBLE_VERSION = True
    API_KEY = INIT_PRODUCER_ID
    API_VERSION = 3
    RESPONSE_TYPE = InitProducerIdResponseV3
    SCHEMA: ClassVar[Schema] = Schema(
        ("transactional_id", _TEXT),
        ("transaction_timeout_ms", Int32),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        _END,
    )


class InitProducerId(Request[InitProducerIdRequestV3]):
    """Asks for a producer's next epoch.

    Args:
        timeout: seconds after which the broker aborts an open transaction.
        known: who asks; `NOBODY`: a new producer, which takes the place of any other.
    """

    API_KEY = INIT_PRODUCER_ID

    def __init__(self, transactional_id: str, timeout: float, known: ProducerId) -> None:
        self._fields = (transactional_id, round(timeout * 1000), *known)

    def build(self, request_struct_class: type[InitProducerIdRequestV3]) -> InitProducerIdRequestV3:
        """The request as it is sent."""
        return request_struct_class(*self._fields, {})


class TxnOffsetCommitResponseV3(Response):
    """One error code for each partition."""

    API_KEY = TXN_OFFSET_COMMIT
    API_VERSION = 3
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                Item(
                    ("topic", _TEXT),
                    (
                        "partitions",
                        CompactArray(Item(("partition", Int32), ("error_code", Int16))),
                    ),
                )
            ),
        ),
        _END,
    )


class TxnOffsetCommitRequestV3(RequestStruct):
    """Commits positions in a transaction, as a member of a group."""

    FLEXIBLE_VERSION = True
    API_KEY = TXN_OFFSET_COMMIT
    API_VERSION = 3
    RESPONSE_TYPE = TxnOffsetCommitResponseV3
    SCHEMA: ClassVar[Schema] = Schema(
        ("transactional_id", _TEXT),
        ("group", _TEXT),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        ("generation", Int32),
        ("member", _TEXT),
        ("group_instance_id", _TEXT),
        (
            "topics",
            CompactArray(
                Item(
                    ("topic", _TEXT),
                    (
                        "partitions",
                        CompactArray(
                            Item(
                                ("partition", Int32),
                                ("offset", Int64),
                                ("leader_epoch", Int32),
                                ("metadata", _TEXT),
                            )
                        ),
                    ),
                )
            ),
        ),
        _END,
    )


class TxnOffsetCommit(Request[TxnOffsetCommitRequestV3]):
    """Commits positions in a transaction.

    Args:
        member: generation or epoch, member id, and the static member's instance id or None.
        topics: by their names.
    """

    API_KEY = TXN_OFFSET_COMMIT

    def __init__(
        self,
        transactional_id: str,
        group: str,
        producer: ProducerId,
        member: tuple[int, str, str | None],
        topics: Mapping[str, Sequence[OffsetEntry]],
    ) -> None:
        self._head = (transactional_id, group, *producer, *member)
        self._topics = topics

    def build(
        self, request_struct_class: type[TxnOffsetCommitRequestV3]
    ) -> TxnOffsetCommitRequestV3:
        """The request as it is sent."""
        topics = [
            (topic, [(p, offset, epoch, text) for p, offset, text, epoch in partitions])
            for topic, partitions in self._topics.items()
        ]
        return request_struct_class(*self._head, topics, {})


def codes_in(topics: Any) -> dict[tuple[str, int], int]:
    """(topic, partition) → Kafka's error code, of an answer that has one for each partition."""
    return {(topic, each[0]): each[1] for topic, partitions in topics for each in partitions}
