r"""A record to be written to Pulsar: its parts, its native message, and the properties with its origin.

A property of Pulsar is a name with one text. Headers of other brokers may repeat, and hold any bytes:
the second ``trace`` becomes ``trace#2``, and bytes that are no UTF-8 are escaped (``\xff``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import _pulsar

from consumer_sdk.adapters.pulsar.client.topics import origin_of
from consumer_sdk.adapters.pulsar.details import PulsarDetails
from consumer_sdk.checkpoints.positions import LAST_BATCH_INDEX
from consumer_sdk.records import Headers, Partition

__all__ = [
    "TRIES",
    "OutgoingRecord",
    "SchemaOf",
    "make_message",
    "origin_properties",
    "properties_of",
    "schema_of",
    "tries_of",
]

REAL_TOPIC = "REAL_TOPIC"
REAL_SUBSCRIPTION = "REAL_SUBSCRIPTION"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
TRIES = "RECONSUMETIMES"


class SchemaOf(NamedTuple):
    """The schema of a record that was read from one topic and is written to another.

    Attributes:
        topic: the topic that it was read from.
        version: the broker's number of the schema there.
    """

    topic: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingRecord:
    """A record to be written.

    Attributes:
        key: None or empty for none, which is the same to Pulsar.
        properties: names and values.
        ordering_key: None or empty for none.
        schema: to write it with; None for none.
        timestamp: the event time, milliseconds since the epoch; None for none.
        delay: seconds until consumers of shared subscriptions get it.
    """

    key: bytes | None
    value: bytes | None
    properties: Mapping[str, str]
    ordering_key: bytes | None = None
    timestamp: int | None = None
    delay: float = 0.0
    schema: SchemaOf | None = None


def schema_of(stream: str, details: object) -> SchemaOf | None:
    """The schema of a record that was read from Pulsar; None for a record of another broker."""
    if not isinstance(details, PulsarDetails) or details.schema_version is None:
        return None
    return SchemaOf(stream, details.schema_version)


def make_message(record: OutgoingRecord) -> Any:
    """The native message of a record."""
    builder = _pulsar.MessageBuilder()
    if record.value is None:
        builder.set_null_value()
    else:
        builder.content(record.value)
    # Text and bytes are the same to the extension: bytes that are no UTF-8 stay as they are.
    if record.key:
        builder.partition_key(record.key)
    if record.ordering_key:
        builder.ordering_key(record.ordering_key)
    if record.timestamp is not None and record.timestamp >= 0:
        builder.event_timestamp(record.timestamp)
    for name, value in record.properties.items():
        builder.property(name, value)
    if record.delay > 0:
        builder.deliver_after(timedelta(seconds=record.delay))
    return builder.build()


# -- properties ----------------------------------------------------------------------------


def properties_of(headers: Headers) -> dict[str, str]:
    """The headers of a record as properties."""
    made: dict[str, str] = {}
    for name, value in headers:
        free, number = name, 1
        while free in made:
            number += 1
            free = f"{name}#{number}"
        made[free] = (value or b"").decode("utf-8", "backslashreplace")
    return made


def origin_properties(
    properties: dict[str, str], partition: Partition, position: str, subscription: str
) -> dict[str, str]:
    """The properties with a record's first origin; properties that it has already are kept.

    Args:
        properties: of the record as it was read.
        position: where it was read, as text.
    """
    own = {
        REAL_TOPIC: origin_of(partition.stream, subscription),
        REAL_SUBSCRIPTION: subscription,
        ORIGIN_MESSAGE_ID: _message_id(partition, position),
    }
    return own | {name: properties[name] for name in own.keys() & properties.keys()}


def tries_of(properties: dict[str, str]) -> int:
    """How often a record went through a retry topic, by its properties."""
    text = properties.get(TRIES, "0")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0  # noqa: PLR2004


def _message_id(partition: Partition, position: str) -> str:
    """As Java writes it: ``ledger:entry:partition``, and the index of one that was in a batch."""
    numbers = position.split(":")
    if len(numbers) != 3:  # noqa: PLR2004 - it is another broker's
        return position
    ledger, entry, index = numbers
    place = f"{ledger}:{entry}:{partition.id}"
    return place if index == str(LAST_BATCH_INDEX) else f"{place}:{index}"
