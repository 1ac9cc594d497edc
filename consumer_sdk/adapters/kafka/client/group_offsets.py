"""Where a group stands, asked as one of its members, or as nobody.

Version 9 (KIP-848, Kafka 3.7) says who asks, and the broker refuses who is no member any more, or not of this epoch:
nobody starts where the group stood before it got the partition. Older brokers are not told, and answer everybody.
Leaders' epochs are told from version 5 (KIP-320, Kafka 2.1) on.
"""

# The client has no types, so that its classes cannot be subclassed for the type checker.
# mypy: disable-error-code="misc"

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from consumer_sdk.adapters.kafka import client_support as _support  # noqa: F401 - is it there?

# isort: split
from aiokafka import TopicPartition
from aiokafka.errors import for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.commit import (
    OffsetFetchRequest_v1,
    OffsetFetchRequest_v2,
    OffsetFetchRequest_v3,
)
from aiokafka.protocol.types import (
    Boolean,
    Int16,
    Int32,
    Int64,
    Schema,
)

from consumer_sdk.adapters.kafka.client.cluster_metadata import NO_EPOCH
from consumer_sdk.adapters.kafka.client.faults import check_code
from consumer_sdk.adapters.kafka.client.protocol import (
    COMPACT_TEXT,
    END,
    PARTITIONS_BY_NAME,
    TEXT,
    by_topic,
    items,
    plain_by_topic,
)

__all__ = ["GroupOffset", "GroupOffsets", "OffsetFetch", "group_offsets_in"]

OFFSET_FETCH = 9
NO_OFFSET = -1
ABSENT = frozenset({3, 100})
"""There is no such topic or partition, by name or by id: nothing is committed."""


class OffsetFetchResponseV5(Response):
    """With epochs of leaders."""

    API_KEY = OFFSET_FETCH
    API_VERSION = 5
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            plain_by_topic(
                ("partition", Int32),
                ("offset", Int64),
                ("leader_epoch", Int32),
                ("metadata", TEXT),
                ("error_code", Int16),
            ),
        ),
        ("error_code", Int16),
    )


class OffsetFetchRequestV5(RequestStruct):
    """Asks for commits with the epochs of leaders; its fields are those of version 3."""

    API_KEY = OFFSET_FETCH
    API_VERSION = 5
    RESPONSE_TYPE = OffsetFetchResponseV5
    SCHEMA: ClassVar[Schema] = OffsetFetchRequest_v3.SCHEMA


class OffsetFetchResponseV9(Response):
    """The commits of some groups."""

    API_KEY = OFFSET_FETCH
    API_VERSION = 9
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32),
        (
            "groups",
            items(
                ("group", COMPACT_TEXT),
                (
                    "topics",
                    by_topic(
                        ("partition", Int32),
                        ("offset", Int64),
                        ("leader_epoch", Int32),
                        ("metadata", COMPACT_TEXT),
                        ("error_code", Int16),
                    ),
                ),
                ("error_code", Int16),
            ),
        ),
        END,
    )


class OffsetFetchRequestV9(RequestStruct):
    """Asks for the commits of some groups, as a member of each."""

    FLEXIBLE_VERSION = True
    API_KEY = OFFSET_FETCH
    API_VERSION = 9
    RESPONSE_TYPE = OffsetFetchResponseV9
    SCHEMA: ClassVar[Schema] = Schema(
        (
            "groups",
            items(
                ("group", COMPACT_TEXT),
                ("member_id", COMPACT_TEXT),
                ("member_epoch", Int32),
                ("topics", PARTITIONS_BY_NAME),
            ),
        ),
        ("require_stable", Boolean),
        END,
    )


class OffsetFetch(
    Request[
        OffsetFetchRequest_v1
        | OffsetFetchRequest_v2
        | OffsetFetchRequest_v3
        | OffsetFetchRequestV5
        | OffsetFetchRequestV9
    ]
):
    """Asks for the commits of some partitions.

    Args:
        member_id: None asks as nobody; the broker answers that too.
        epoch: the generation or member epoch; -1 for nobody's.
        require_stable: a partition with a transaction's commit under way answers `UNSTABLE_OFFSET_COMMIT`, 88,
            instead of what may change in a moment (KIP-447). Brokers before Kafka 3.7 are not asked for that.
    """

    API_KEY = OFFSET_FETCH

    def __init__(
        self,
        group: str,
        tps: Iterable[TopicPartition],
        *,
        member_id: str | None = None,
        epoch: int = -1,
        require_stable: bool = True,
    ) -> None:
        self._group = group
        self._member = (member_id, epoch)
        self._require_stable = require_stable
        topics: dict[str, list[int]] = defaultdict(list)
        for topic, partition in sorted(tps):
            topics[topic].append(partition)
        self._topics = list(topics.items())

    def build(self, request_struct_class: type[Any]) -> Any:
        """The request as it is sent."""
        if request_struct_class is OffsetFetchRequestV9:
            groups = [(self._group, *self._member, self._topics)]
            return request_struct_class(groups, self._require_stable, {})
        return request_struct_class(self._group, self._topics)


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """What a group has committed of one partition.

    Attributes:
        epoch: of the leader, as the commit told it; -1 for none.
    """

    offset: int
    metadata: str
    epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """What the coordinator has answered.

    Attributes:
        error: for all: 25 and 113 say that the member is none, or of another epoch.
        offsets: None where nothing is committed.
        errors: codes of partitions; that there is no such partition is none.
    """

    error: int
    offsets: Mapping[TopicPartition, GroupOffset | None]
    errors: Mapping[TopicPartition, int]

    def check(self, group: str) -> None:
        """Raises an error unless the answer has an offset, or no commit, for each partition.

        Raises:
            KafkaError: the coordinator refused, or is another one.
        """
        if self.error:
            raise for_code(self.error)(f"group {group!r}")
        for tp, code in self.errors.items():
            check_code(code, tp)


def group_offsets_in(answer: Any, tps: Collection[TopicPartition]) -> GroupOffsets:
    """The answer to `OffsetFetch`, in whichever version it came."""
    if answer.API_VERSION < OffsetFetchRequestV9.API_VERSION:
        topics, error = answer.topics, getattr(answer, "error_code", 0)
    else:
        ((_, topics, error),) = answer.groups
    offsets: dict[TopicPartition, GroupOffset | None] = dict.fromkeys(tps)
    errors: dict[TopicPartition, int] = {}
    for topic, partitions in topics:
        for number, offset, *epoch, text, code in partitions:
            tp = TopicPartition(topic, number)
            if code and code not in ABSENT:
                errors[tp] = code
            elif offset != NO_OFFSET:
                offsets[tp] = GroupOffset(offset, text or "", *epoch)
    return GroupOffsets(error, offsets, errors)
