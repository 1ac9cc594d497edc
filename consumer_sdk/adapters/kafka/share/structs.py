"""Encodes `messages` for the wire: versions 1 and 2 of the requests of share groups.

`to_wire` gives a request that the client sends in the newest version that it and the broker know; `from_wire` reads the
answer in whichever version it came. Version 0 was Kafka 4.0's preview, which no later broker knows. Version 2 (Kafka 4.2)
brings acquire modes (KIP-1206) and renewals (KIP-1222): an older broker does not get the mode. It gets no renewals
either, because the sender checks its version first.
"""

# The client has no types, so that its classes cannot be subclassed for the type checker.
# mypy: disable-error-code="misc"

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from aiokafka.errors import CorruptRecordException
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactBytes,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
)

from consumer_sdk.adapters.kafka.client.protocol import (
    COMPACT_TEXT,
    END,
    TOPIC_PARTITIONS,
    Item,
    Nullable,
    Uuid,
    WireRequest,
    by_topic,
    items,
    milliseconds,
)
from consumer_sdk.adapters.kafka.share import messages
from consumer_sdk.adapters.kafka.share.messages import (
    AckBatch,
    AcknowledgedPartition,
    AcquiredRange,
    FetchedPartition,
    TopicIdPartition,
)

__all__ = ["ACKNOWLEDGE", "FETCH", "HEARTBEAT", "RENEWS_FROM", "from_wire", "to_wire"]

HEARTBEAT, FETCH, ACKNOWLEDGE = 76, 78, 79
"""Keys of the requests."""
RENEWS_FROM = 2
"""The version of a fetch and of an acknowledgement that has modes and renewals."""
MOST_THROTTLE = 60.0
"""Seconds for which a broker is left alone at most when it asks for that."""
MOST_ACQUIRED = 1 << 20
"""Records that one fetch may acquire of a partition. A broker acquires 2 000 by default, or one batch, which holds
millions of records only if somebody wants it to."""


# -- heartbeats ---------------------------------------------------------------------------------


class HeartbeatResponseV1(Response):
    """Epoch and assignment of the member."""

    API_KEY = HEARTBEAT
    API_VERSION = 1
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("error_message", COMPACT_TEXT),
        ("member_id", COMPACT_TEXT),
        ("member_epoch", Int32),
        ("heartbeat_interval", Int32),
        (
            "assignment",
            Nullable(("topic_partitions", TOPIC_PARTITIONS)),
        ),
        END,
    )


class HeartbeatRequestV1(RequestStruct):
    """A sign of life."""

    FLEXIBLE_VERSION = True
    API_KEY = HEARTBEAT
    API_VERSION = 1
    RESPONSE_TYPE = HeartbeatResponseV1
    SCHEMA: ClassVar[Schema] = Schema(
        ("group", COMPACT_TEXT),
        ("member_id", COMPACT_TEXT),
        ("member_epoch", Int32),
        ("rack", COMPACT_TEXT),
        ("topics", CompactArray(COMPACT_TEXT)),
        END,
    )


class Heartbeat(WireRequest[HeartbeatRequestV1]):
    """`messages.ShareGroupHeartbeat`."""

    API_KEY = HEARTBEAT


# -- what fetches and acknowledgements share ------------------------------------------------------

_ACKED_TOPICS = by_topic(
    ("partition", Int32),
    ("batches", items(("first", Int64), ("last", Int64), ("types", CompactArray(Int8)))),
    topic=Uuid,
)
_LEADER = Item(("leader_id", Int32), ("leader_epoch", Int32))
_ENDPOINTS = items(
    ("node_id", Int32), ("host", COMPACT_TEXT), ("port", Int32), ("rack", COMPACT_TEXT)
)


# -- fetches ------------------------------------------------------------------------------------


class FetchResponseV1(Response):
    """Record batches, and which of their records were acquired."""

    API_KEY = FETCH
    API_VERSION = 1
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("error_message", COMPACT_TEXT),
        ("lock_timeout", Int32),
        (
            "topics",
            by_topic(
                ("partition", Int32),
                ("error_code", Int16),
                ("error_message", COMPACT_TEXT),
                ("ack_error_code", Int16),
                ("ack_error_message", COMPACT_TEXT),
                ("leader", _LEADER),
                ("records", CompactBytes),
                ("acquired", items(("first", Int64), ("last", Int64), ("delivery_count", Int16))),
                topic=Uuid,
            ),
        ),
        ("endpoints", _ENDPOINTS),
        END,
    )


class FetchResponseV2(Response):
    """The same."""

    API_KEY = FETCH
    API_VERSION = 2
    SCHEMA: ClassVar[Schema] = FetchResponseV1.SCHEMA


_FETCH_HEAD = (
    ("group", COMPACT_TEXT),
    ("member_id", COMPACT_TEXT),
    ("epoch", Int32),
    ("max_wait", Int32),
    ("min_bytes", Int32),
    ("max_bytes", Int32),
    ("max_records", Int32),
    ("batch_size", Int32),
)
_FETCH_REST = (
    ("topics", _ACKED_TOPICS),
    ("forgotten", TOPIC_PARTITIONS),
    END,
)


class FetchRequestV1(RequestStruct):
    """Of Kafka 4.1."""

    FLEXIBLE_VERSION = True
    API_KEY = FETCH
    API_VERSION = 1
    RESPONSE_TYPE = FetchResponseV1
    SCHEMA: ClassVar[Schema] = Schema(*_FETCH_HEAD, *_FETCH_REST)


class FetchRequestV2(RequestStruct):
    """Of Kafka 4.2: with an acquire mode."""

    FLEXIBLE_VERSION = True
    API_KEY = FETCH
    API_VERSION = 2
    RESPONSE_TYPE = FetchResponseV2
    SCHEMA: ClassVar[Schema] = Schema(
        *_FETCH_HEAD, ("acquire_mode", Int8), ("has_renewals", Boolean), *_FETCH_REST
    )


class Fetch(WireRequest[FetchRequestV1 | FetchRequestV2]):
    """`messages.ShareFetch`."""

    API_KEY = FETCH


# -- acknowledgements ---------------------------------------------------------------------------

_ACKNOWLEDGED = (
    (
        "topics",
        by_topic(
            ("partition", Int32),
            ("error_code", Int16),
            ("error_message", COMPACT_TEXT),
            ("leader", _LEADER),
            topic=Uuid,
        ),
    ),
    ("endpoints", _ENDPOINTS),
    END,
)
_ANSWER_HEAD = (
    ("throttle_time_ms", Int32),
    ("error_code", Int16),
    ("error_message", COMPACT_TEXT),
)


class AcknowledgeResponseV1(Response):
    """An error code for each partition."""

    API_KEY = ACKNOWLEDGE
    API_VERSION = 1
    SCHEMA: ClassVar[Schema] = Schema(*_ANSWER_HEAD, *_ACKNOWLEDGED)


class AcknowledgeResponseV2(Response):
    """With the time for which a renewed record stays acquired."""

    API_KEY = ACKNOWLEDGE
    API_VERSION = 2
    SCHEMA: ClassVar[Schema] = Schema(*_ANSWER_HEAD, ("lock_timeout", Int32), *_ACKNOWLEDGED)


class AcknowledgeRequestV1(RequestStruct):
    """Of Kafka 4.1."""

    FLEXIBLE_VERSION = True
    API_KEY = ACKNOWLEDGE
    API_VERSION = 1
    RESPONSE_TYPE = AcknowledgeResponseV1
    SCHEMA: ClassVar[Schema] = Schema(
        ("group", COMPACT_TEXT),
        ("member_id", COMPACT_TEXT),
        ("epoch", Int32),
        ("topics", _ACKED_TOPICS),
        END,
    )


class AcknowledgeRequestV2(RequestStruct):
    """Of Kafka 4.2: says whether it renews."""

    FLEXIBLE_VERSION = True
    API_KEY = ACKNOWLEDGE
    API_VERSION = 2
    RESPONSE_TYPE = AcknowledgeResponseV2
    SCHEMA: ClassVar[Schema] = Schema(
        ("group", COMPACT_TEXT),
        ("member_id", COMPACT_TEXT),
        ("epoch", Int32),
        ("has_renewals", Boolean),
        ("topics", _ACKED_TOPICS),
        END,
    )


class Acknowledge(WireRequest[AcknowledgeRequestV1 | AcknowledgeRequestV2]):
    """`messages.ShareAcknowledge`."""

    API_KEY = ACKNOWLEDGE


# -- from values to requests ------------------------------------------------------------------


def to_wire(request: Any) -> Request[Any]:
    """What the client sends.

    Args:
        request: one of `messages.Request`.

    Raises:
        IncompatibleBrokerVersion, NotImplementedError: by the client, when it sends it: the broker has no share groups.
    """
    return _MAKERS[type(request)](request)


def _heartbeat(request: messages.ShareGroupHeartbeat) -> Heartbeat:
    return Heartbeat(
        group=request.group,
        member_id=request.member_id,
        member_epoch=request.epoch,
        rack=request.rack,
        topics=request.topics,
    )


def _fetch(request: messages.ShareFetch) -> Fetch:
    return Fetch(
        group=request.group,
        member_id=request.member_id,
        epoch=request.epoch,
        max_wait=milliseconds(request.max_wait),
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        max_records=request.max_records,
        batch_size=request.batch_size,
        acquire_mode=int(request.acquire_mode),
        has_renewals=request.has_renewals,
        topics=_acked(request.topics),
        forgotten=_grouped(request.forgotten),
    )


def _acknowledge(request: messages.ShareAcknowledge) -> Acknowledge:
    return Acknowledge(
        group=request.group,
        member_id=request.member_id,
        epoch=request.epoch,
        has_renewals=request.has_renewals,
        topics=_acked(request.topics),
    )


def _acked(topics: Mapping[TopicIdPartition, Sequence[AckBatch]]) -> list[Any]:
    found: dict[bytes, list[Any]] = {}
    for (topic_id, partition), batches in topics.items():
        found.setdefault(topic_id, []).append((partition, list(batches)))
    return list(found.items())


def _grouped(partitions: Iterable[TopicIdPartition]) -> list[Any]:
    found: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        found.setdefault(topic_id, []).append(partition)
    return list(found.items())


_MAKERS: Mapping[type[Any], Callable[[Any], Request[Any]]] = {
    messages.ShareGroupHeartbeat: _heartbeat,
    messages.ShareFetch: _fetch,
    messages.ShareAcknowledge: _acknowledge,
}


# -- from responses to values -----------------------------------------------------------------


def from_wire(response: Any) -> Any:
    """What was answered, one of `messages.Answer`.

    Args:
        response: as the client returned it for what `to_wire` made.
    """
    return _READERS[response.API_KEY](response)


def _alive(response: Any) -> messages.ShareGroupHeartbeatAnswer:
    assignment = response.assignment
    return messages.ShareGroupHeartbeatAnswer(
        response.error_code,
        response.error_message or "",
        response.member_id or "",
        response.member_epoch,
        response.heartbeat_interval / 1000,
        None
        if assignment is None
        else {topic_id: frozenset(numbers or ()) for topic_id, numbers in assignment[0] or ()},
    )


def _fetched(response: Any) -> messages.ShareFetchAnswer:
    return messages.ShareFetchAnswer(
        response.error_code,
        response.error_message or "",
        _throttle(response),
        response.lock_timeout / 1000,
        {
            TopicIdPartition(topic_id, number): _partition(rest)
            for topic_id, partitions in response.topics or ()
            for number, *rest in partitions or ()
        },
    )


def _throttle(response: Any) -> float:
    """Seconds that the broker is left alone; nothing is acknowledged or renewed meanwhile."""
    told: int = response.throttle_time_ms
    return min(max(told / 1000, 0.0), MOST_THROTTLE)


def _partition(fields: Sequence[Any]) -> FetchedPartition:
    error, message, ack_error, ack_message, leader, records, acquired = fields
    return FetchedPartition(
        error,
        message or "",
        ack_error,
        ack_message or "",
        leader,
        records or b"",
        _acquired(acquired or ()),
    )


def _acquired(ranges: Iterable[tuple[int, int, int]]) -> tuple[AcquiredRange, ...]:
    """Each offset of them will take memory, so that an answer's word for their number is not enough.

    Raises:
        CorruptRecordException: they do not ascend, or are more than a broker acquires.
    """
    found = tuple(AcquiredRange(*each) for each in ranges)
    behind, count = 0, 0
    for first, last, _deliveries in found:
        if not behind <= first <= last or (count := count + last + 1 - first) > MOST_ACQUIRED:
            raise CorruptRecordException(
                f"a broker acquired the offsets {first} to {last} behind {behind - 1}: at most {MOST_ACQUIRED} ascending "
                "ones of a partition are taken from one answer"
            )
        behind = last + 1
    return found


def _acknowledged(response: Any) -> messages.ShareAcknowledgeAnswer:
    return messages.ShareAcknowledgeAnswer(
        response.error_code,
        response.error_message or "",
        _throttle(response),
        getattr(response, "lock_timeout", 0) / 1000,
        {
            TopicIdPartition(topic_id, number): AcknowledgedPartition(error, text or "", leader)
            for topic_id, partitions in response.topics or ()
            for number, error, text, leader in partitions or ()
        },
    )


_READERS: Mapping[int, Callable[[Any], Any]] = {
    HEARTBEAT: _alive,
    FETCH: _fetched,
    ACKNOWLEDGE: _acknowledged,
}
