"""The coordinator of consumer groups: which group a request is for, whose offsets there are, and where it runs."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from consumer_sdk.adapters.kafka.groups.member import TopicInfo, TopicPartition
from consumer_sdk.adapters.kafka.groups.messages import (
    Answer,
    ConsumerHeartbeat,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Request,
    SyncGroup,
)
from consumer_sdk.testing.kafka.classic_group import ClassicGroup, Pending
from consumer_sdk.testing.kafka.classic_group import State as ClassicState
from consumer_sdk.testing.kafka.consumer_group import ConsumerGroup
from consumer_sdk.testing.kafka.refusals import Code, RefusedError, Removal, refusal
from consumer_sdk.testing.kafka.server_assignors import Slot
from consumer_sdk.testing.kafka.timers import Timers

__all__ = [
    "ClusterTopics",
    "CoordinatorOptions",
    "GroupCoordinator",
    "OffsetCommit",
    "OffsetFetch",
    "Pending",
]


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """Offsets of a member, or of nobody (``epoch`` -1).

    Attributes:
        epoch: the generation or the member epoch.
    """

    group: str
    member_id: str
    epoch: int
    instance_id: str | None
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OffsetFetch:
    """Asks for committed offsets; ``member_id`` None and ``epoch`` -1 of who is no member."""

    group: str
    member_id: str | None
    epoch: int
    tps: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorOptions:
    """A broker's settings of the same names; durations in seconds.

    Attributes:
        session_timeout, heartbeat_interval: of groups of the consumer protocol.
        assignment_interval: between two targets of such a group.
        initial_rebalance_delay: for which the first rebalance of a classic group waits for members.
        min_session_timeout: of classic members.
        max_size: members of a group.
        new_member_join_timeout: for which a new classic member may wait for its first join.
    """

    session_timeout: float = 45.0
    heartbeat_interval: float = 5.0
    assignment_interval: float = 1.0
    initial_rebalance_delay: float = 3.0
    min_session_timeout: float = 6.0
    max_session_timeout: float = 1800.0
    max_size: int = 2**31 - 1
    new_member_join_timeout: float = 300.0


class ClusterTopics:
    """The topics of a cluster; a topic that is made again has another id."""

    __slots__ = ("_random", "_topics")

    def __init__(self, chance: random.Random) -> None:
        self._random = chance
        self._topics: dict[str, TopicInfo] = {}

    def by_name(self) -> Mapping[str, TopicInfo]:
        """All of them."""
        return self._topics

    def create(self, name: str, partitions: int, topic_id: bytes | None = None) -> TopicInfo:
        """Makes a topic, or makes it again; its id is drawn by default."""
        topic_id = topic_id or UUID(int=self._random.getrandbits(128), version=4).bytes
        self._topics = {**self._topics, name: TopicInfo(topic_id, partitions)}
        return self._topics[name]

    def grow(self, name: str, partitions: int) -> None:
        """Gives it more partitions."""
        self._topics = {**self._topics, name: TopicInfo(self._topics[name].topic_id, partitions)}

    def delete(self, name: str) -> None:
        """Deletes it with all its partitions."""
        self._topics = {other: info for other, info in self._topics.items() if other != name}


@dataclass(slots=True)
class GroupCoordinator:
    """All groups of a cluster.

    `request` and `commit` move its clock; `advance` does so where nobody asks. Times are seconds that never go back.

    Attributes:
        node: the broker that it runs on.
        loads_until: it answers nothing but COORDINATOR_LOAD_IN_PROGRESS before.
        offsets: what each group has committed.
        removed: why the groups removed members that had not left.
    """

    topics: ClusterTopics
    random: random.Random
    options: CoordinatorOptions = field(default_factory=CoordinatorOptions)
    node: int = 0
    loads_until: float = 0.0
    timers: Timers = field(default_factory=Timers)
    classic: dict[str, ClassicGroup] = field(default_factory=dict)
    consumer: dict[str, ConsumerGroup] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    removed: dict[str, Removal] = field(default_factory=dict)

    # -- requests -------------------------------------------------------------------------------

    def request(self, request: Request, now: float, *, node: int | None = None) -> Answer | Pending:
        """Carries the request out.

        Args:
            node: the broker that it was sent to; None for the right one.

        Returns:
            The answer, or what will have it when the group is complete; that may be never.
        """
        self.advance(now)
        try:
            self._check_place(node)
            return self._answered(self._carry_out(request))
        except RefusedError as error:
            return refusal(request, error.code)

    def _answered(self, answer: Answer | Pending) -> Answer | Pending:
        """The last to join gets its answer at once."""
        if isinstance(answer, Pending) and answer.answer is not None:
            return answer.answer
        return answer

    def _check_place(self, node: int | None) -> None:
        if node is not None and node != self.node:
            raise RefusedError(Code.NOT_COORDINATOR)
        if self.timers.now < self.loads_until:
            raise RefusedError(Code.COORDINATOR_LOAD_IN_PROGRESS)

    def _carry_out(self, request: Request) -> Answer | Pending:
        if request.group == "":
            raise RefusedError(Code.INVALID_GROUP_ID)
        match request:
            case ConsumerHeartbeat():
                return self._consumer_group(request).heartbeat(request)
            case JoinGroup():
                return self._joined_group(request).join(request)
            case SyncGroup():
                return self._classic_group(request.group).sync(request)
            case Heartbeat():
                return self._classic_group(request.group).heartbeat(request)
            case LeaveGroup():
                return self._classic_group(request.group).leave(request)

    def _consumer_group(self, request: ConsumerHeartbeat) -> ConsumerGroup:
        name = request.group
        if name not in self.consumer or not self.consumer[name].members:
            classic = self.classic.get(name)
            if request.epoch != 0 and name not in self.consumer:
                raise RefusedError(Code.GROUP_ID_NOT_FOUND)
            if classic is not None and classic.state is not ClassicState.EMPTY:
                raise RefusedError(Code.GROUP_ID_NOT_FOUND)
            self.classic.pop(name, None)
        if name not in self.consumer:
            self.consumer[name] = ConsumerGroup(
                name,
                self.timers,
                self.topics,
                self.removed,
                self.options.session_timeout,
                self.options.heartbeat_interval,
                self.options.assignment_interval,
                self.options.max_size,
            )
        return self.consumer[name]

    def _joined_group(self, request: JoinGroup) -> ClassicGroup:
        options, name = self.options, request.group
        shortest, longest = options.min_session_timeout, options.max_session_timeout
        if not shortest <= request.session_timeout <= longest:
            raise RefusedError(Code.INVALID_SESSION_TIMEOUT)
        if name in self.consumer and self.consumer[name].members:
            raise RefusedError(Code.INCONSISTENT_GROUP_PROTOCOL)
        self.consumer.pop(name, None)
        if name not in self.classic:
            if request.member_id != "":
                raise RefusedError(Code.UNKNOWN_MEMBER_ID)
            self.classic[name] = ClassicGroup(
                name,
                self.timers,
                self._make_id,
                self.removed,
                options.max_size,
                options.initial_rebalance_delay,
                options.new_member_join_timeout,
            )
        return self.classic[name]

    def _classic_group(self, name: str) -> ClassicGroup:
        if name not in self.classic:
            raise RefusedError(Code.UNKNOWN_MEMBER_ID)
        return self.classic[name]

    def _make_id(self) -> str:
        return str(UUID(int=self.random.getrandbits(128), version=4))

    # -- offsets --------------------------------------------------------------------------------

    def commit(
        self, commit: OffsetCommit, now: float, *, node: int | None = None
    ) -> dict[TopicPartition, Code]:
        """Stores the offsets of those partitions for which the member may; the code of each."""
        self.advance(now)
        tps = list(commit.offsets)
        try:
            self._check_place(node)
            codes = dict(zip(tps, self.check_commit(commit), strict=True))
        except RefusedError as error:
            return dict.fromkeys(tps, error.code)
        if commit.group in self.classic and commit.epoch >= 0:
            self.classic[commit.group].committed(commit.member_id)
        known = self.topics.by_name()
        for tp in tps:
            if tp.topic not in known or tp.partition >= known[tp.topic].partitions:
                codes[tp] = Code.UNKNOWN_TOPIC_OR_PARTITION
        stored = self.offsets.setdefault(commit.group, {})
        stored.update({tp: commit.offsets[tp] for tp in tps if codes[tp] is Code.NONE})
        return codes

    def check_commit(self, commit: OffsetCommit) -> list[Code]:
        """What `commit` would say of each partition; nothing is changed.

        Raises:
            RefusedError: the whole commit is refused.
        """
        if (group := self.consumer.get(commit.group)) is not None:
            topics = self.topics.by_name()
            slots: list[Slot] = [
                (topics[tp.topic].topic_id if tp.topic in topics else b"", tp.partition)
                for tp in commit.offsets
            ]
            return group.check_commit(commit.member_id, commit.epoch, slots)
        if (classic := self.classic.get(commit.group)) is not None:
            classic.check_commit(commit.member_id, commit.instance_id, commit.epoch)
        elif commit.epoch >= 0:
            raise RefusedError(Code.GROUP_ID_NOT_FOUND)
        return [Code.NONE for _ in commit.offsets]

    def fetch(
        self, fetch: OffsetFetch, now: float, *, node: int | None = None
    ) -> dict[TopicPartition, int] | Code:
        """What the group has committed, -1 where there is nothing; or why it does not say."""
        self.advance(now)
        try:
            self._check_place(node)
            if (group := self.consumer.get(fetch.group)) is not None:
                group.check_fetch(fetch.member_id, fetch.epoch)
        except RefusedError as error:
            return error.code
        stored = self.offsets.get(fetch.group, {})
        return {tp: stored.get(tp, -1) for tp in fetch.tps}

    # -- time and place -------------------------------------------------------------------------

    def wake_at(self) -> float:
        """When time alone changes something next; ``inf`` for never."""
        return self.timers.wake_at()

    def advance(self, now: float) -> None:
        """Lets the time pass; sessions end, and rebalances go on without who is late."""
        self.timers.advance(now)

    def fail_over(self, now: float, node: int, load_time: float = 0.0) -> None:
        """Another broker takes the groups over; joins and assignments under way are lost.

        Args:
            load_time: seconds until that one has read the log.
        """
        self.advance(now)
        for group in self.classic.values():
            group.unload(Code.NOT_COORDINATOR)
        self.timers.clear()
        self.node, self.loads_until = node, now + load_time
        self.timers.schedule(("load",), load_time, self._load)

    def _load(self) -> None:
        for classic in self.classic.values():
            classic.load()
        for group in self.consumer.values():
            group.load()
