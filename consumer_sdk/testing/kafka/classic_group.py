"""A group of the classic protocol at its coordinator: Kafka's `ClassicGroup` and what drives it in `GroupMetadataManager`.

States: `EMPTY`, then `PREPARING` while members join, `COMPLETING` while the leader's assignment is awaited, and `STABLE`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum

from consumer_sdk.adapters.kafka.groups.messages import (
    Answer,
    Heartbeat,
    HeartbeatAnswer,
    JoinAnswer,
    JoinGroup,
    LeaveAnswer,
    LeaveGroup,
    SyncAnswer,
    SyncGroup,
)
from consumer_sdk.testing.kafka.refusals import Code, RefusedError, Removal
from consumer_sdk.testing.kafka.timers import Timers

__all__ = ["ClassicGroup", "ClassicGroupMember", "Pending", "State"]


class Pending:
    """An answer that is not there yet, or never comes.

    Attributes:
        answer: None while it is awaited.
    """

    __slots__ = ("answer",)

    def __init__(self) -> None:
        self.answer: Answer | None = None


class State(Enum):
    """Of a classic group."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(slots=True)
class ClassicGroupMember:
    """A member as its coordinator knows it.

    Attributes:
        join, sync: a request of its that waits for its answer.
        is_new: it has not been in a generation yet, so its session runs while its join waits.
    """

    member_id: str
    instance_id: str | None
    session_timeout: float
    rebalance_timeout: float
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    join: Pending | None = None
    sync: Pending | None = None
    is_new: bool = True

    @property
    def waits(self) -> bool:
        """The end of its session does not remove it."""
        return not self.is_new and (self.join is not None or self.sync is not None)

    def subscription(self, protocol: str) -> bytes:
        """What it has told for this assignor; empty for none."""
        return dict(self.protocols).get(protocol, b"")


@dataclass(frozen=True, slots=True)
class _Record:
    """What the log of a coordinator has of a group."""

    generation: int = 0
    protocol: str = ""
    leader: str | None = None
    members: tuple[ClassicGroupMember, ...] = ()


@dataclass(slots=True)
class ClassicGroup:
    """One group.

    Args:
        make_id: makes the rest of a member id, which is unique.
        removed: is told why members are removed that have not left.
        max_size: members at most.
        initial_delay: seconds that the first rebalance waits for more members.
        join_timeout: seconds that a new member may wait for its first join.
    """

    group_id: str
    timers: Timers
    make_id: Callable[[], str]
    removed: dict[str, Removal]
    max_size: int
    initial_delay: float
    join_timeout: float
    state: State = State.EMPTY
    was: State = State.EMPTY
    generation: int = 0
    protocol: str = ""
    leader: str | None = None
    members: dict[str, ClassicGroupMember] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    joining: set[str] = field(default_factory=set)
    syncing: set[str] = field(default_factory=set)
    has_grown: bool = False
    record: _Record = _Record()

    # -- JoinGroup ------------------------------------------------------------------------------

    def join(self, request: JoinGroup) -> Answer | Pending:
        """Kafka's `classicGroupJoinToClassicGroup`."""
        if not self._accepts(request.member_id):
            self._remove(request.member_id)
            return JoinAnswer(Code.GROUP_MAX_SIZE_REACHED)
        if not self._supports(request.protocols):
            code = Code.INCONSISTENT_GROUP_PROTOCOL
            return JoinAnswer(code, member_id=request.member_id)
        if request.member_id == "":
            return self._join_unknown(request)
        if request.member_id in self.joining and request.instance_id is None:
            return self._add(request, request.member_id)
        self.validate(request.member_id, request.instance_id)
        return self._rejoin(request, self.members[request.member_id])

    def _accepts(self, member_id: str) -> bool:
        member = self.members.get(member_id)
        if self.state is State.EMPTY:
            return True
        if self.state is State.PREPARING:
            is_waiting = member is not None and member.join is not None
            return is_waiting or self._waiting() < self.max_size
        return member is not None or len(self.members) < self.max_size

    def _supports(self, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        if self.state is State.EMPTY or not self.members:
            return bool(protocols)
        return bool({name for name, _ in protocols} & self._common())

    def _common(self) -> set[str]:
        known = [{name for name, _ in member.protocols} for member in self.members.values()]
        return set.intersection(*known) if known else set()

    def _join_unknown(self, request: JoinGroup) -> Answer | Pending:
        prefix = request.instance_id if request.instance_id is not None else "consumer"
        member_id = f"{prefix}-{self.make_id()}"
        if request.instance_id is None:
            self.joining.add(member_id)
            self.timers.schedule(
                self._session_key(member_id),
                request.session_timeout,
                lambda: self._expired(member_id),
            )
            return JoinAnswer(Code.MEMBER_ID_REQUIRED, member_id=member_id)
        if (former := self.static.get(request.instance_id)) is not None:
            return self._replace_static(request, former, member_id)
        return self._add(request, member_id)

    def _add(self, request: JoinGroup, member_id: str) -> Pending:
        member = ClassicGroupMember(
            member_id,
            request.instance_id,
            request.session_timeout,
            request.rebalance_timeout,
            request.protocols,
            join=(pending := Pending()),
        )
        self.has_grown |= self.state is State.PREPARING and self.was is State.EMPTY
        if request.instance_id is not None:
            self.static[request.instance_id] = member_id
        self.leader = self.leader or member_id
        self.members[member_id] = member
        self.joining.discard(member_id)
        self._renew(member, self.join_timeout)
        self._rebalance_or_complete()
        return pending

    def _rejoin(self, request: JoinGroup, member: ClassicGroupMember) -> Answer | Pending:
        is_same = member.protocols == request.protocols
        is_stable = self.state is State.STABLE
        if self.state is State.PREPARING or not is_same or (is_stable and self._leads(member)):
            pending = self._update(request, member)
            self._rebalance_or_complete()
            return pending
        # The answer to its join was lost, or it joins for no reason: it is told the generation as it is.
        return self._joined(member, for_leader=self.state is State.COMPLETING)

    def _update(self, request: JoinGroup, member: ClassicGroupMember) -> Pending:
        member.protocols = request.protocols
        member.rebalance_timeout = request.rebalance_timeout
        member.session_timeout = request.session_timeout
        member.join = Pending()
        return member.join

    def _replace_static(
        self, request: JoinGroup, former_id: str, member_id: str
    ) -> Answer | Pending:
        """Another process with the same instance id takes the member over; the former one is fenced."""
        former = self.members.pop(former_id)
        _complete(former, "join", JoinAnswer(Code.FENCED_INSTANCE_ID, member_id=former_id))
        _complete(former, "sync", SyncAnswer(Code.FENCED_INSTANCE_ID))
        member = replace(former, member_id=member_id, join=None, sync=None, is_new=False)
        self.members[member_id] = member
        self.static[str(request.instance_id)] = member_id
        self.syncing.discard(former_id)
        if self.leader == former_id:
            self.leader = member_id
        self._renew(member)
        pending = self._update(request, member)
        if self.state is State.STABLE and self._select() == self.protocol:
            self._write()
            member.join = None
            answer = self._joined(member, for_leader=True)
            return replace(answer, skip_assignment=self._leads(member))
        if self.state is State.PREPARING:
            self._complete_if_all_joined()
        else:
            self._prepare()
        return pending

    def _joined(self, member: ClassicGroupMember, *, for_leader: bool) -> JoinAnswer:
        return JoinAnswer(
            Code.NONE,
            generation=self.generation,
            protocol=self.protocol,
            leader_id=self.leader or "",
            member_id=member.member_id,
            members=self._subscriptions() if for_leader and self._leads(member) else (),
        )

    def _subscriptions(self) -> tuple[tuple[str, str | None, bytes], ...]:
        return tuple(
            (member.member_id, member.instance_id, member.subscription(self.protocol))
            for member in self.members.values()
        )

    # -- the rebalance --------------------------------------------------------------------------

    def _rebalance_or_complete(self) -> None:
        if self.state is State.PREPARING:
            self._complete_if_all_joined()
        else:
            self._prepare()

    def _complete_if_all_joined(self) -> None:
        if self.state is State.PREPARING and self.was is not State.EMPTY and self._all_joined():
            self._complete_join()

    def _prepare(self) -> None:
        if self.state is State.COMPLETING:
            for member in self.members.values():
                member.assignment = b""
                self._sync_answered(member, SyncAnswer(Code.REBALANCE_IN_PROGRESS))
        self.syncing.clear()
        self.timers.cancel(self._sync_key)
        is_first = self.state is State.EMPTY
        self._turn(State.PREPARING)
        if is_first:
            rest = max(self._rebalance_timeout() - self.initial_delay, 0.0)
            self._wait_for_more(self.initial_delay, rest)
        elif self._all_joined():
            self._complete_join()
        else:
            self.timers.schedule(self._join_key, self._rebalance_timeout(), self._complete_join)

    def _wait_for_more(self, delay: float, rest: float) -> None:
        def waited() -> None:
            if self.has_grown and rest > 0:
                self.has_grown = False
                self._wait_for_more(min(self.initial_delay, rest), max(rest - delay, 0.0))
            else:
                self._complete_join()

        self.timers.schedule(self._join_key, delay, waited)

    def _complete_join(self) -> None:
        """The next generation begins, without the dynamic members that have not joined."""
        self.timers.cancel(self._join_key)
        for member in list(self.members.values()):
            if member.join is None and member.instance_id is None:
                self._remove(member.member_id)
                self.removed[member.member_id] = "rebalance"
                self.timers.cancel(self._session_key(member.member_id))
        if self.members and not self._elect():
            self.timers.schedule(self._join_key, self._rebalance_timeout(), self._complete_join)
            return
        self.generation += 1
        self.syncing.clear()
        if not self.members:
            self.protocol = ""
            self._turn(State.EMPTY)
            self._write()
            return
        self.protocol = self._select()
        self._turn(State.COMPLETING)
        for member in self.members.values():
            _complete(member, "join", self._joined(member, for_leader=True))
            self._renew(member)
            member.is_new = False
            self.syncing.add(member.member_id)
        generation = self.generation
        self.timers.schedule(
            self._sync_key, self._rebalance_timeout(), lambda: self._sync_expired(generation)
        )

    def _elect(self) -> bool:
        """A leader that has joined; False if nobody has."""
        if self.leader is not None and self.members[self.leader].join is not None:
            return True
        joined = [member.member_id for member in self.members.values() if member.join is not None]
        if self.leader is None or not joined:
            return False
        self.leader = joined[0]
        return True

    def _select(self) -> str:
        common = self._common()
        votes: dict[str, int] = {}
        for member in self.members.values():
            vote = next(name for name, _ in member.protocols if name in common)
            votes[vote] = votes.get(vote, 0) + 1
        return max(votes, key=lambda name: votes[name])

    # -- SyncGroup ------------------------------------------------------------------------------

    def sync(self, request: SyncGroup) -> Answer | Pending:
        """Kafka's `classicGroupSyncToClassicGroup`."""
        if self.state is State.EMPTY:
            return SyncAnswer(Code.UNKNOWN_MEMBER_ID)
        self.validate(request.member_id, request.instance_id)
        if request.generation != self.generation:
            return SyncAnswer(Code.ILLEGAL_GENERATION)
        if request.protocol != self.protocol:
            return SyncAnswer(Code.INCONSISTENT_GROUP_PROTOCOL)
        if self.state is State.PREPARING:
            return SyncAnswer(Code.REBALANCE_IN_PROGRESS)
        member = self.members[request.member_id]
        self.syncing.discard(member.member_id)
        if not self.syncing:
            self.timers.cancel(self._sync_key)
        if self.state is State.STABLE:
            return SyncAnswer(Code.NONE, member.assignment)
        member.sync = pending = Pending()
        if self._leads(member):
            self._assign(dict(request.assignments))
        return pending

    def _assign(self, assignments: dict[str, bytes]) -> None:
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self._write()
        for member in self.members.values():
            self._sync_answered(member, SyncAnswer(Code.NONE, member.assignment))
        self._turn(State.STABLE)

    def _sync_answered(self, member: ClassicGroupMember, answer: SyncAnswer) -> None:
        if _complete(member, "sync", answer):
            self._renew(member)

    def _sync_expired(self, generation: int) -> None:
        if generation != self.generation or not self.syncing:
            return
        for member_id in sorted(self.syncing):
            self._remove(member_id)
            self.removed[member_id] = "sync"
            self.timers.cancel(self._session_key(member_id))
        self._prepare()

    # -- the rest of a member's life ------------------------------------------------------------

    def heartbeat(self, request: Heartbeat) -> Answer:
        """Kafka's `classicGroupHeartbeatToClassicGroup`."""
        self.validate(request.member_id, request.instance_id)
        if request.generation != self.generation:
            return HeartbeatAnswer(Code.ILLEGAL_GENERATION)
        self._renew(self.members[request.member_id])
        is_calm = self.state is not State.PREPARING
        return HeartbeatAnswer(Code.NONE if is_calm else Code.REBALANCE_IN_PROGRESS)

    def leave(self, request: LeaveGroup) -> Answer:
        """Kafka's `classicGroupLeaveToClassicGroup`, of one member."""
        member_id = request.member_id
        if member_id == "" and request.instance_id is not None:
            member_id = self.static.get(request.instance_id, "")
        if member_id not in self.joining:
            self.validate(member_id, request.instance_id)
        self.timers.cancel(self._session_key(member_id))
        self._drop(member_id)
        if self.state is State.PREPARING:
            self._complete_if_all_joined()
        elif self.state is not State.EMPTY:
            self._prepare()
        return LeaveAnswer(Code.NONE)

    def validate(self, member_id: str, instance_id: str | None) -> None:
        """Raises for who is no member, or no more."""
        if instance_id is not None:
            known = self.static.get(instance_id)
            if known is None:
                raise RefusedError(Code.UNKNOWN_MEMBER_ID)
            if known != member_id:
                raise RefusedError(Code.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise RefusedError(Code.UNKNOWN_MEMBER_ID)

    def check_commit(self, member_id: str, instance_id: str | None, generation: int) -> None:
        """Raises for a commit of who may not."""
        if generation < 0 and self.state is State.EMPTY:
            return
        if generation < 0 and member_id == "" and instance_id is None:
            raise RefusedError(Code.UNKNOWN_MEMBER_ID)
        self.validate(member_id, instance_id)
        if generation != self.generation:
            raise RefusedError(Code.ILLEGAL_GENERATION)
        if self.state is State.COMPLETING:
            raise RefusedError(Code.REBALANCE_IN_PROGRESS)

    def committed(self, member_id: str) -> None:
        """A commit is a sign of life."""
        if self.state in (State.STABLE, State.PREPARING) and member_id in self.members:
            self._renew(self.members[member_id])

    def _expired(self, member_id: str) -> None:
        """No sign of life for a session."""
        member = self.members.get(member_id)
        if member is None:
            self.joining.discard(member_id)
            if self.state is State.PREPARING and self._all_joined():
                self._complete_join()
        elif not member.waits:
            self._drop(member_id)
            self.removed[member_id] = "session"
            if self.state in (State.STABLE, State.COMPLETING):
                self._prepare()
            elif self.state is State.PREPARING and self._all_joined():
                self._complete_join()

    def _drop(self, member_id: str) -> None:
        if (member := self.members.get(member_id)) is not None:
            _complete(member, "join", JoinAnswer(Code.UNKNOWN_MEMBER_ID))
        self._remove(member_id)

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None and member.instance_id is not None:
            self.static.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.joining.discard(member_id)
        self.syncing.discard(member_id)

    # -- failover -------------------------------------------------------------------------------

    def _write(self) -> None:
        kept = tuple(
            replace(member, join=None, sync=None, is_new=False) for member in self.members.values()
        )
        self.record = _Record(self.generation, self.protocol, self.leader, kept)

    def unload(self, code: Code) -> None:
        """The coordinator goes: whoever waits is told."""
        for member in self.members.values():
            _complete(member, "join", JoinAnswer(code, member_id=member.member_id))
            _complete(member, "sync", SyncAnswer(code))

    def load(self) -> None:
        """Another coordinator reads the log: the last generation that was assigned goes on, with its members."""
        record = self.record
        self.members = {member.member_id: replace(member) for member in record.members}
        self.static = {
            member.instance_id: member.member_id
            for member in record.members
            if member.instance_id is not None
        }
        self.joining, self.syncing, self.has_grown = set(), set(), False
        self.generation, self.protocol, self.leader = (
            record.generation,
            record.protocol,
            record.leader,
        )
        self.state = self.was = State.STABLE if self.members else State.EMPTY
        for member in self.members.values():
            self._renew(member)

    # -- small things ---------------------------------------------------------------------------

    def _turn(self, state: State) -> None:
        self.was, self.state = self.state, state

    def _leads(self, member: ClassicGroupMember) -> bool:
        return self.leader == member.member_id

    def _waiting(self) -> int:
        return sum(member.join is not None for member in self.members.values())

    def _all_joined(self) -> bool:
        return self._waiting() == len(self.members) and not self.joining

    def _rebalance_timeout(self) -> float:
        return max((member.rebalance_timeout for member in self.members.values()), default=0.0)

    def _renew(self, member: ClassicGroupMember, timeout: float | None = None) -> None:
        delay = member.session_timeout if timeout is None else timeout
        member_id = member.member_id
        self.timers.schedule(self._session_key(member_id), delay, lambda: self._expired(member_id))

    def _session_key(self, member_id: str) -> tuple[str, ...]:
        return ("session", self.group_id, member_id)

    @property
    def _join_key(self) -> tuple[str, ...]:
        return ("join", self.group_id)

    @property
    def _sync_key(self) -> tuple[str, ...]:
        return ("sync", self.group_id)


def _complete(member: ClassicGroupMember, what: str, answer: Answer) -> bool:
    """Answers the request that waits; False if none does."""
    pending: Pending | None = getattr(member, what)
    if pending is None:
        return False
    pending.answer = answer
    setattr(member, what, None)
    return True
