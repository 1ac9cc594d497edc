"""How long a session of the consumer protocol is, by what a coordinator says that may refuse to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import IncompatibleBrokerVersion, KafkaConnectionError

from consumer_sdk.adapters.kafka.groups.session_timeout import read_session_timeout

OF_GROUP, LEAST = "consumer.session.timeout.ms", "group.consumer.min.session.timeout.ms"
GROUP, BROKER = (32, "g"), (4, "7")


class ScriptedCoordinator:
    """Tells the settings that a test lets it."""

    def __init__(self, told: dict[tuple[int, str], dict[str, str]]) -> None:
        self.told = told
        self.error: Exception | None = None

    async def node(self) -> int:
        """Its number."""
        return 7

    async def send(self, request: Any) -> Any:
        """An answer about one resource."""
        if self.error is not None:
            raise self.error
        ((kind, name, wanted),) = request._resources
        known = self.told.get((kind, name))
        entries: list[tuple[Any, ...]] = [
            (key, (known or {}).get(key), False, 5, False, [])
            for key in wanted
            if known is not None
        ]
        found = (0 if known is not None else 30, "", kind, name, entries)
        return SimpleNamespace(resources=[found])


@pytest.mark.parametrize(
    "told, seconds",
    [
        ({GROUP: {OF_GROUP: "50000"}, BROKER: {LEAST: "45000"}}, 50.0),
        ({BROKER: {LEAST: "45000"}}, 45.0),
        ({GROUP: {}, BROKER: {LEAST: "6500"}}, 6.5),
        ({GROUP: {}, BROKER: {}}, None),
        ({}, None),
    ],
)
async def test_session_is_the_groups_or_the_shortest_that_its_broker_allows(
    told: dict[tuple[int, str], dict[str, str]], seconds: float | None
) -> None:
    """Who may not describe the group may yet describe the cluster; the group may have set any session from the least on."""
    coordinator: Any = ScriptedCoordinator(told)
    assert await read_session_timeout(coordinator, "g") == seconds


async def test_broker_without_such_settings_is_no_error() -> None:
    """One that does not answer is: it is asked again."""
    coordinator: Any = ScriptedCoordinator({})
    coordinator.error = IncompatibleBrokerVersion("no such request")
    assert await read_session_timeout(coordinator, "g") is None
    coordinator.error = KafkaConnectionError("away")
    with pytest.raises(KafkaConnectionError):
        await read_session_timeout(coordinator, "g")
