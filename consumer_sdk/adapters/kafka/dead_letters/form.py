"""The form of a dead letter in Kafka: its topic, its partition, its headers. Pure.

A dead letter is the record as it was, key, value and headers, with these headers added, all of
them UTF-8 text:

======================  ======================================================================
``dlq.stream``          the topic (or Kinesis stream, Pulsar topic) it came from
``dlq.partition``       the partition there
``dlq.position``        the position there
``dlq.timestamp``       the record's own timestamp, milliseconds since the epoch; if it had one
``dlq.group``           the group that gave it up
``dlq.error``           what went wrong; cut to 8 KiB
``dlq.error-type``      the exception's qualified name, or ``rejected``
``dlq.attempts``        deliveries that failed
``dlq.failed-at``       seconds since the epoch
======================  ======================================================================

The record's own timestamp goes into a header and not into the dead letter's timestamp: a topic's
retention would delete an old record's dead letter at once.
"""

from __future__ import annotations

import hashlib
import re

from consumer_sdk.adapters.kafka.client.topics import Topic
from consumer_sdk.records import DeadLetter
from consumer_sdk.records.dead_letter import PREFIX

__all__ = ["default_topic", "headers", "legal", "partition"]

LONGEST_ERROR = 8192
LONGEST_TOPIC = 249


def default_topic(letter: DeadLetter) -> str:
    """``<stream>-<group>-DLQ``, as Kafka accepts it."""
    names = [letter.partition.stream, letter.group, "DLQ"]
    return legal("-".join(name for name in names if name))


def legal(name: str) -> str:
    """A topic name that Kafka accepts."""
    legal = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    if len(legal) > LONGEST_TOPIC:
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        legal = f"{legal[: LONGEST_TOPIC - 17]}-{digest}"
    return legal


def headers(letter: DeadLetter) -> list[tuple[str, bytes | None]]:
    """The record's own headers, without those of an earlier dead letter, and why and where."""
    added = {
        "stream": letter.partition.stream,
        "partition": letter.partition.id,
        "position": letter.position,
        "timestamp": letter.timestamp,
        "group": letter.group,
        "error": letter.error[:LONGEST_ERROR],
        "error-type": letter.error_type,
        "attempts": letter.attempts,
        "failed-at": letter.failed_at,
    }
    kept = [(name, value) for name, value in letter.headers if not name.startswith(PREFIX)]
    return kept + [
        (PREFIX + name, str(value).encode()) for name, value in added.items() if value is not None
    ]


def partition(topic: Topic, letter: DeadLetter) -> int | None:
    """The origin's number where the topic has it, else by key."""
    number = letter.partition.id
    return int(number) if number.isdigit() and int(number) in topic.partitions else None
