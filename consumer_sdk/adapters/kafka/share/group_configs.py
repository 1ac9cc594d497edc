"""The configuration of a share group: what the broker allows, and where a new group begins."""

# The client has no types, so that its classes cannot be subclassed for the type checker.
# mypy: disable-error-code="misc"

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from aiokafka.errors import IncompatibleBrokerVersion, KafkaError, for_code
from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    Int8,
    Int16,
    Int32,
    Schema,
)

from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.client.faults import translate
from consumer_sdk.adapters.kafka.client.lookups import (
    ConfigEntry,
    ConfigResource,
    Coordinator,
    configs_in,
    describe_configs,
)
from consumer_sdk.adapters.kafka.client.protocol import COMPACT_TEXT, END, WireRequest, items

__all__ = ["BEGINNING", "GroupLimits", "learn_limits", "set_beginning"]

log = logging.getLogger(__name__)

SET = 0
"""What is done to a setting."""
SET_FOR_THE_GROUP = 8
"""Where a value comes from: somebody has set it for this group."""
BEGINNING = "share.auto.offset.reset"
LOCKS, DELIVERIES = "share.partition.max.record.locks", "share.delivery.count.limit"
SPARE_FROM = 4
"""Deliveries of a record from which on one of them is kept in reserve."""
LOCK_TIME, RENEWALS = "share.record.lock.duration.ms", "share.renew.acknowledge.enable"


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

    @property
    def dead_letter_at(self) -> int:
        """The delivery that reaches no handler.

        1. A record is on its way to the dead letters. 2. It is taken away: a kill, a rebalance. 3. The broker gives it up
        if that was its last delivery, and else delivers it once more. So it is the last but one.
        """
        return self.deliveries - (self.deliveries >= SPARE_FROM)


async def learn_limits(cluster: Cluster, group: str) -> GroupLimits:
    """Asks the group's coordinator for the limits. Without the right to read them (ACLs), Kafka's defaults are assumed.

    Raises:
        KafkaError: the broker does not answer.
    """
    request = describe_configs(ConfigResource.GROUP, group)
    found = configs_in(await cluster.send(Coordinator(group), request))
    if LOCKS not in found:  # Kafka 4.1: a group has no settings of its own for all of these
        found = await _of_broker(cluster, group) | found
    beginning = found.get(BEGINNING, ConfigEntry("latest", 0))
    return GroupLimits(
        locks=_number(found, LOCKS, 2000),
        deliveries=_number(found, DELIVERIES, 5),
        lock_time=_number(found, LOCK_TIME, 30_000) / 1000,
        renews=found.get(RENEWALS, ConfigEntry("true", 0)).value != "false",
        beginning=beginning.value or "latest",
        is_beginning_set=beginning.source == SET_FOR_THE_GROUP,
    )


async def _of_broker(cluster: Cluster, group: str) -> dict[str, ConfigEntry]:
    """The broker's own settings, by the names that a group's have."""
    names = [f"group.{name}" for name in (LOCKS, DELIVERIES, LOCK_TIME)]
    try:
        node = await cluster.coordinator(Coordinator(group))
        request = describe_configs(ConfigResource.BROKER, str(node), *names)
        answer = await cluster.send(node, request)
    except (KafkaError, IncompatibleBrokerVersion):
        return {}
    found = configs_in(answer).items()
    return {name.removeprefix("group."): ConfigEntry(entry.value, 0) for name, entry in found}


def _number(found: Mapping[str, ConfigEntry], name: str, default: int) -> int:
    number = found[name].number if name in found else None
    return default if number is None else number


# -- where a group begins -----------------------------------------------------------------------


class AlterConfigsResponseV1(Response):
    """Whether each setting was made."""

    API_KEY = 44
    API_VERSION = 1
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32),
        (
            "resources",
            items(
                ("error_code", Int16),
                ("error_message", COMPACT_TEXT),
                ("type", Int8),
                ("name", COMPACT_TEXT),
            ),
        ),
        END,
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
            items(
                ("type", Int8),
                ("name", COMPACT_TEXT),
                (
                    "configs",
                    items(("name", COMPACT_TEXT), ("operation", Int8), ("value", COMPACT_TEXT)),
                ),
            ),
        ),
        ("validate_only", Boolean),
        END,
    )


class AlterConfigs(WireRequest[AlterConfigsRequestV1]):
    """Sets settings."""

    API_KEY = 44


async def set_beginning(
    cluster: Cluster, group: str, limits: GroupLimits, wanted: Literal["earliest", "latest"]
) -> None:
    """Sets where a new group begins, unless somebody has set that before.

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
    resource = (int(ConfigResource.GROUP), group, [(BEGINNING, SET, wanted)])
    request = AlterConfigs(resources=[resource], validate_only=False)
    answer = await cluster.send(Coordinator(group), request)
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
