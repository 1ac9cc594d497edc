"""Look-ups at brokers: coordinators, offsets of times, configurations, positions of groups.

aiokafka lacks some of these requests, or has only old versions.

Requests and answers carry leaders' epochs (KIP-320, Kafka 2.1), so a leader that was replaced without knowing it does
not answer.

A group's position is looked up as one of its members, or as no member. Version 9 (KIP-848, Kafka 3.7) names the member,
and the broker refuses a former member or another epoch. So no consumer starts at a position from before it got the
partition. Older brokers do not learn the member, and answer anybody.
"""

# The client has no types, so that its classes cannot be subclassed for the type checker.
# mypy: disable-error-code="misc"

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from typing import Any, ClassVar, NamedTuple

from aiokafka import TopicPartition
from aiokafka.errors import GroupCoordinatorNotAvailableError, InvalidGroupIdError, for_code
from aiokafka.protocol.admin import DescribeConfigsRequest
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.commit import (
    OffsetFetchRequest_v1,
    OffsetFetchRequest_v2,
    OffsetFetchRequest_v3,
)
from aiokafka.protocol.coordination import FindCoordinatorRequest_v0, FindCoordinatorRequest_v1
from aiokafka.protocol.offset import OffsetRequest_v1, OffsetRequest_v2, OffsetRequest_v3
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
)

from consumer_sdk.adapters.kafka.client.cluster_metadata import NO_EPOCH, Broker, Leader
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

__all__ = [
    "EARLIEST",
    "LATEST",
    "ConfigEntry",
    "ConfigResource",
    "Coordinator",
    "CoordinatorKind",
    "FindCoordinator",
    "GroupOffset",
    "GroupOffsets",
    "ListOffsets",
    "ListedOffset",
    "OffsetFetch",
    "configs_in",
    "coordinator_in",
    "describe_configs",
    "group_offsets_in",
    "listed_in",
]

# -- coordinators -------------------------------------------------------------------------------


class CoordinatorKind(IntEnum):
    """As FindCoordinator has them."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


LONGEST_KEY = 2**15 - 1
"""Bytes."""


@dataclass(frozen=True, slots=True)
class Coordinator:
    """Whoever coordinates a group, or a transactional id, now."""

    key: str
    kind: CoordinatorKind = CoordinatorKind.GROUP


class FindCoordinatorResponseV4(Response):
    """A node for each key."""

    API_KEY = 10
    API_VERSION = 4
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32),
        (
            "coordinators",
            CompactArray(
                ("key", COMPACT_TEXT),
                ("node_id", Int32),
                ("host", COMPACT_TEXT),
                ("port", Int32),
                ("error_code", Int16),
                ("error_message", COMPACT_TEXT),
                END,
            ),
        ),
        END,
    )


class FindCoordinatorRequestV4(RequestStruct):
    """Asks for several keys of one kind (KIP-699)."""

    FLEXIBLE_VERSION = True
    API_KEY = 10
    API_VERSION = 4
    RESPONSE_TYPE = FindCoordinatorResponseV4
    SCHEMA: ClassVar[Schema] = Schema(("key_type", Int8), ("keys", CompactArray(COMPACT_TEXT)), END)


class FindCoordinator(
    Request[FindCoordinatorRequest_v0 | FindCoordinatorRequest_v1 | FindCoordinatorRequestV4]
):
    """Which node coordinates a group, or a transactional id.

    Raises:
        InvalidGroupIdError: the name is longer than Kafka's texts can be.
    """

    API_KEY = 10

    def __init__(self, of: Coordinator) -> None:
        if (size := len(of.key.encode())) > LONGEST_KEY:  # a broker would close the connection
            raise InvalidGroupIdError(f"it has {size} bytes, of {LONGEST_KEY} that Kafka allows")
        self._of = of

    def build(self, request_struct_class: type[Any]) -> Any:
        """The request as it is sent."""
        key, kind = self._of.key, int(self._of.kind)
        if request_struct_class is FindCoordinatorRequestV4:
            return request_struct_class(kind, [key], {})
        if request_struct_class is FindCoordinatorRequest_v1:
            return request_struct_class(key, kind)
        if kind != CoordinatorKind.GROUP:  # before Kafka 0.11
            raise NotImplementedError(f"it knows no coordinator of kind {self._of.kind.name}")
        return request_struct_class(key)


def coordinator_in(answer: Any, of: Coordinator) -> Broker:
    """The node that coordinates.

    Raises:
        KafkaError: the broker does not know at the moment, or does not tell this principal.
    """
    if answer.API_VERSION >= FindCoordinatorRequestV4.API_VERSION:
        (_key, node, host, port, code, *_), *_rest = answer.coordinators
    else:
        node, host, port = answer.coordinator_id, answer.host, answer.port
        code = answer.error_code
    if code:
        raise for_code(code)(f"coordinator of {of.kind.name.lower()} {of.key!r}")
    if node < 0:
        raise GroupCoordinatorNotAvailableError(f"{of.kind.name.lower()} {of.key!r} has none")
    return Broker(node, host, port, None)


# -- where a time lies --------------------------------------------------------------------------

EARLIEST = -2
LATEST = -1
CONSUMER = -1
"""The replica that asks is none."""


class ListedOffset(NamedTuple):
    """Where a time lies, and the epoch of the leader that wrote what lies there; -1: not told."""

    offset: int
    epoch: int


class ListOffsetsResponseV4(Response):
    """With epochs of leaders."""

    API_KEY = 2
    API_VERSION = 4
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            plain_by_topic(
                ("partition", Int32),
                ("error_code", Int16),
                ("timestamp", Int64),
                ("offset", Int64),
                ("leader_epoch", Int32),
            ),
        ),
    )


class ListOffsetsRequestV4(RequestStruct):
    """The client's own has an epoch of eight bytes, which brokers do not understand."""

    API_KEY = 2
    API_VERSION = 4
    RESPONSE_TYPE = ListOffsetsResponseV4
    SCHEMA: ClassVar[Schema] = Schema(
        ("replica_id", Int32),
        ("isolation_level", Int8),
        (
            "topics",
            plain_by_topic(
                ("partition", Int32), ("current_leader_epoch", Int32), ("timestamp", Int64)
            ),
        ),
    )


class ListOffsets(
    Request[OffsetRequest_v1 | OffsetRequest_v2 | OffsetRequest_v3 | ListOffsetsRequestV4]
):
    """Where times lie.

    Args:
        wanted: the leader, as the metadata have it, and the time of each partition.
        level: 1: what lies behind an open transaction does not count.
    """

    API_KEY = 2

    def __init__(self, wanted: Mapping[TopicPartition, tuple[Leader, int]], level: int) -> None:
        self._wanted = wanted
        self._level = level

    def build(self, request_struct_class: type[Any]) -> Any:
        """The request as it is sent."""
        has_epochs = request_struct_class is ListOffsetsRequestV4
        topics: dict[str, list[tuple[int, ...]]] = defaultdict(list)
        for (topic, partition), (leader, time) in self._wanted.items():
            epoch = (leader.epoch,) if has_epochs else ()
            topics[topic].append((partition, *epoch, time))
        if request_struct_class is not OffsetRequest_v1:
            return request_struct_class(CONSUMER, self._level, list(topics.items()))
        if self._level:  # before Kafka 0.11
            raise NotImplementedError("it knows no transactions: give isolation_level=")
        return request_struct_class(CONSUMER, list(topics.items()))


def listed_in(answer: Any) -> Iterator[tuple[TopicPartition, int, ListedOffset | None]]:
    """Returns each partition's error code, and the offset of its time; None if no record is that new."""
    for topic, partitions in answer.topics:
        for number, code, _time, offset, *epoch in partitions:
            found = ListedOffset(offset, epoch[0] if epoch else NO_EPOCH) if offset >= 0 else None
            yield TopicPartition(topic, number), code, found


# -- how something is configured ----------------------------------------------------------------


class ConfigResource(IntEnum):
    """As DescribeConfigs has them."""

    BROKER = 4
    GROUP = 32


class ConfigEntry(NamedTuple):
    """A setting.

    Attributes:
        value: None where it is secret, or has none.
        source: who set it, by Kafka's number; 8: somebody, for this group. No source before Kafka 1.1.
    """

    value: str | None
    source: int

    @property
    def number(self) -> int | None:
        """None where the value is none that counts from 0 on."""
        return int(self.value) if self.value is not None and self.value.isdigit() else None


def describe_configs(kind: ConfigResource, name: str, *names: str) -> DescribeConfigsRequest:
    """Asks for settings of a broker, by its id, or of a group.

    Args:
        names: of settings; none: all.
    """
    return DescribeConfigsRequest([(int(kind), name, list(names) or None)])


def configs_in(answer: Any) -> dict[str, ConfigEntry]:
    """Returns settings by name; empty if the principal may not read them."""
    entries = chain.from_iterable(found for *_, found in answer.resources)
    return {name: ConfigEntry(value, source) for name, value, _, source, *_ in entries}


# -- what groups have committed --------------------------------------------------------------------

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
