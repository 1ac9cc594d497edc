"""A cluster that has share groups: brokers, leaders, logs, what is stored, and the coordinator of the groups."""

from __future__ import annotations

from dataclasses import dataclass, field

from consumer_sdk.adapters.kafka.share.messages import (
    Answer,
    Request,
    ShareAcknowledge,
    ShareAcknowledgeAnswer,
    ShareFetch,
    ShareFetchAnswer,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatAnswer,
    TopicIdPartition,
)
from consumer_sdk.testing.kafka.coordinator import ClusterTopics
from consumer_sdk.testing.kafka.refusals import Code, RefusedError
from consumer_sdk.testing.kafka.share_broker import PendingFetch, ShareBroker
from consumer_sdk.testing.kafka.share_group import ShareGroup
from consumer_sdk.testing.kafka.share_in_flight import Limits
from consumer_sdk.testing.kafka.share_log import Outcome, PartitionLog, StoredState
from consumer_sdk.testing.kafka.share_partition import SharePartition
from consumer_sdk.testing.kafka.share_sessions import ShareSessions
from consumer_sdk.testing.kafka.timers import Timers

__all__ = ["ShareCluster", "ShareOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOptions:
    """A cluster's settings of the same names; durations in seconds.

    Attributes:
        limits: of each group.
        is_latest: where a group begins that has nothing stored; else at the start of the log.
        max_sessions: of a broker.
        session_timeout, heartbeat_interval, max_size: of each group.
    """

    limits: Limits = field(default_factory=Limits)
    is_latest: bool = True
    max_sessions: int = 2000
    session_timeout: float = 45.0
    heartbeat_interval: float = 5.0
    max_size: int = 200


@dataclass(slots=True)
class ShareCluster:
    """All brokers of a cluster.

    `request` moves its clock; `advance` does so where nobody asks. Times are seconds that never go back.

    Attributes:
        coordinator: the node that has all groups.
        loads_until: it answers nothing but COORDINATOR_LOAD_IN_PROGRESS before.
        removed: members whose sessions with the coordinator have ended.
        fails_to_store: the share coordinator answers nothing: acks are refused, but locks end.
    """

    topics: ClusterTopics
    options: ShareOptions = field(default_factory=ShareOptions)
    nodes: int = 1
    coordinator: int = 0
    loads_until: float = 0.0
    fails_to_store: bool = False
    timers: Timers = field(default_factory=Timers)
    brokers: dict[int, ShareBroker] = field(default_factory=dict)
    groups: dict[str, ShareGroup] = field(default_factory=dict)
    logs: dict[TopicIdPartition, PartitionLog] = field(default_factory=dict)
    stored: dict[tuple[str, TopicIdPartition], StoredState] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    _leaders: dict[TopicIdPartition, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in range(self.nodes):
            sessions = ShareSessions(self.options.max_sessions)
            self.brokers[node] = ShareBroker(node, self, sessions)

    # -- requests -------------------------------------------------------------------------------

    def request(
        self, request: Request, now: float, *, node: int, connection: str = ""
    ) -> Answer | PendingFetch:
        """Carries the request out.

        Args:
            node: the broker that it was sent to.
            connection: over which it came; a share session ends with the one that it was opened over.

        Returns:
            The answer, or what will have it.
        """
        self.advance(now)
        try:
            match request:
                case ShareGroupHeartbeat():
                    return self._heartbeat(request, node)
                case ShareFetch():
                    return self.brokers[node].fetch(request, connection, now)
                case ShareAcknowledge():
                    return self.brokers[node].acknowledge(request, now)
        except RefusedError as error:
            return _refusal(request, error.code)

    def _heartbeat(self, request: ShareGroupHeartbeat, node: int) -> ShareGroupHeartbeatAnswer:
        if node != self.coordinator:
            raise RefusedError(Code.NOT_COORDINATOR)
        if self.timers.now < self.loads_until:
            raise RefusedError(Code.COORDINATOR_LOAD_IN_PROGRESS)
        if request.group == "":
            raise RefusedError(Code.INVALID_GROUP_ID)
        if request.group not in self.groups:
            if request.epoch != 0:
                raise RefusedError(Code.GROUP_ID_NOT_FOUND)
            self.groups[request.group] = ShareGroup(
                request.group,
                self.timers,
                self.topics,
                self.removed,
                self.options.session_timeout,
                self.options.heartbeat_interval,
                self.options.max_size,
            )
        return self.groups[request.group].heartbeat(request)

    # -- what brokers know of each other --------------------------------------------------------

    def leader(self, tp: TopicIdPartition) -> tuple[int, int]:
        """The node that leads the partition, and its epoch.

        Raises:
            RefusedError: there is no such topic, or no such partition.
        """
        counts = {info.topic_id: info.partitions for info in self.topics.by_name().values()}
        if tp.topic_id not in counts:
            raise RefusedError(Code.UNKNOWN_TOPIC_ID)
        if not 0 <= tp.partition < counts[tp.topic_id]:
            raise RefusedError(Code.UNKNOWN_TOPIC_OR_PARTITION)
        return self._leaders.setdefault(tp, (tp.partition % self.nodes, 0))

    def load(self, group: str, tp: TopicIdPartition) -> SharePartition:
        """The share partition as it is stored.

        Raises:
            RefusedError: the share coordinator answers nothing.
        """
        stored = self.stored.setdefault((group, tp), StoredState())
        if self.fails_to_store:
            raise RefusedError(Code.COORDINATOR_NOT_AVAILABLE)
        partition = SharePartition.load(
            self.log(tp), stored, self.options.limits, is_latest=self.options.is_latest
        )
        partition.is_storing = self.is_storing
        if stored.start is None:
            stored.write(partition.start, {})
        return partition

    def is_storing(self) -> bool:
        """Whether the share coordinator answers."""
        return not self.fails_to_store

    def lock_timeout(self, _group: str) -> float:
        """Seconds that the group's records stay acquired."""
        return self.options.limits.lock_duration

    def log(self, tp: TopicIdPartition) -> PartitionLog:
        """The partition's records."""
        return self.logs.setdefault(tp, PartitionLog())

    def outcomes(self, group: str, tp: TopicIdPartition) -> dict[int, Outcome]:
        """How the group's records ended, by offset."""
        return self.stored.setdefault((group, tp), StoredState()).outcomes

    # -- what befalls them ----------------------------------------------------------------------

    def append(self, tp: TopicIdPartition, count: int, now: float, data: bytes = b"") -> None:
        """Appends a record batch, for which somebody may wait."""
        self.advance(now)
        self.log(tp).append(count, data)
        self.brokers[self.leader(tp)[0]].arrived(now)

    def move(self, tp: TopicIdPartition, node: int, now: float) -> None:
        """Another broker leads the partition."""
        self.advance(now)
        former, epoch = self.leader(tp)
        self._leaders[tp] = node, epoch + 1
        self.brokers[former].resign(tp, now)

    def disconnect(self, node: int, connection: str, now: float) -> None:
        """The broker notices that the connection is gone."""
        self.advance(now)
        self.brokers[node].disconnected(connection, now)

    def restart(self, node: int, now: float) -> None:
        """A broker starts again: sessions, waiting fetches and locks are gone."""
        self.advance(now)
        self.brokers[node].restart()

    def fail_over(self, now: float, node: int, load_time: float = 0.0) -> None:
        """Another broker takes the groups over.

        Args:
            load_time: seconds until that one has read the log.
        """
        self.advance(now)
        self.timers.clear()
        self.coordinator, self.loads_until = node, now + load_time
        self.timers.schedule(("load",), load_time, self._load)

    def _load(self) -> None:
        for group in self.groups.values():
            group.load()

    def wake_at(self) -> float:
        """When time alone changes something next; ``inf`` for never."""
        return min(self.timers.wake_at(), *(broker.wake_at() for broker in self.brokers.values()))

    def advance(self, now: float) -> None:
        """Lets the time pass; sessions and locks end."""
        self.timers.advance(now)
        for broker in self.brokers.values():
            broker.advance(now)


def _refusal(request: Request, code: Code) -> Answer:
    """The answer to ``request`` that says ``code``."""
    match request:
        case ShareGroupHeartbeat():
            return ShareGroupHeartbeatAnswer(code, code.name)
        case ShareFetch():
            return ShareFetchAnswer(code, code.name)
        case ShareAcknowledge():
            return ShareAcknowledgeAnswer(code, code.name)
