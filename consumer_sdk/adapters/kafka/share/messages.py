"""The requests of a member of a share group to the coordinator and to leaders, and their answers, as values.

`structs` encodes them for the wire. Durations are in seconds. An ``error`` is one of Kafka's codes; 0 is none.
Offsets of a range include the last one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from consumer_sdk.adapters.kafka.groups.messages import TopicPartitions

__all__ = [
    "CLOSE_EPOCH",
    "OPEN_EPOCH",
    "AckBatch",
    "AckType",
    "AcknowledgedPartition",
    "AcquireMode",
    "AcquiredRange",
    "Answer",
    "FetchedPartition",
    "Request",
    "ShareAcknowledge",
    "ShareAcknowledgeAnswer",
    "ShareFetch",
    "ShareFetchAnswer",
    "ShareGroupHeartbeat",
    "ShareGroupHeartbeatAnswer",
    "TopicIdPartition",
]

OPEN_EPOCH, CLOSE_EPOCH = 0, -1
"""Of a share session. The epochs between are 1 … 2^31 - 1; 1 comes again after the last one."""


class TopicIdPartition(NamedTuple):
    """One partition of a topic.

    Attributes:
        topic_id: 16 bytes.
    """

    topic_id: bytes
    partition: int


# -- the group, sent to its coordinator ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShareGroupHeartbeat:
    """Joins, lives and leaves, all by one request; what the member reads is not told.

    Attributes:
        member_id: chosen by the member.
        epoch: 0 to join, -1 to leave, else the last one told.
        rack, topics: None where nothing has changed since the last heartbeat that was answered; told when joining.
    """

    group: str
    member_id: str
    epoch: int
    rack: str | None = None
    topics: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ShareGroupHeartbeatAnswer:
    """The member's epoch, and what it is to read.

    Attributes:
        interval: seconds until the next heartbeat.
        assignment: all that the member is to read, beside other members; None where that has not changed.
    """

    error: int
    message: str = ""
    member_id: str = ""
    epoch: int = 0
    interval: float = 5.0
    assignment: TopicPartitions | None = None


# -- records, sent to leaders of partitions -----------------------------------------------------


class AckType(IntEnum):
    """What becomes of a record that was acquired."""

    GAP = 0
    """There is no record at this offset: it was compacted, or is a transaction's marker."""
    ACCEPT = 1
    RELEASE = 2
    """May be acquired again at once, by any member; the delivery counted."""
    REJECT = 3
    """Never comes again."""
    RENEW = 4
    """Stays acquired: its lock begins anew (version 2, KIP-1222)."""


class AckBatch(NamedTuple):
    """The acks of a range.

    Attributes:
        types: one of `AckType` for the whole range, or one for each of its offsets.
    """

    first: int
    last: int
    types: tuple[int, ...]


class AcquireMode(IntEnum):
    """How a fetch's limit of records is meant (KIP-1206)."""

    BATCH_OPTIMIZED = 0
    """Whole record batches are acquired, also beyond the limit."""
    RECORD_LIMIT = 1
    """Never more than the limit (version 2)."""


@dataclass(frozen=True, slots=True)
class ShareFetch:
    """Acquires records, and acknowledges others on the way.

    Attributes:
        epoch: of the share session that this member has with this leader: `OPEN_EPOCH`, `CLOSE_EPOCH`, or one more
            than that of the last request, also of a `ShareAcknowledge`.
        max_wait: seconds that the broker may wait for `min_bytes`.
        max_bytes, max_records: that may come; 0 records acquires none.
        batch_size: records that the broker should put into one acquired range.
        topics: partitions that are new in the session, and those with acks; all of them where the epoch is
            `OPEN_EPOCH`. The others of the session are read as before.
        forgotten: partitions that leave the session.
        has_renewals: some of the acks are `AckType.RENEW`; nothing is acquired then.
    """

    group: str
    member_id: str
    epoch: int
    max_wait: float = 0.5
    min_bytes: int = 1
    max_bytes: int = 2**31 - 1
    max_records: int = 500
    batch_size: int = 500
    acquire_mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED
    has_renewals: bool = False
    topics: Mapping[TopicIdPartition, Sequence[AckBatch]] = field(default_factory=dict)
    forgotten: frozenset[TopicIdPartition] = frozenset()


class AcquiredRange(NamedTuple):
    """Records that are this member's until it acknowledges them, or their lock ends.

    Attributes:
        delivery_count: 1 for the first delivery.
    """

    first: int
    last: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """What came of one partition.

    Attributes:
        error: of the fetch.
        ack_error: of the acks of this partition in the request; none of them counts then.
        leader: id and epoch of the leader where the error says that it is another one; -1, -1 otherwise.
        records: record batches; they may hold offsets that were not acquired.
        acquired: ascending.
    """

    error: int = 0
    message: str = ""
    ack_error: int = 0
    ack_message: str = ""
    leader: tuple[int, int] = (-1, -1)
    records: bytes = b""
    acquired: tuple[AcquiredRange, ...] = ()


@dataclass(frozen=True, slots=True)
class ShareFetchAnswer:
    """What a leader gave.

    Attributes:
        error: of the request as a whole; 122 share session not found, 123 invalid share session epoch.
        throttle: seconds that the broker wants to be left alone.
        lock_timeout: seconds that a record which was acquired now stays acquired.
        partitions: those that have something to say, and those with acks.
    """

    error: int = 0
    message: str = ""
    throttle: float = 0.0
    lock_timeout: float = 30.0
    partitions: Mapping[TopicIdPartition, FetchedPartition] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ShareAcknowledge:
    """Acknowledges records without acquiring others.

    Attributes:
        epoch: as in `ShareFetch`; never `OPEN_EPOCH`. `CLOSE_EPOCH` ends the session: what it still holds is released.
        has_renewals: some of the acks are `AckType.RENEW`.
    """

    group: str
    member_id: str
    epoch: int
    has_renewals: bool = False
    topics: Mapping[TopicIdPartition, Sequence[AckBatch]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AcknowledgedPartition:
    """What became of the acks of one partition: all of them count, or none.

    Attributes:
        error: 121 (invalid record state) where a record was not acquired by this member any more.
        leader: as in `FetchedPartition`.
    """

    error: int = 0
    message: str = ""
    leader: tuple[int, int] = (-1, -1)


@dataclass(frozen=True, slots=True)
class ShareAcknowledgeAnswer:
    """What became of the acks.

    Attributes:
        lock_timeout: seconds that a renewed record stays acquired; 0 where the broker does not say (version 1).
    """

    error: int = 0
    message: str = ""
    throttle: float = 0.0
    lock_timeout: float = 0.0
    partitions: Mapping[TopicIdPartition, AcknowledgedPartition] = field(default_factory=dict)


Request: TypeAlias = ShareGroupHeartbeat | ShareFetch | ShareAcknowledge
Answer: TypeAlias = ShareGroupHeartbeatAnswer | ShareFetchAnswer | ShareAcknowledgeAnswer
