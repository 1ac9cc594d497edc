"""Kafka's codes that a group coordinator refuses a request with, and the answers that carry one."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal, TypeAlias

from consumer_sdk.adapters.kafka.groups.messages import (
    Answer,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    Heartbeat,
    HeartbeatAnswer,
    JoinAnswer,
    JoinGroup,
    LeaveAnswer,
    LeaveGroup,
    Request,
    SyncAnswer,
    SyncGroup,
)

__all__ = ["Code", "RefusedError", "Removal", "refusal"]

Removal: TypeAlias = Literal["session", "rebalance", "sync"]
"""Which time was over: the session, the one for giving back or rejoining, or the one for SyncGroup."""


class Code(IntEnum):
    """Kafka's error codes, by their names in the protocol."""

    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_REQUEST = 42
    GROUP_ID_NOT_FOUND = 69
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    UNKNOWN_TOPIC_ID = 100
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    INVALID_REGULAR_EXPRESSION = 128
    SHARE_SESSION_LIMIT_REACHED = 133


class RefusedError(Exception):
    """The coordinator answers with this code."""

    def __init__(self, code: Code) -> None:
        super().__init__(code.name)
        self.code = code


def refusal(request: Request, code: Code, member_id: str | None = None) -> Answer:
    """The answer to ``request`` that says ``code``; a join's tells the member id back."""
    match request:
        case JoinGroup():
            return JoinAnswer(code, member_id=request.member_id if member_id is None else member_id)
        case SyncGroup():
            return SyncAnswer(code)
        case Heartbeat():
            return HeartbeatAnswer(code)
        case LeaveGroup():
            return LeaveAnswer(code)
        case ConsumerHeartbeat():
            return ConsumerHeartbeatAnswer(code, message=code.name)
