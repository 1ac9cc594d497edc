"""Names of topics. Pure.

A topic's full name is ``persistent://tenant/namespace/name``; a partition of it is a topic of its
own, whose name ends in ``-partition-7``. Its id is ``"7"``, and ``"-1"`` where there are none.
"""

from __future__ import annotations

import re

from consumer_sdk.records import Partition

__all__ = ["full_name", "partition_of", "topic_of"]

PARTITION = re.compile(r"(.+)-partition-(0|[1-9][0-9]*)")


def full_name(topic: str) -> str:
    """The full name of a topic, of which tenant and namespace may be left out."""
    if "://" in topic:
        return topic
    if topic.count("/") == 2:  # noqa: PLR2004 - tenant/namespace/name
        return f"persistent://{topic}"
    return f"persistent://public/default/{topic}"


def partition_of(topic: str) -> Partition:
    """The partition that a topic's full name stands for."""
    match = PARTITION.fullmatch(topic)
    return Partition(topic, "-1") if match is None else Partition(match[1], match[2])


def topic_of(partition: Partition) -> str:
    """Undoes `partition_of`."""
    whole = partition.id == "-1"
    return partition.stream if whole else f"{partition.stream}-partition-{partition.id}"
