"""Where a group stands, asked as one of its members.

Version 9 (KIP-848, Kafka 3.7) says who asks, and the broker refuses who is no member any more, or not of this epoch:
nobody starts where the group stood before it got the partition. Older brokers are not told, and answer everybody.
"""

# The client has no types, so that its classes cannot be subclassed for the type checker.
# mypy: disable-error-code="misc"

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from consumer_sdk.adapters.kafka import client_support as _support  # noqa: F401 - is it there?

# isort: split
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.commit import (
    OffsetFetchRequest_v1,
    OffsetFetchRequest_v2,
    OffsetFetchRequest_v3,
)
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

from consumer_sdk.adapters.kafka.client.protocol import Item
from consumer_sdk.adapters.kafka.groups.member import TopicPartition

__all__ = ["FetchedOffset", "OffsetFetch", "OffsetFetchAnswer", "offsets_from_wire"]

OFFSET_FETCH = 9
NO_LEADER_EPOCH = -1
_TEXT = CompactString("utf-8")


class OffsetFetchResponseV9(Response):
    """The commits of some groups."""

    API_KEY = OFFSET_FETCH
    API_VERSION = 9
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32),
        (
            "groups",
            CompactArray(
                Item(
                    ("group", _TEXT),
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
                                            ("error_code", Int16),
                                        )
                                    ),
                                ),
                            )
                        ),
                    ),
                    ("error_code", Int16),
                )
            ),
        ),
        ("tags", TaggedFields),
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
            CompactArray(
                Item(
                    ("group", _TEXT),
                    ("member_id", _TEXT),
                    ("member_epoch", Int32),
                    (
                        "topics",
                        CompactArray(Item(("topic", _TEXT), ("partitions", CompactArray(Int32)))),
                    ),
                )
            ),
        ),
        ("require_stable", Boolean),
        ("tags", TaggedFields),
    )


class OffsetFetch(
    Request[
        OffsetFetchRequest_v1 | OffsetFetchRequest_v2 | OffsetFetchRequest_v3 | OffsetFetchRequestV9
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
        tps: Collection[TopicPartition],
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
class FetchedOffset:
    """The commit of one partition.

    Attributes:
        offset: -1 where the group has committed nothing.
        leader_epoch: as it was committed; -1 for none.
    """

    offset: int
    metadata: str
    error: int = 0
    leader_epoch: int = NO_LEADER_EPOCH


@dataclass(frozen=True, slots=True)
class OffsetFetchAnswer:
    """What the coordinator knows.

    Attributes:
        error: for all: 25 and 113 say that the member is none, or of another epoch.
    """

    error: int
    offsets: Mapping[TopicPartition, FetchedOffset]


def offsets_from_wire(response: Any) -> OffsetFetchAnswer:
    """The answer to `OffsetFetch`, in whichever version it came."""
    if response.API_VERSION < OffsetFetchRequestV9.API_VERSION:
        offsets = _offsets(response.topics)
        return OffsetFetchAnswer(getattr(response, "error_code", 0), offsets)
    ((_, topics, error),) = response.groups
    return OffsetFetchAnswer(error, _offsets(topics))


def _offsets(topics: Any) -> dict[TopicPartition, FetchedOffset]:
    return {
        TopicPartition(topic, partition): _offset(*fields)
        for topic, partitions in topics
        for partition, *fields in partitions
    }


def _offset(offset: int, *fields: Any) -> FetchedOffset:
    """Old versions have no leader epoch."""
    *leader_epoch, metadata, error = fields
    return FetchedOffset(offset, metadata or "", error, *leader_epoch)
