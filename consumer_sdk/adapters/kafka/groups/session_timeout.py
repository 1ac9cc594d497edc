"""Looks up how long the coordinator keeps a silent member of the consumer protocol, because no heartbeat tells it.

Kafka takes the group's own ``consumer.session.timeout.ms``, or else its broker's ``group.consumer.session.timeout.ms``, anew at each
heartbeat. So the consumer asks the coordinator itself, and asks again while the member lives.

=====================================================  ====================================================
the principal may DescribeConfigs on                   the member counts on
=====================================================  ====================================================
the group                                              the session of the group, as the coordinator has it
the cluster alone                                      the least session that this broker lets a group have
neither                                                three heartbeat intervals, and 45 s at most
=====================================================  ====================================================

The interval comes with each answer. A session is longer than that, and Kafka's own is nine of them.
"""

from __future__ import annotations

from aiokafka.errors import IncompatibleBrokerVersion

from consumer_sdk.adapters.kafka.client.lookups import ConfigResource, configs_in, describe_configs
from consumer_sdk.adapters.kafka.groups.coordinator import GroupCoordinator

__all__ = ["read_session_timeout"]

OF_GROUP = "consumer.session.timeout.ms"
LEAST = "group.consumer.min.session.timeout.ms"


async def read_session_timeout(coordinator: GroupCoordinator, group: str) -> float | None:
    """Seconds; None where nobody may know them.

    Raises:
        KafkaError, OSError, TimeoutError: the coordinator does not answer.
    """
    found = await _read(coordinator, ConfigResource.GROUP, group, OF_GROUP)
    if found is None:
        node = await coordinator.node()  # which answers for itself alone
        found = await _read(coordinator, ConfigResource.BROKER, str(node), LEAST)
    return found


async def _read(
    coordinator: GroupCoordinator, kind: ConfigResource, name: str, setting: str
) -> float | None:
    try:
        answer = await coordinator.send(describe_configs(kind, name, setting))
    except IncompatibleBrokerVersion:
        return None
    entry = configs_in(answer).get(setting)
    return None if entry is None or entry.number is None else entry.number / 1000
