"""To which partitions records of letters are replayed, with a native client that is scripted."""

from __future__ import annotations

from typing import Any

import pytest

from consumer_sdk.adapters.pulsar.client.connection import Connection
from consumer_sdk.adapters.pulsar.dead_letters import PulsarRecords
from consumer_sdk.records import OutcomeKind, Partition
from tests.adapters.pulsar.client.test_producers import TOPIC, Writer
from tests.adapters.pulsar.dead_letters.test_form import letter_of

JAVAS = 107 % 4
"""The partition of four where Java's client puts the key ``k``."""


@pytest.mark.parametrize(
    "letter, topic, partition",
    [
        ({}, None, "-partition-2"),
        ({"key": None}, None, "-partition-2"),
        ({"partition": Partition(TOPIC, "9")}, None, f"-partition-{JAVAS}"),
        ({"partition": Partition(TOPIC, "-1")}, None, f"-partition-{JAVAS}"),
        ({"partition": Partition(TOPIC, "-1"), "key": None}, None, ""),
        ({}, TOPIC, f"-partition-{JAVAS}"),
        ({"key": None}, TOPIC, ""),
    ],
    ids=["key", "none", "gone", "whole", "whole-none", "given", "given-none"],
)
async def test_record_goes_back_to_the_partition_it_came_from(
    monkeypatch: pytest.MonkeyPatch, letter: dict[str, Any], topic: str | None, partition: str
) -> None:
    """Its producer may have another hash than Java's; in a topic that is given, its partition means nothing."""
    client = Writer()
    client.names[TOPIC] = [f"{TOPIC}-partition-{n}" for n in range(4)]
    monkeypatch.setattr(Connection, "make_client", lambda _: client)
    records = PulsarRecords(topic, service_url="pulsar://h:6650", initial_subscription=None)
    (outcome,) = await records.send([letter_of(TOPIC, **letter)])
    assert outcome.kind is OutcomeKind.DURABLE
    assert client.open_ones == [TOPIC + partition]
    await records.aclose()


async def test_record_goes_back_to_a_topic_without_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is the partition."""
    client = Writer()
    monkeypatch.setattr(Connection, "make_client", lambda _: client)
    records = PulsarRecords(service_url="pulsar://h:6650", initial_subscription=None)
    await records.send([letter_of(partition=Partition(TOPIC, "-1"))])
    assert client.open_ones == [TOPIC]
    await records.aclose()
