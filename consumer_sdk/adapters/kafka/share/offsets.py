"""Looks up how far a share group has come, by DescribeShareGroupOffsets.

Version 1 (KIP-1226, Kafka 4.2) tells the lag. An older broker tells only where the group begins to read, so records
that are settled above that are unknown.

A broker hides errors: if the share coordinator did not tell it what the group has settled, its answer has no error, but
-1, as for a group that has not begun. So it is asked again about a partition that is known to have begun.
"""

# The client has no types, so that its classes cannot be subclassed for the type checker.
# mypy: disable-error-code="misc"

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any, ClassVar, NamedTuple

from aiokafka import TopicPartition
from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import CompactArray, Int16, Int32, Int64, Schema

from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.client.faults import check_code
from consumer_sdk.adapters.kafka.client.lookups import Coordinator
from consumer_sdk.adapters.kafka.client.protocol import (
    COMPACT_TEXT,
    END,
    PARTITIONS_BY_NAME,
    Item,
    Uuid,
    WireRequest,
    items,
)

__all__ = ["DESCRIBE_OFFSETS", "TELLS_LAG_FROM", "ShareOffset", "share_offsets"]

DESCRIBE_OFFSETS = 90
TELLS_LAG_FROM = 1
"""The version that has the lag."""
PAUSES = (0.05, 0.1, 0.2, 0.4)
"""Seconds before each further question."""
NO_GROUP = 69
UNKNOWN_TOPIC = 3


class ShareOffset(NamedTuple):
    """How far a share group has come in a partition.

    Attributes:
        start: the first offset that is not settled; None: the group has not begun.
        lag: records from there on that are not settled, with those that are in handlers; None: not told.
    """

    start: int | None = None
    lag: int | None = None


_ERROR = (("error_code", Int16), ("error_message", COMPACT_TEXT))
_PLACE = (("partition", Int32), ("start_offset", Int64), ("leader_epoch", Int32))


def _groups(partition: Item) -> CompactArray:
    topic = Item(
        ("topic", COMPACT_TEXT), ("topic_id", Uuid), ("partitions", CompactArray(partition))
    )
    return items(("group", COMPACT_TEXT), ("topics", CompactArray(topic)), *_ERROR)


class DescribeOffsetsResponseV0(Response):
    """A start for each partition."""

    API_KEY = DESCRIBE_OFFSETS
    API_VERSION = 0
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32), ("groups", _groups(Item(*_PLACE, *_ERROR))), END
    )


class DescribeOffsetsResponseV1(Response):
    """With the lag of each."""

    API_KEY = DESCRIBE_OFFSETS
    API_VERSION = 1
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32),
        ("groups", _groups(Item(*_PLACE, ("lag", Int64), *_ERROR))),
        END,
    )


class DescribeOffsetsRequestV0(RequestStruct):
    """Asks for some partitions of some groups."""

    FLEXIBLE_VERSION = True
    API_KEY = DESCRIBE_OFFSETS
    API_VERSION = 0
    RESPONSE_TYPE = DescribeOffsetsResponseV0
    SCHEMA: ClassVar[Schema] = Schema(
        ("groups", items(("group", COMPACT_TEXT), ("topics", PARTITIONS_BY_NAME))),
        END,
    )


class DescribeOffsetsRequestV1(RequestStruct):
    """The same."""

    FLEXIBLE_VERSION = True
    API_KEY = DESCRIBE_OFFSETS
    API_VERSION = 1
    RESPONSE_TYPE = DescribeOffsetsResponseV1
    SCHEMA: ClassVar[Schema] = DescribeOffsetsRequestV0.SCHEMA


class DescribeOffsets(WireRequest[DescribeOffsetsRequestV0 | DescribeOffsetsRequestV1]):
    """DescribeShareGroupOffsets."""

    API_KEY = DESCRIBE_OFFSETS


async def share_offsets(
    cluster: Cluster,
    group: str,
    tps: Collection[TopicPartition],
    *,
    begun: Collection[TopicPartition] = (),
    pauses: Sequence[float] = PAUSES,
) -> dict[TopicPartition, ShareOffset]:
    """How far a group has come; a group or partition that the broker does not know has not begun.

    Args:
        begun: partitions of which something is settled: the broker is asked again, some times, if it tells no lag of one.

    Raises:
        KafkaError: the coordinator does not answer, or refuses; or it is older than Kafka 4.1
            (``IncompatibleBrokerVersion``).
    """
    found = await _ask(cluster, group, tps)
    for pause in pauses:
        hidden = [tp for tp in begun if found[tp].lag is None]
        if not hidden:
            break
        await asyncio.sleep(pause)
        found |= await _ask(cluster, group, hidden)
    return found


async def _ask(
    cluster: Cluster, group: str, tps: Collection[TopicPartition]
) -> dict[TopicPartition, ShareOffset]:
    topics = defaultdict(list)
    for topic, number in sorted(tps):
        topics[topic].append(number)
    coordinator = Coordinator(group)
    answer = await cluster.send(
        coordinator, DescribeOffsets(groups=[(group, list(topics.items()))])
    )
    ((_, found, code, _),) = answer.groups
    cluster.check_coordinator(coordinator, code)
    if code != NO_GROUP:
        check_code(code, f"share group {group!r}")
    told = {
        TopicPartition(topic, number): _offset(topic, *rest)
        for topic, _, partitions in found or ()
        for number, *rest in partitions
    }
    return {tp: told.get(tp, ShareOffset()) for tp in tps}


def _offset(topic: str, start: int, _epoch: int, *rest: Any) -> ShareOffset:
    *lag, code, _ = rest
    if code != UNKNOWN_TOPIC:
        check_code(code, topic)
    return ShareOffset(_or_none(start), _or_none(*lag) if lag else None)


def _or_none(number: int) -> int | None:
    """The broker says -1 for what it does not know."""
    return None if number < 0 else number
