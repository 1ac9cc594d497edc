"""What a broker is asked beside records: who coordinates, where a time lies, how something is configured.

The client has not all of these requests, or only in old versions.

Leaders' epochs (KIP-320, Kafka 2.1) are asked with and answered: a leader that was replaced, and does not know, answers nothing.
"""

# The client has no types, so that its classes cannot be subclassed for the type checker.
# mypy: disable-error-code="misc"

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from typing import Any, ClassVar, NamedTuple

from aiokafka import TopicPartition
from aiokafka.errors import GroupCoordinatorNotAvailableError, InvalidGroupIdError, for_code
from aiokafka.protocol.admin import DescribeConfigsRequest
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.coordination import FindCoordinatorRequest_v0, FindCoordinatorRequest_v1
from aiokafka.protocol.offset import OffsetRequest_v1, OffsetRequest_v2, OffsetRequest_v3
from aiokafka.protocol.types import (
    CompactArray,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
)

from consumer_sdk.adapters.kafka.client.cluster_metadata import NO_EPOCH, Broker, Leader
from consumer_sdk.adapters.kafka.client.protocol import COMPACT_TEXT, END, plain_by_topic

__all__ = [
    "EARLIEST",
    "LATEST",
    "ConfigEntry",
    "ConfigResource",
    "Coordinator",
    "CoordinatorKind",
    "FindCoordinator",
    "ListOffsets",
    "ListedOffset",
    "configs_in",
    "coordinator_in",
    "describe_configs",
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
