"""Requests that commit positions, in versions that aiokafka lacks.

- OffsetCommit v10 (KIP-848, Kafka 4.1) names the topic by its id. So the position of a deleted topic never lands on a new
  topic of that name.
- OffsetCommit v7 (KIP-345, Kafka 2.3) names a static member, so the broker refuses the commits of one that was replaced.
- Members of the consumer protocol need v9 (KIP-848, Kafka 3.7). The broker refuses their commits in older versions.
- TxnOffsetCommit v3 (KIP-447, Kafka 2.5) names the member and its generation or epoch, so the broker refuses a former owner
  of a partition.
"""

# The client has no types, so that its classes cannot be subclassed for the type checker.
# mypy: disable-error-code="misc"

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

from consumer_sdk.adapters.kafka import client_support as _support  # noqa: F401 - is it there?

# isort: split
from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.commit import OffsetCommitRequest_v2, OffsetCommitRequest_v3
from aiokafka.protocol.types import Int16, Int32, Int64, Schema

from consumer_sdk.adapters.kafka.client.cluster_metadata import NO_EPOCH
from consumer_sdk.adapters.kafka.client.protocol import (
    COMPACT_TEXT,
    END,
    TEXT,
    Uuid,
    WireRequest,
    by_topic,
    plain_by_topic,
)

__all__ = ["OffsetCommitById", "OffsetCommitByName", "OffsetEntry", "TxnOffsetCommit", "codes_in"]

OFFSET_COMMIT, TXN_OFFSET_COMMIT = 8, 28
"""Keys of the requests."""
KEPT = -1
"""As long as the broker keeps commits."""
_Struct = TypeVar("_Struct", bound=RequestStruct)


class OffsetEntry(NamedTuple):
    """What is committed of one partition.

    Attributes:
        epoch: of the leader that wrote what lies before the offset, or soon behind it (KIP-320). Brokers before
            Kafka 2.3 are not told.
    """

    partition: int
    offset: int
    epoch: int = NO_EPOCH
    metadata: str = ""


def codes_in(topics: Any) -> dict[tuple[Any, int], int]:
    """(topic's name or id, partition) → Kafka's error code, of an answer that has one for each partition."""
    return {
        (topic, each[0]): each[1] for topic, partitions in topics or () for each in partitions or ()
    }


CODE = (("partition", Int32), ("error_code", Int16))
ENTRY = (("partition", Int32), ("offset", Int64), ("leader_epoch", Int32))


class _OffsetCommit(WireRequest[_Struct]):
    """Commits positions.

    Args:
        topics: by their ids or names.
    """

    API_KEY = OFFSET_COMMIT

    def __init__(
        self,
        group: str,
        generation: int,
        member: str,
        group_instance_id: str | None,
        topics: Mapping[Any, Sequence[OffsetEntry]],
    ) -> None:
        super().__init__(
            group=group,
            generation=generation,
            member=member,
            group_instance_id=group_instance_id,
            topics=_listed(topics),
        )


# -- by topic id --------------------------------------------------------------------------------


class OffsetCommitResponseV10(Response):
    """One error code for each partition, by topic id."""

    API_KEY = OFFSET_COMMIT
    API_VERSION = 10
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32), ("topics", by_topic(*CODE, topic=Uuid)), END
    )


class OffsetCommitRequestV10(RequestStruct):
    """Commits by topic id, with generation, member and static member id."""

    FLEXIBLE_VERSION = True
    API_KEY = OFFSET_COMMIT
    API_VERSION = 10
    RESPONSE_TYPE = OffsetCommitResponseV10
    SCHEMA: ClassVar[Schema] = Schema(
        ("group", COMPACT_TEXT),
        ("generation", Int32),
        ("member", COMPACT_TEXT),
        ("group_instance_id", COMPACT_TEXT),
        ("topics", by_topic(*ENTRY, ("metadata", COMPACT_TEXT), topic=Uuid)),
        END,
    )


class OffsetCommitById(_OffsetCommit[OffsetCommitRequestV10]):
    """Commits positions by topic id."""


# -- by name ------------------------------------------------------------------------------------


class OffsetCommitResponseV7(Response):
    """One error code for each partition, by name."""

    API_KEY = OFFSET_COMMIT
    API_VERSION = 7
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32),
        ("topics", plain_by_topic(*CODE)),
    )


class OffsetCommitRequestV7(RequestStruct):
    """Commits by name, with generation, member and static member id."""

    API_KEY = OFFSET_COMMIT
    API_VERSION = 7
    RESPONSE_TYPE = OffsetCommitResponseV7
    SCHEMA: ClassVar[Schema] = Schema(
        ("group", TEXT),
        ("generation", Int32),
        ("member", TEXT),
        ("group_instance_id", TEXT),
        ("topics", plain_by_topic(*ENTRY, ("metadata", TEXT))),
    )


class OffsetCommitResponseV9(Response):
    """One error code for each partition, by name."""

    API_KEY = OFFSET_COMMIT
    API_VERSION = 9
    SCHEMA: ClassVar[Schema] = Schema(("throttle_time_ms", Int32), ("topics", by_topic(*CODE)), END)


class OffsetCommitRequestV9(RequestStruct):
    """Commits by name; the generation may be the epoch of a member of the consumer protocol."""

    FLEXIBLE_VERSION = True
    API_KEY = OFFSET_COMMIT
    API_VERSION = 9
    RESPONSE_TYPE = OffsetCommitResponseV9
    SCHEMA: ClassVar[Schema] = Schema(
        ("group", COMPACT_TEXT),
        ("generation", Int32),
        ("member", COMPACT_TEXT),
        ("group_instance_id", COMPACT_TEXT),
        ("topics", by_topic(*ENTRY, ("metadata", COMPACT_TEXT))),
        END,
    )


class OffsetCommitByName(
    _OffsetCommit[
        OffsetCommitRequest_v2
        | OffsetCommitRequest_v3
        | OffsetCommitRequestV7
        | OffsetCommitRequestV9
    ]
):
    """Commits positions by the topics' names.

    Brokers before Kafka 2.3 have no static members, and are not told the id.
    """

    def build(self, request_struct_class: type[Any]) -> Any:
        """The request as it is sent."""
        if request_struct_class.API_VERSION >= OffsetCommitRequestV7.API_VERSION:
            return super().build(request_struct_class)
        group, generation, member, _, topics, _ = self.fields.values()
        old = [(t, [(each.partition, each.offset, each.metadata) for each in e]) for t, e in topics]
        return request_struct_class(group, generation, member, KEPT, old)


def _listed(
    topics: Mapping[Any, Sequence[OffsetEntry]],
) -> list[tuple[Hashable, list[OffsetEntry]]]:
    return [(topic, list(entries)) for topic, entries in topics.items()]


# -- in a transaction -----------------------------------------------------------------------------


class TxnOffsetCommitResponseV3(Response):
    """One error code for each partition."""

    API_KEY = TXN_OFFSET_COMMIT
    API_VERSION = 3
    SCHEMA: ClassVar[Schema] = OffsetCommitResponseV9.SCHEMA


class TxnOffsetCommitRequestV3(RequestStruct):
    """Commits positions in a transaction, as a member of a group."""

    FLEXIBLE_VERSION = True
    API_KEY = TXN_OFFSET_COMMIT
    API_VERSION = 3
    RESPONSE_TYPE = TxnOffsetCommitResponseV3
    SCHEMA: ClassVar[Schema] = Schema(
        ("transactional_id", COMPACT_TEXT),
        ("group", COMPACT_TEXT),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        ("generation", Int32),
        ("member", COMPACT_TEXT),
        ("group_instance_id", COMPACT_TEXT),
        ("topics", by_topic(*ENTRY, ("metadata", COMPACT_TEXT))),
        END,
    )


class TxnOffsetCommit(WireRequest[TxnOffsetCommitRequestV3]):
    """Commits positions in a transaction.

    Args:
        producer: its id and epoch.
        member: generation or epoch, member id, and the static member's instance id or None.
        topics: by their names.
    """

    API_KEY = TXN_OFFSET_COMMIT

    def __init__(
        self,
        transactional_id: str,
        group: str,
        producer: tuple[int, int],
        member: tuple[int, str, str | None],
        topics: Mapping[str, Sequence[OffsetEntry]],
    ) -> None:
        producer_id, producer_epoch = producer
        generation, member_id, group_instance_id = member
        super().__init__(
            transactional_id=transactional_id,
            group=group,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            generation=generation,
            member=member_id,
            group_instance_id=group_instance_id,
            topics=_listed(topics),
        )
