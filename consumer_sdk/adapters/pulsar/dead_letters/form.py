"""The form of a dead letter in Pulsar: its topic and its properties. Pure.

A dead letter is the record as it was, key, value, properties and event time, with the properties that
Pulsar's own clients add, and with why:

======================  ======================================================================
``REAL_TOPIC``          the topic it came from, without the partition; of a record that came
                        through a retry topic, the one it was in at first. So with the next two
``REAL_SUBSCRIPTION``   the subscription (or group) that gave it up
``ORIGIN_MESSAGE_ID``   its message id, as Java's client writes it: the same letter, written
                        twice after a crash, has the same
``RECONSUMETIMES``      how often it was delivered again, through a retry topic or not
``dlq.stream``          where the delivery that failed came from: the stream,
``dlq.partition``       the partition
``dlq.position``        and the position there
``dlq.error``           what went wrong; cut to 8 KiB
``dlq.error-type``      the exception's qualified name, or ``rejected``
``dlq.attempts``        deliveries that failed
``dlq.failed-at``       seconds since the epoch
======================  ======================================================================
"""

from __future__ import annotations

from consumer_sdk.adapters.pulsar.client.outgoing import (
    TRIES,
    OutgoingRecord,
    origin_properties,
    properties_of,
    schema_of,
    tries_of,
)
from consumer_sdk.adapters.pulsar.client.topics import dead_letter_topic
from consumer_sdk.adapters.pulsar.details import event_time
from consumer_sdk.records import DeadLetter
from consumer_sdk.records.dead_letter import PREFIX

__all__ = ["default_topic", "record_of"]

LONGEST_ERROR = 8192


def default_topic(letter: DeadLetter) -> str:
    """``<topic>-<subscription>-DLQ``, in full."""
    stream = letter.partition.stream
    legal = stream if "://" in stream else stream.replace("/", "_")  # of another broker
    return dead_letter_topic(legal, letter.group)


def record_of(letter: DeadLetter) -> OutgoingRecord:
    """What is written for a letter."""
    return OutgoingRecord(
        key=letter.key,
        value=letter.value,
        properties=_properties(letter),
        ordering_key=letter.ordering_key,
        timestamp=event_time(letter.timestamp, letter.details),
        schema=schema_of(letter.partition.stream, letter.details),
    )


def _properties(letter: DeadLetter) -> dict[str, str]:
    own = properties_of(letter.headers)
    kept = {name: value for name, value in own.items() if not name.startswith(PREFIX)}
    origin = origin_properties(own, letter.partition, letter.position, letter.group)
    tries = {TRIES: str(tries_of(own) + max(letter.attempts - 1, 0))}
    return kept | origin | tries | _why(letter)


def _why(letter: DeadLetter) -> dict[str, str]:
    added = {
        "stream": letter.partition.stream,
        "partition": letter.partition.id,
        "position": letter.position,
        "error": letter.error[:LONGEST_ERROR],
        "error-type": letter.error_type,
        "attempts": letter.attempts,
        "failed-at": letter.failed_at,
    }
    return {PREFIX + name: str(value) for name, value in added.items()}
