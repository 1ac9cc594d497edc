"""Kafka's answers: each kind that this package reads, as a broker sends it, and how it becomes a value."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.protocol import types
from aiokafka.protocol.metadata import MetadataResponse_v1, MetadataResponse_v5

from consumer_sdk.adapters.kafka.client.cluster_metadata import ClusterMetadata
from consumer_sdk.adapters.kafka.client.protocol import MetadataResponseV12, Uuid
from consumer_sdk.adapters.kafka.commits import structs as commits
from consumer_sdk.adapters.kafka.groups import structs as groups
from consumer_sdk.adapters.kafka.groups.subscriptions import (
    Assignment,
    Claims,
    Subscription,
    UnreadableMemberError,
    read_assignment,
    read_claims,
    read_generation,
    read_subscription,
    write_assignment,
    write_claims,
    write_subscription,
)
from consumer_sdk.adapters.kafka.share import structs as share
from consumer_sdk.adapters.kafka.transactions import structs as transactions

__all__ = ["ANSWERS", "ERRORS", "answer_samples", "member_samples", "read_answer", "read_member"]

ERRORS = (KafkaError, UnreadableMemberError)


def _metadata(answer: Any) -> object:
    return ClusterMetadata().take(answer, 0.0)


def _codes(answer: Any) -> object:
    return commits.codes_in(answer.topics)


def _nothing(answer: Any) -> object:
    return answer


ANSWERS: Mapping[Any, Callable[[Any], object]] = {
    MetadataResponse_v1: _metadata,
    MetadataResponse_v5: _metadata,
    MetadataResponseV12: _metadata,
    groups.JoinGroupResponseV9: groups.from_wire,
    groups.SyncGroupResponseV5: groups.from_wire,
    groups.HeartbeatResponseV3: groups.from_wire,
    groups.HeartbeatResponseV4: groups.from_wire,
    groups.LeaveGroupResponseV3: groups.from_wire,
    groups.LeaveGroupResponseV4: groups.from_wire,
    groups.ConsumerHeartbeatResponseV0: groups.from_wire,
    share.HeartbeatResponseV1: share.from_wire,
    share.FetchResponseV1: share.from_wire,
    share.FetchResponseV2: share.from_wire,
    share.AcknowledgeResponseV1: share.from_wire,
    share.AcknowledgeResponseV2: share.from_wire,
    commits.OffsetCommitResponseV10: _codes,
    commits.OffsetCommitResponseV7: _codes,
    commits.OffsetCommitResponseV9: _codes,
    commits.TxnOffsetCommitResponseV3: _codes,
    transactions.InitProducerIdResponseV3: _nothing,
}
"""By the class of a response: what reads it."""
KINDS = list(ANSWERS)


def answer_samples() -> tuple[bytes, ...]:
    """The number of the kind, and an answer in which all arrays have two entries."""
    return tuple(
        bytes([n]) + bytes(kind.SCHEMA.encode(_value(kind.SCHEMA))) for n, kind in enumerate(KINDS)
    )


def _value(kind: Any, place: int = 0) -> Any:
    """Something of a type of the protocol; offsets ascend with the place in an array."""
    if isinstance(kind, types.Schema):
        return [_value(each, place) for each in kind.fields]
    if isinstance(kind, types.Array):
        return [_value(kind.array_of, n) for n in range(2)]
    if isinstance(kind, types.String):
        return "abc"
    return SIMPLE[kind] + place if kind is types.Int64 else SIMPLE[kind]


SIMPLE: Mapping[Any, Any] = {
    types.Int8: 1,
    types.Int16: 0,
    types.Int32: 3,
    types.Int64: 7,
    types.Boolean: True,
    types.Bytes: b"xyz",
    types.CompactBytes: b"xyz",
    types.TaggedFields: {},
    Uuid: bytes(range(16)),
}


def read_answer(data: bytes) -> object:
    """As a connection does, and then whoever has asked."""
    kind = KINDS[data[0] % len(KINDS)] if data else KINDS[0]
    try:
        answer = kind.decode(BytesIO(data[1:]))
    except (ValueError, struct.error, TypeError) as error:  # the client ends the connection
        raise KafkaError(str(error)) from error
    return ANSWERS[kind](answer)


def member_samples() -> tuple[bytes, ...]:
    """The number of the kind, and what members and leaders of a group tell each other."""
    owned = frozenset({TopicPartition("t", 0), TopicPartition("t", 1)})
    subscription = Subscription(frozenset({"t", "u"}), b"data", owned, 3, "rack")
    return (
        b"\0" + write_subscription(subscription),
        b"\1" + write_assignment(Assignment(owned, b"data")),
        b"\2" + write_claims(Claims(owned, 3)),
    )


def read_member(data: bytes) -> object:
    """As the leader of a group and its members do; any client of the group may have written it."""
    kind, rest = data[:1], data[1:]
    if kind == b"\1":
        return read_assignment(rest, "m")
    if kind == b"\2":
        return read_claims(rest), read_generation(rest)
    return read_subscription(rest, "m")
