"""Names of topics. Pure.

A topic's full name is ``persistent://tenant/namespace/name``; a partition of it is a topic of its
own, whose name ends in ``-partition-7``. Its id is ``"7"``, and ``"-1"`` where there are none.

A subscription of a topic has two topics beside it, named as Pulsar's own clients name them:
``<topic>-<subscription>-RETRY`` and ``<topic>-<subscription>-DLQ``. Partitions share them.
"""

from __future__ import annotations

import re

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import Partition

__all__ = [
    "dead_letter_topic",
    "full_name",
    "is_beside",
    "origin_of",
    "partition_of",
    "read_pattern",
    "retry_topic",
    "topic_of",
]

WHERE = re.compile(r"([a-z-]+)://([^/]+/[^/]+)/([^/]*)")
LEGAL = re.compile(r"[\w=:.-]+/[\w=:.-]+")
"""Of a namespace, with its tenant."""
PARTITION = re.compile(r"(.+)-partition-(0|[1-9][0-9]*)")


def full_name(topic: str) -> str:
    """The full name of a topic, of which tenant and namespace may be left out."""
    if "://" in topic:
        return topic
    if topic.count("/") == 2:  # noqa: PLR2004 - tenant/namespace/name
        return f"persistent://{topic}"
    return f"persistent://public/default/{topic}"


def read_pattern(pattern: str) -> tuple[str, re.Pattern[str]]:
    """The namespace of a pattern, and what the full names of its topics match.

    Tenant and namespace stand before the pattern of names, and hold for each of its alternatives.

    Raises:
        ConfigurationError: it is none, or its topics are in several namespaces.
    """
    found = WHERE.fullmatch(full_name(pattern))
    if found is None or LEGAL.fullmatch(found[2]) is None:
        raise ConfigurationError(
            f"pattern={pattern!r}: give a regular expression of names, and before it the namespace "
            f"if it is not public/default: 'tenant/namespace/aa-.*|bb-.*'"
        )
    domain, namespace, names = found.groups()
    try:
        return namespace, re.compile(f"{domain}://{re.escape(namespace)}/(?:{names})")
    except re.error as error:
        raise ConfigurationError(f"pattern={pattern!r}: {error}") from error


def partition_of(topic: str) -> Partition:
    """The partition that a topic's full name stands for."""
    match = PARTITION.fullmatch(topic)
    return Partition(topic, "-1") if match is None else Partition(match[1], match[2])


def topic_of(partition: Partition) -> str:
    """Undoes `partition_of`."""
    whole = partition.id == "-1"
    return partition.stream if whole else f"{partition.stream}-partition-{partition.id}"


def retry_topic(topic: str, subscription: str) -> str:
    """The retry topic of a subscription, in which postponed records wait."""
    return _beside(topic, subscription, "RETRY")


def dead_letter_topic(topic: str, subscription: str) -> str:
    """The dead-letter topic of a subscription; records from the retry topic go there too."""
    return _beside(origin_of(topic, subscription), subscription, "DLQ")


def origin_of(topic: str, subscription: str) -> str:
    """The topic that a retry topic belongs to; of any other topic, itself."""
    return topic.removesuffix(f"-{_legal(subscription)}-RETRY")


def is_beside(topic: str, subscription: str) -> bool:
    """Whether a topic is the subscription's retry topic or dead-letter topic."""
    ends = tuple(f"-{_legal(subscription)}-{kind}" for kind in ("RETRY", "DLQ"))
    return partition_of(topic).stream.endswith(ends)


def _beside(topic: str, subscription: str, kind: str) -> str:
    whole = partition_of(full_name(topic)).stream
    # What is in a topic that is not persistent is lost when nobody reads it.
    stored = whole.removeprefix("non-")
    return "-".join(name for name in (stored, _legal(subscription), kind) if name)


def _legal(name: str) -> str:
    return name.replace("/", "_")  # it would begin another part of the name
