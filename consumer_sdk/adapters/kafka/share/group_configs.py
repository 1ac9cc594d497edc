"""The configuration of a share group: what the broker allows, and where a new group begins."""

# The client has no types, so that its classes cannot be subclassed for the type checker.
# mypy: disable-error-code="misc"

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, Literal

from consumer_sdk.adapters.kafka import client_support as _support  # noqa: F401 - is it there?

# isort: split
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError, for_code
from aiokafka.protocol.admin import DescribeConfigsRequest
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int8,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.client.faults import translate
from consumer_sdk.adapters.kafka.client.lookups import Coordinator
from consumer_sdk.adapters.kafka.client.protocol import Item

__all__ = ["BEGINNING", "GroupLimits", "learn_limits", "set_beginning"]

log = logging.getLogger(__name__)

GROUP, BROKER = 32, 4
"""Types of resources."""
SET = 0
SET_FOR_THE_GROUP = 8
"""Where a value comes from: somebody has set it for this group."""
BEGINNING = "share.auto.offset.reset"
LOCKS, DELIVERIES = "share.partition.max.record.locks", "share.delivery.count.limit"
LOCK_TIME, RENEWALS = "share.record.lock.duration.ms", "share.renew.acknowledge.enable"
_TEXT = CompactString("utf-8")
_END = ("tags", TaggedFields)


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """What the broker allows a share group; Kafka's defaults where it does not tell.

    Attributes:
        locks: records of a partition that all members together may have acquired.
        deliveries: of a record; after the last one the broker gives it up.
        lock_time: seconds that a record stays acquired.
        renews: a member may renew that.
        beginning: ``share.auto.offset.reset``.
        is_beginning_set: somebody has set that for this group.
    """

    locks: int = 2000
    deliveries: int = 5
    lock_time: float = 30.0
    renews: bool = True
    beginning: str = "latest"
    is_beginning_set: bool = False


async def learn_limits(cluster: Cluster, group: str) -> GroupLimits:
    """Asks the group's coordinator. A principal that may not know (ACLs) learns the defaults.

    Raises:
        KafkaError: the broker does not answer.
    """
    answer = await cluster.send(Coordinator(group), DescribeConfigsRequest([(GROUP, group, None)]))
    found = {name: (value, source) for name, value, source in _entries(answer)}
    if (
        LOCKS not in found
    ):  # a broker without settings of a group's own for all of these (Kafka 4.1)
        found = await _of_broker(cluster, group) | found
    beginning, source = found.get(BEGINNING, ("latest", 0))
    return GroupLimits(
        locks=_number(found, LOCKS, 2000),
        deliveries=_number(found, DELIVERIES, 5),
        lock_time=_number(found, LOCK_TIME, 30_000) / 1000,
        renews=found.get(RENEWALS, ("true", 0))[0] != "false",
        beginning=beginning or "latest",
        is_beginning_set=source == SET_FOR_THE_GROUP,
    )


async def _of_broker(cluster: Cluster, group: str) -> dict[str, tuple[str | None, int]]:
    """The broker's own settings, by the names that a group's have."""
    names = [f"group.{name}" for name in (LOCKS, DELIVERIES, LOCK_TIME)]
    try:
        node = await cluster.coordinator(Coordinator(group))
        answer = await cluster.send(node, DescribeConfigsRequest([(BROKER, str(node), names)]))
    except (KafkaError, IncompatibleBrokerVersion):
        return {}
    return {name.removeprefix("group."): (value, 0) for name, value, _ in _entries(answer)}


def _entries(answer: Any) -> Iterator[tuple[str, str | None, int]]:
    for name, value, _read_only, source, *_ in chain.from_iterable(
        entries for *_, entries in answer.resources
    ):
        yield name, value, source


def _number(found: Mapping[str, tuple[str | None, int]], name: str, default: int) -> int:
    value, _ = found.get(name, (None, 0))
    return int(value) if value is not None and value.isdigit() else default


# -- where a group begins -----------------------------------------------------------------------


class AlterConfigsResponseV1(Response):
    """What became of it."""

    API_KEY = 44
    API_VERSION = 1
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32),
        (
            "resources",
            CompactArray(
                Item(
                    ("error_code", Int16),
                    ("error_message", _TEXT),
                    ("type", Int8),
                    ("name", _TEXT),
                )
            ),
        ),
        _END,
    )


class AlterConfigsRequestV1(RequestStruct):
    """IncrementalAlterConfigs."""

    FLEXIBLE_VERSION = True
    API_KEY = 44
    API_VERSION = 1
    RESPONSE_TYPE = AlterConfigsResponseV1
    SCHEMA: ClassVar[Schema] = Schema(
        (
            "resources",
            CompactArray(
                Item(
                    ("type", Int8),
                    ("name", _TEXT),
                    (
                        "configs",
                        CompactArray(Item(("name", _TEXT), ("operation", Int8), ("value", _TEXT))),
                    ),
                )
            ),
        ),
        ("validate_only", Boolean),
        _END,
    )


class AlterConfigs(Request[AlterConfigsRequestV1]):
    """Sets one setting of a group."""

    API_KEY = 44

    def __init__(self, group: str, name: str, value: str) -> None:
        self._resource = (GROUP, group, [(name, SET, value)])

    def build(self, request_struct_class: type[AlterConfigsRequestV1]) -> AlterConfigsRequestV1:
        """The request as it is sent."""
        return request_struct_class([self._resource], False, {})


async def set_beginning(
    cluster: Cluster, group: str, limits: GroupLimits, wanted: Literal["earliest", "latest"]
) -> None:
    """Has a new group begin there, unless somebody has set where it begins.

    A principal that may not set it is told what to do, and reads what the group has.

    Raises:
        KafkaError: no broker answers.
    """
    if limits.is_beginning_set or limits.beginning == wanted:
        if limits.beginning != wanted:
            log.info(
                "share group %r begins at %s=%s, which was set for it, not at initial_position=%r",
                *(group, BEGINNING, limits.beginning, wanted),
            )
        return
    answer = await cluster.send(Coordinator(group), AlterConfigs(group, BEGINNING, wanted))
    for code, message, *_ in answer.resources or ():
        if code:
            error = translate(for_code(code)(message or ""), f"setting {BEGINNING} of {group!r}")
            log.warning(
                "%s: a new group begins at %r, not at initial_position=%r; have somebody set it: "
                "kafka-configs.sh --alter --entity-type groups --entity-name %s --add-config %s=%s",
                *(error, limits.beginning, wanted, group, BEGINNING, wanted),
            )
            return
    log.info("share group %r: %s=%s was set, as nobody had set it", group, BEGINNING, wanted)
