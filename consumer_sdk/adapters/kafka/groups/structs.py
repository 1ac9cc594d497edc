"""Encodes `messages` for the wire.

`to_wire` gives a request that the client sends in the newest version that it and the broker know; `from_wire` reads
the answer in whichever version it came. Brokers from Kafka 2.3 on know static members; older brokers do not get the
instance id. The flexible versions (KIP-482) have later fields: reasons (KIP-800), the name of the protocol (KIP-559), an
assignment that the leader is to keep (KIP-814).
"""

# The client has no types, so that its classes cannot be subclassed for the type checker.
# mypy: disable-error-code="misc"

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.group import (
    HeartbeatRequest_v1,
    JoinGroupRequest_v2,
    JoinGroupRequest_v5,
    LeaveGroupRequest_v1,
    SyncGroupRequest_v1,
    SyncGroupRequest_v3,
)
from aiokafka.protocol.types import (
    Array,
    Boolean,
    CompactArray,
    CompactBytes,
    Int16,
    Int32,
    Schema,
)

from consumer_sdk.adapters.kafka.client.protocol import (
    COMPACT_TEXT,
    END,
    TEXT,
    TOPIC_PARTITIONS,
    Nullable,
    WireRequest,
    items,
    milliseconds,
)
from consumer_sdk.adapters.kafka.groups import messages

__all__ = ["from_wire", "to_wire"]

JOIN, HEARTBEAT, LEAVE, SYNC, CONSUMER_HEARTBEAT = 11, 12, 13, 14, 68
PROTOCOL_TYPE = "consumer"
REASON_SIZE = 255
"""Characters of a reason; the broker takes no more (KIP-800)."""
UNCHANGED = -1


# -- the classic protocol -----------------------------------------------------------------------


class JoinGroupResponseV9(Response):
    """The generation; to the leader, its members too."""

    API_KEY = JOIN
    API_VERSION = 9
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("generation_id", Int32),
        ("protocol_type", COMPACT_TEXT),
        ("group_protocol", COMPACT_TEXT),
        ("leader_id", COMPACT_TEXT),
        ("skip_assignment", Boolean),
        ("member_id", COMPACT_TEXT),
        (
            "members",
            items(
                ("member_id", COMPACT_TEXT),
                ("group_instance_id", COMPACT_TEXT),
                ("member_metadata", CompactBytes),
            ),
        ),
        END,
    )


class JoinGroupRequestV9(RequestStruct):
    """Asks to take part, and says why."""

    FLEXIBLE_VERSION = True
    API_KEY = JOIN
    API_VERSION = 9
    RESPONSE_TYPE = JoinGroupResponseV9
    SCHEMA: ClassVar[Schema] = Schema(
        ("group", COMPACT_TEXT),
        ("session_timeout", Int32),
        ("rebalance_timeout", Int32),
        ("member_id", COMPACT_TEXT),
        ("group_instance_id", COMPACT_TEXT),
        ("protocol_type", COMPACT_TEXT),
        (
            "group_protocols",
            items(("protocol_name", COMPACT_TEXT), ("protocol_metadata", CompactBytes)),
        ),
        ("reason", COMPACT_TEXT),
        END,
    )


class JoinGroup(WireRequest[JoinGroupRequest_v2 | JoinGroupRequest_v5 | JoinGroupRequestV9]):
    """`messages.JoinGroup`."""

    API_KEY = JOIN


class SyncGroupResponseV5(Response):
    """The member's assignment."""

    API_KEY = SYNC
    API_VERSION = 5
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("protocol_type", COMPACT_TEXT),
        ("protocol_name", COMPACT_TEXT),
        ("member_assignment", CompactBytes),
        END,
    )


class SyncGroupRequestV5(RequestStruct):
    """Asks for the assignment, and names the protocol that it belongs to."""

    FLEXIBLE_VERSION = True
    API_KEY = SYNC
    API_VERSION = 5
    RESPONSE_TYPE = SyncGroupResponseV5
    SCHEMA: ClassVar[Schema] = Schema(
        ("group", COMPACT_TEXT),
        ("generation_id", Int32),
        ("member_id", COMPACT_TEXT),
        ("group_instance_id", COMPACT_TEXT),
        ("protocol_type", COMPACT_TEXT),
        ("protocol_name", COMPACT_TEXT),
        ("group_assignment", items(("member_id", COMPACT_TEXT), ("member_metadata", CompactBytes))),
        END,
    )


class SyncGroup(WireRequest[SyncGroupRequest_v1 | SyncGroupRequest_v3 | SyncGroupRequestV5]):
    """`messages.SyncGroup`."""

    API_KEY = SYNC


class HeartbeatResponseV3(Response):
    """An error code."""

    API_KEY = HEARTBEAT
    API_VERSION = 3
    SCHEMA: ClassVar[Schema] = Schema(("throttle_time_ms", Int32), ("error_code", Int16))


class HeartbeatRequestV3(RequestStruct):
    """A sign of life of a member that may be static."""

    API_KEY = HEARTBEAT
    API_VERSION = 3
    RESPONSE_TYPE = HeartbeatResponseV3
    SCHEMA: ClassVar[Schema] = Schema(
        ("group", TEXT),
        ("generation_id", Int32),
        ("member_id", TEXT),
        ("group_instance_id", TEXT),
    )


class HeartbeatResponseV4(Response):
    """An error code."""

    API_KEY = HEARTBEAT
    API_VERSION = 4
    SCHEMA: ClassVar[Schema] = Schema(("throttle_time_ms", Int32), ("error_code", Int16), END)


class HeartbeatRequestV4(RequestStruct):
    """A sign of life."""

    FLEXIBLE_VERSION = True
    API_KEY = HEARTBEAT
    API_VERSION = 4
    RESPONSE_TYPE = HeartbeatResponseV4
    SCHEMA: ClassVar[Schema] = Schema(
        ("group", COMPACT_TEXT),
        ("generation_id", Int32),
        ("member_id", COMPACT_TEXT),
        ("group_instance_id", COMPACT_TEXT),
        END,
    )


class Heartbeat(WireRequest[HeartbeatRequest_v1 | HeartbeatRequestV3 | HeartbeatRequestV4]):
    """`messages.Heartbeat`."""

    API_KEY = HEARTBEAT


class LeaveGroupResponseV3(Response):
    """An error code for each member that left."""

    API_KEY = LEAVE
    API_VERSION = 3
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        (
            "members",
            Array(("member_id", TEXT), ("group_instance_id", TEXT), ("error_code", Int16)),
        ),
    )


class LeaveGroupRequestV3(RequestStruct):
    """Members leave, which may be static."""

    API_KEY = LEAVE
    API_VERSION = 3
    RESPONSE_TYPE = LeaveGroupResponseV3
    SCHEMA: ClassVar[Schema] = Schema(
        ("group", TEXT),
        ("members", Array(("member_id", TEXT), ("group_instance_id", TEXT))),
    )


class LeaveGroupResponseV4(Response):
    """An error code for each member that left."""

    API_KEY = LEAVE
    API_VERSION = 4
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        (
            "members",
            items(
                ("member_id", COMPACT_TEXT),
                ("group_instance_id", COMPACT_TEXT),
                ("error_code", Int16),
            ),
        ),
        END,
    )


class LeaveGroupRequestV4(RequestStruct):
    """Members leave."""

    FLEXIBLE_VERSION = True
    API_KEY = LEAVE
    API_VERSION = 4
    RESPONSE_TYPE = LeaveGroupResponseV4
    SCHEMA: ClassVar[Schema] = Schema(
        ("group", COMPACT_TEXT),
        ("members", items(("member_id", COMPACT_TEXT), ("group_instance_id", COMPACT_TEXT))),
        END,
    )


class LeaveGroup(WireRequest[LeaveGroupRequest_v1 | LeaveGroupRequestV3 | LeaveGroupRequestV4]):
    """`messages.LeaveGroup`."""

    API_KEY = LEAVE


# -- the consumer protocol, KIP-848 ---------------------------------------------------------------


class ConsumerHeartbeatResponseV0(Response):
    """Epoch and assignment of the member."""

    API_KEY = CONSUMER_HEARTBEAT
    API_VERSION = 0
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("error_message", COMPACT_TEXT),
        ("member_id", COMPACT_TEXT),
        ("member_epoch", Int32),
        ("heartbeat_interval", Int32),
        ("assignment", Nullable(("topic_partitions", TOPIC_PARTITIONS))),
        END,
    )


class ConsumerHeartbeatResponseV1(Response):
    """Epoch and assignment of the member."""

    API_KEY = CONSUMER_HEARTBEAT
    API_VERSION = 1
    SCHEMA: ClassVar[Schema] = ConsumerHeartbeatResponseV0.SCHEMA


class ConsumerHeartbeatRequestV0(RequestStruct):
    """Of Kafka 3.7: topics by name alone."""

    FLEXIBLE_VERSION = True
    API_KEY = CONSUMER_HEARTBEAT
    API_VERSION = 0
    RESPONSE_TYPE = ConsumerHeartbeatResponseV0
    SCHEMA: ClassVar[Schema] = Schema(
        ("group", COMPACT_TEXT),
        ("member_id", COMPACT_TEXT),
        ("member_epoch", Int32),
        ("instance_id", COMPACT_TEXT),
        ("rack", COMPACT_TEXT),
        ("rebalance_timeout", Int32),
        ("topics", CompactArray(COMPACT_TEXT)),
        ("assignor", COMPACT_TEXT),
        ("owned", TOPIC_PARTITIONS),
        END,
    )


class ConsumerHeartbeatRequestV1(RequestStruct):
    """Of Kafka 4.0: topics by name or by a regular expression."""

    FLEXIBLE_VERSION = True
    API_KEY = CONSUMER_HEARTBEAT
    API_VERSION = 1
    RESPONSE_TYPE = ConsumerHeartbeatResponseV1
    SCHEMA: ClassVar[Schema] = Schema(
        ("group", COMPACT_TEXT),
        ("member_id", COMPACT_TEXT),
        ("member_epoch", Int32),
        ("instance_id", COMPACT_TEXT),
        ("rack", COMPACT_TEXT),
        ("rebalance_timeout", Int32),
        ("topics", CompactArray(COMPACT_TEXT)),
        ("pattern", COMPACT_TEXT),
        ("assignor", COMPACT_TEXT),
        ("owned", TOPIC_PARTITIONS),
        END,
    )


class ConsumerHeartbeat(WireRequest[ConsumerHeartbeatRequestV0 | ConsumerHeartbeatRequestV1]):
    """`messages.ConsumerHeartbeat`."""

    API_KEY = CONSUMER_HEARTBEAT

    def build(self, request_struct_class: type[Any]) -> Any:
        """The request as it is sent.

        Raises:
            IncompatibleBrokerVersion: the broker evaluates no patterns.
        """
        pattern = self.fields["pattern"]
        if pattern and "pattern" not in request_struct_class.SCHEMA.names:
            raise IncompatibleBrokerVersion(
                f"the broker evaluates no patterns, so that {pattern!r} names no topic: Kafka does "
                f"from 4.0 on; name the topics, or use protocol='classic'"
            )
        return super().build(request_struct_class)


# -- from values to requests ------------------------------------------------------------------


def to_wire(request: messages.Request) -> Request[Any]:
    """What the client sends.

    Raises:
        IncompatibleBrokerVersion: by the client, when it sends it: the broker does not know the request, or part of
            what it says.
        NotImplementedError: by the client, when it sends it: the broker knows none of the versions here.
    """
    make: Callable[[Any], Request[Any]] = _MAKERS[type(request)]
    return make(request)


def _join(request: messages.JoinGroup) -> JoinGroup:
    return JoinGroup(
        group=request.group,
        session_timeout=milliseconds(request.session_timeout),
        rebalance_timeout=milliseconds(request.rebalance_timeout),
        member_id=request.member_id,
        group_instance_id=request.instance_id,
        protocol_type=PROTOCOL_TYPE,
        group_protocols=request.protocols,
        reason=request.reason[:REASON_SIZE] or None,
    )


def _sync(request: messages.SyncGroup) -> SyncGroup:
    return SyncGroup(
        group=request.group,
        generation_id=request.generation,
        member_id=request.member_id,
        group_instance_id=request.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=request.protocol,
        group_assignment=request.assignments,
    )


def _heartbeat(request: messages.Heartbeat) -> Heartbeat:
    return Heartbeat(
        group=request.group,
        generation_id=request.generation,
        member_id=request.member_id,
        group_instance_id=request.instance_id,
    )


def _leave(request: messages.LeaveGroup) -> LeaveGroup:
    return LeaveGroup(
        group=request.group,
        member_id=request.member_id,
        members=[(request.member_id, request.instance_id)],
    )


def _consumer_heartbeat(request: messages.ConsumerHeartbeat) -> ConsumerHeartbeat:
    timeout, owned = request.rebalance_timeout, request.owned
    return ConsumerHeartbeat(
        group=request.group,
        member_id=request.member_id,
        member_epoch=request.epoch,
        instance_id=request.instance_id,
        rack=request.rack,
        rebalance_timeout=UNCHANGED if timeout is None else milliseconds(timeout),
        topics=request.topics,
        pattern=request.pattern,
        assignor=request.assignor,
        owned=None if owned is None else [(topic, sorted(owned[topic])) for topic in sorted(owned)],
    )


_MAKERS: Mapping[type[Any], Callable[[Any], Request[Any]]] = {
    messages.JoinGroup: _join,
    messages.SyncGroup: _sync,
    messages.Heartbeat: _heartbeat,
    messages.LeaveGroup: _leave,
    messages.ConsumerHeartbeat: _consumer_heartbeat,
}


# -- from responses to values -----------------------------------------------------------------


def from_wire(response: Any) -> messages.Answer:
    """What the coordinator answered.

    Args:
        response: as the client returned it for what `to_wire` made.
    """
    return _READERS[response.API_KEY](response)


def _joined(response: Any) -> messages.JoinAnswer:
    return messages.JoinAnswer(
        response.error_code,
        generation=response.generation_id,
        protocol=response.group_protocol or "",
        leader_id=response.leader_id,
        member_id=response.member_id,
        members=tuple(_group_member(*member) for member in response.members or ()),
        skip_assignment=getattr(response, "skip_assignment", False),
    )


def _group_member(member_id: str, *rest: Any) -> tuple[str, str | None, bytes]:
    """Before version 5 without an instance id."""
    *instance_id, subscription = rest
    return member_id, instance_id[0] if instance_id else None, subscription


def _synced(response: Any) -> messages.SyncAnswer:
    return messages.SyncAnswer(response.error_code, response.member_assignment or b"")


def _lives(response: Any) -> messages.HeartbeatAnswer:
    return messages.HeartbeatAnswer(response.error_code)


def _left(response: Any) -> messages.LeaveAnswer:
    """The member's own code, where there is none for all."""
    codes = (
        response.error_code,
        *(member[-1] for member in getattr(response, "members", None) or ()),
    )
    return messages.LeaveAnswer(next(filter(None, codes), 0))


def _consumer_answer(response: Any) -> messages.ConsumerHeartbeatAnswer:
    assignment = response.assignment
    return messages.ConsumerHeartbeatAnswer(
        response.error_code,
        message=response.error_message or "",
        member_id=response.member_id or "",
        epoch=response.member_epoch,
        interval=response.heartbeat_interval / 1000,
        assignment=None if assignment is None else _topic_partitions(*assignment),
    )


def _topic_partitions(topics: Any) -> messages.TopicPartitions:
    return {topic_id: frozenset(partitions or ()) for topic_id, partitions in topics or ()}


_READERS: Mapping[int, Callable[[Any], messages.Answer]] = {
    JOIN: _joined,
    SYNC: _synced,
    HEARTBEAT: _lives,
    LEAVE: _left,
    CONSUMER_HEARTBEAT: _consumer_answer,
}
