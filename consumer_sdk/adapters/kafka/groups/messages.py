"""The requests and answers between a member of a group and its coordinator, as values.

`structs` encodes them for the wire. Durations are in seconds. An ``error`` is one of Kafka's codes; 0 is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

__all__ = [
    "Answer",
    "ConsumerHeartbeat",
    "ConsumerHeartbeatAnswer",
    "Heartbeat",
    "HeartbeatAnswer",
    "JoinAnswer",
    "JoinGroup",
    "LeaveAnswer",
    "LeaveGroup",
    "Request",
    "SyncAnswer",
    "SyncGroup",
    "TopicPartitions",
]

TopicPartitions: TypeAlias = Mapping[bytes, frozenset[int]]
"""Topic id, 16 bytes → numbers of its partitions."""


# -- the classic protocol -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """Asks to take part in the next generation; answered when all members have asked.

    Attributes:
        member_id: empty until the coordinator has given one.
        instance_id: of a static member (KIP-345).
        protocols: name of each assignor that the member knows, the one it likes best first, and its subscription
            as bytes for that assignor.
        reason: for the broker's log (KIP-800).
    """

    group: str
    member_id: str
    instance_id: str | None
    session_timeout: float
    rebalance_timeout: float
    protocols: tuple[tuple[str, bytes], ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """The generation.

    Attributes:
        protocol: the assignor that was chosen.
        members: for the leader alone: member id, instance id and subscription of each.
        skip_assignment: the leader is a static member that came back, and keeps the assignment (KIP-814).
    """

    error: int
    generation: int = -1
    protocol: str = ""
    leader_id: str = ""
    member_id: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncGroup:
    """Asks for this member's assignment; the leader brings everybody's.

    Attributes:
        assignments: of the leader alone: member id and assignment as bytes.
    """

    group: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol: str
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """The member's assignment as bytes."""

    error: int
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Says that the member is alive."""

    group: str
    generation: int
    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """Error 27 says that the group rebalances."""

    error: int


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """Gives the membership back at once."""

    group: str
    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True)
class LeaveAnswer:
    """Whether the coordinator knew the member."""

    error: int


# -- the consumer protocol, KIP-848 ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """Joins, lives, gives partitions back and leaves, all by one request.

    Attributes:
        member_id: chosen by the member.
        epoch: 0 to join, -1 to leave, -2 for a static member that will come back, else the last one told.
        rebalance_timeout, topics, pattern, assignor, owned: None where nothing has changed since the last
            heartbeat that was answered; all are told when joining. A pattern is a regular expression (RE2) that the
            broker evaluates; "" ends one.
    """

    group: str
    member_id: str
    epoch: int
    instance_id: str | None = None
    rack: str | None = None
    rebalance_timeout: float | None = None
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: TopicPartitions | None = None


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatAnswer:
    """The member's epoch, and what it is to have.

    Attributes:
        interval: seconds until the next heartbeat.
        assignment: all that the member is to have; None where that has not changed.
    """

    error: int
    message: str = ""
    member_id: str = ""
    epoch: int = 0
    interval: float = 5.0
    assignment: TopicPartitions | None = None


Request: TypeAlias = JoinGroup | SyncGroup | Heartbeat | LeaveGroup | ConsumerHeartbeat
Answer: TypeAlias = (
    JoinAnswer | SyncAnswer | HeartbeatAnswer | LeaveAnswer | ConsumerHeartbeatAnswer
)
