r"""What a record that is written again tells of its first life. Pure.

A property of Pulsar is a name with one text. Headers of other brokers may repeat, and hold any bytes:
the second ``trace`` becomes ``trace#2``, and bytes that are no UTF-8 are escaped (``\xff``).
"""

from __future__ import annotations

from consumer_sdk.adapters.pulsar.client.topics import origin_of
from consumer_sdk.checkpoints.positions import LAST_BATCH_INDEX
from consumer_sdk.records import Headers, Partition

__all__ = ["origin_properties", "properties_of", "tries_of"]

REAL_TOPIC = "REAL_TOPIC"
REAL_SUBSCRIPTION = "REAL_SUBSCRIPTION"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
TRIES = "RECONSUMETIMES"


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
    """Where a record came from at first; what it tells of that already stands.

    Args:
        position: the text of its position.
    """
    own = {
        REAL_TOPIC: origin_of(partition.stream, subscription),
        REAL_SUBSCRIPTION: subscription,
        ORIGIN_MESSAGE_ID: _message_id(partition, position),
    }
    return own | {name: properties[name] for name in own.keys() & properties.keys()}


def tries_of(properties: dict[str, str]) -> int:
    """How often a record went through a retry topic."""
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
