"""How long the coordinator keeps a silent member of the consumer protocol: asked, for no heartbeat tells it.

Kafka takes the group's own ``consumer.session.timeout.ms``, or else its broker's ``group.consumer.session.timeout.ms``, anew at each
heartbeat. So the coordinator itself is asked, and asked again while the member lives.

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

from itertools import chain
from typing import Any

from consumer_sdk.adapters.kafka import client_support as _support  # noqa: F401 - is it there?

# isort: split
from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.admin import DescribeConfigsRequest

from consumer_sdk.adapters.kafka.groups.coordinator import GroupCoordinator

__all__ = ["read_session_timeout"]

GROUP, BROKER = 32, 4
"""Types of resources."""
OF_GROUP = "consumer.session.timeout.ms"
LEAST = "group.consumer.min.session.timeout.ms"


async def read_session_timeout(coordinator: GroupCoordinator, group: str) -> float | None:
    """Seconds; None where nobody may know them.

    Raises:
        KafkaError, OSError, TimeoutError: the coordinator does not answer.
    """
    found = await _read(coordinator, GROUP, group, OF_GROUP)
    if found is None:
        node = await coordinator.node()  # which answers for itself alone
        found = await _read(coordinator, BROKER, str(node), LEAST)
    return found


async def _read(coordinator: GroupCoordinator, kind: int, name: str, setting: str) -> float | None:
    try:
        request = DescribeConfigsRequest([(kind, name, [setting])])
        answer: Any = await coordinator.send(request)
    except IncompatibleBrokerVersion:
        return None
    entries = chain.from_iterable(found for *_, found in answer.resources)
    texts = [value for key, value, *_ in entries if key == setting]
    return next((int(each) / 1000 for each in texts if each and each.isdigit()), None)
