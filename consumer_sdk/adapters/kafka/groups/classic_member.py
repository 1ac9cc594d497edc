"""A member of a classic group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup; eager or cooperative (KIP-429).

Theory of operation. A member *joins*. When all members have joined, each learns the new generation, and one of them,
the *leader*, also the subscriptions of all. Each member asks for its assignment by SyncGroup, and the leader's
SyncGroup brings all assignments. Then the member sends heartbeats, until one is answered by REBALANCE_IN_PROGRESS (27),
and joins again. A member that has only cooperative assignors is cooperative. Otherwise it is eager, as in Java: during
a rolling upgrade members have one of each.

- *Eager*: all partitions are revoked first. Heartbeats go on while the owner drains them; then the member joins without
  a claim.
- *Cooperative*: the member joins at once, and claims its partitions. Partitions that the new assignment lacks are
  revoked. When they are drained, the member joins again without them, and the leader gives them to others. Partitions
  that stay are never touched. A rebalance may begin during a drain: the member joins and claims the draining partitions
  too, because no other member may have them yet. If the new assignment has them again, they are assigned anew after
  their release.

When may the group have given the partitions away (`held_until`)? The coordinator keeps a member for ``session_timeout``
after its last sign of life. An answered heartbeat is one, from the time when it was *sent*. A member that drains before
it joins gets answers to its heartbeats, but has only ``rebalance_timeout``, counted from the last heartbeat that found
no rebalance.

While a member waits for the others in JoinGroup or SyncGroup, the coordinator keeps it, however long that takes, and
its session begins with the answer. The others may take their whole rebalance timeout, longer than a session, and
handlers of kept partitions go on meanwhile. The member cannot know when the coordinator answers, but at each `poll` it
knows that no answer has come yet. So when one of the two requests has been under way for a heartbeat interval, the time
counts from the last `poll`, and `wake_at` asks for a poll in each interval. It follows:

- A process that is stopped while it joins does not poll. Its time ends one session after its last poll, because the
  answer may have been sent right after. It notices that before it handles a record for the group.
- A failed request may never have arrived, or its answer was lost and has begun the session. Then the time counts from
  the last proof again, and may be over at once.
- An answer by itself proves little, for Kafka 4 begins no session where it repeats one: a JoinGroup of a generation
  that it has told already, a SyncGroup of a stable group. The first answer of a generation does, if it comes quickly, and no JoinGroup has failed before
  it. In the other cases the member sends a heartbeat before its SyncGroup. One that comes late is such a case: it may have been sent
  long before, and the SyncGroup find a stable group. Until the heartbeat is answered the time counts from the last proof: nothing is
  handled when that is over, but what is held is kept. A static member that comes back is another case: its session began with its
  JoinGroup, and has its predecessor's length.
- A member that only sends heartbeats keeps its partitions when `held_until` has passed, because the coordinator may
  have been unreachable and keep it too. The next answer tells.
- `held_until` may be late by the time that a request and its answer take through the network.
- One gap is left: a JoinGroup may be lost on a connection that looks alive. Then the coordinator gives the partitions
  away after a session, while this member waits. Java has the same gap. The runner bounds it by a timeout for the
  request: ``rebalance_timeout`` and some seconds more. No record is lost by it, but some may be handled twice. Commits
  carry the old generation, and the coordinator refuses them.

Commits. `epoch` is the generation of the last JoinGroup that was answered. While the group completes a rebalance, the coordinator answers
commits by 27: try again after SyncGroup. While JoinGroup is under way it may be in the next generation already, and answers by
ILLEGAL_GENERATION (22): that is no loss as long as this machine reports none.

Java's behaviour is followed but for this: a claim carries the generation in which the partitions were given, not the last one that was joined.
A member whose SyncGroup failed claims what it has, no more. Partitions of topics that the member does not want are not taken: a static member
that comes back with other topics is given those of its predecessor until the next rebalance, and nobody is told of the new ones. A static leader
that comes back does not see which topics have grown meanwhile (KIP-814): a cooperative one joins once more for that, an eager one if it would
give itself something else than it was given, as far as it can tell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from consumer_sdk.adapters.kafka.groups.assignors import Assignor, GroupMember
from consumer_sdk.adapters.kafka.groups.member import (
    Assigned,
    CoordinatorLost,
    Event,
    Lost,
    Member,
    Refused,
    Revoked,
    TopicInfo,
    TopicPartition,
)
from consumer_sdk.adapters.kafka.groups.messages import (
    Answer,
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
from consumer_sdk.adapters.kafka.groups.subscriptions import (
    Assignment,
    Claims,
    Subscription,
    UnreadableMemberError,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)

__all__ = ["ClassicMember"]

PASSING = frozenset({7, 13, 14, 19, 20, 56, 89})
"""Timeout, network, group is loading, replicas, storage, throttling: the broker's trouble, not ours."""
NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
ILLEGAL_GENERATION = 22
INCONSISTENT_PROTOCOL = 23
UNKNOWN_MEMBER = 25
REBALANCE_IN_PROGRESS = 27
MEMBER_ID_REQUIRED = 79
FENCED = 82

FIRST_BACKOFF = 0.1
"""Seconds before the second try of what failed."""
LONGEST_BACKOFF = 10
"""So many times the first one; each is twice the one before."""

FORGOTTEN = (
    "the group no longer knows this member: what is not committed is delivered again. Either no "
    "heartbeat came within session_timeout (the event loop was blocked, the process was stopped, "
    "or the network was away), or a drain took longer than rebalance_timeout"
)
SILENT = (
    "no heartbeat was answered within session_timeout: the group may have given the partitions "
    "to others. Was the event loop blocked, the process stopped, or the network away?"
)
MISSED = (
    "the group rebalanced without this member, which did not join within rebalance_timeout, and may have given "
    "the partitions to others. Was the network away, or the process stopped?"
)
OVERDUE = (
    "the drain took longer than rebalance_timeout: the group may have gone on without this member. "
    "Give a longer one, or let the handlers end sooner"
)
FENCED_AWAY = (
    "another consumer with this group_instance_id has joined: give each one of its own, and stop "
    "the old one before its successor starts"
)


class ClassicMember(Member):
    """One membership by the classic protocol.

    Args:
        group: the group's id.
        assignors: those that the member knows, the one it likes best first; names differ.
        instance_id: of a static member, which never leaves: its session ends, or its successor takes over (KIP-345).
        rack: told to the leader.
        session_timeout, rebalance_timeout, heartbeat_interval: seconds.
    """

    def __init__(
        self,
        group: str,
        assignors: Sequence[Assignor],
        *,
        session_timeout: float,
        rebalance_timeout: float,
        heartbeat_interval: float,
        instance_id: str | None = None,
        rack: str | None = None,
    ) -> None:
        self._group = group
        self._assignors = {each.name: each for each in assignors}
        self._is_cooperative = all(each.is_cooperative for each in assignors)
        self._session = session_timeout
        self._rebalance_timeout = rebalance_timeout
        self._interval = heartbeat_interval
        self._instance_id = instance_id
        self._rack = rack

        self._events = list[Event]()
        self._member_id = ""
        self._epoch = -1
        self._rejoin: str | None = "first join"
        """Why it is to join; None while it is not."""
        self._joined: JoinAnswer | None = None
        """The generation whose SyncGroup is to be sent, or under way."""
        self._told = -1
        """The generation of the last JoinGroup that was answered."""
        self._is_doubtful = False
        """A JoinGroup has failed since: its answer may have begun a session."""
        self._is_proven = True
        """That answer began one."""
        self._succeeds = False
        """The last JoinGroup may have taken a predecessor's place."""
        self._is_overdue = False
        self._lead = _Lead()

        self._held = set[TopicPartition]()
        self._draining = set[TopicPartition]()
        self._target = frozenset[TopicPartition]()
        """The last assignment, without what was revoked since."""
        self._claims = Claims()
        """What the last JoinGroup said that it holds."""
        self._held_in = -1
        self._given = Claims()
        self._joins_when_drained = False

        self._topics: Mapping[str, TopicInfo] = {}
        self._knows_topics = False
        self._joined_topics = frozenset[str]()

        self._pending: Request | None = None
        self._sent = self._waited = self._proof = self._calm = -math.inf
        self._hope = -math.inf
        """The last look before an answer that came late: its session has begun since, if it was not late on its way."""
        self._next_heartbeat = self._not_before = -math.inf
        self._looks_again = math.inf
        self._attempts = 0
        self._is_refused = self._is_leaving = False
        self._is_silent = instance_id is not None  # leaves without a word

    # -- what it is -----------------------------------------------------------------------------

    @property
    def member_id(self) -> str:
        """See `Member`."""
        return self._member_id

    @property
    def epoch(self) -> int:
        """See `Member`."""
        return self._epoch

    @property
    def held(self) -> frozenset[TopicPartition]:
        """See `Member`."""
        return frozenset(self._held)

    @property
    def held_until(self) -> float:
        """See the top of this module; ``inf`` while nothing is held."""
        if not self._held:
            return math.inf
        if self._is_kept:
            return max(self._proof, self._waited) + self._session
        return min(self._proof + self._session, self._calm + self._rebalance_timeout)

    @property
    def _lost_at(self) -> float:
        """`held_until`, or later: who waits for a heartbeat to prove an answer that came late handles nothing, and keeps all."""
        hoped = self._hope + min(self._session, self._rebalance_timeout)
        return max(self.held_until, math.inf if self._is_steady else hoped)

    @property
    def _ends(self) -> float:
        """When something is to be done about `held_until`."""
        return self._lost_at if self._is_overdue else self.held_until

    @property
    def _is_joining(self) -> bool:
        return isinstance(self._pending, JoinGroup | SyncGroup)

    @property
    def _is_kept(self) -> bool:
        """The coordinator keeps a member that waits for others; if it did not wait, its answer would be here."""
        return self._is_joining and self._waited - self._sent >= self._interval

    @property
    def unknown_topic_ids(self) -> frozenset[bytes]:
        """None: the classic protocol names topics."""
        return frozenset()

    @property
    def group_topics(self) -> frozenset[str]:
        """See `Member`."""
        return self._lead.topics.difference(self._topics)

    @property
    def has_left(self) -> bool:
        """See `Member`."""
        return self._is_leaving and (self._is_silent or not (self._pending or self._member_id))

    def events(self) -> list[Event]:
        """See `Member`."""
        events, self._events = self._events, []
        return events

    # -- requests -------------------------------------------------------------------------------

    def poll(self, now: float) -> Request | None:
        """See `Member`."""
        self._expire(now)
        if now >= self._looks_again:
            self._looks_again = math.inf
            self._wants_to_join("what was to be given up for others was not")
        self._waited = now
        if self._pending is not None:
            return None
        self._pending, self._sent = self._request(now), now
        return self._pending

    def _request(self, now: float) -> Request | None:
        if self._is_leaving:
            return self._leave()
        if self._is_refused or not self._knows_topics or now < self._not_before:
            return None
        if self._joined is not None and self._may_sync():
            return self._sync(self._joined)
        if self._may_join():
            return self._join()
        return self._heartbeat() if now >= self._next_heartbeat else None

    def wake_at(self) -> float:
        """See `Member`."""
        if self._pending is not None:
            tick = self._waited + self._interval if self._is_joining else math.inf
            return min(tick, self._ends)
        if self._is_leaving:
            return math.inf if self.has_left else self._not_before
        if self._is_refused or not self._knows_topics:
            return math.inf
        is_due = self._may_join() or (self._joined is not None and self._may_sync())
        due = self._not_before if is_due else max(self._next_heartbeat, self._not_before)
        return min(self._ends, self._looks_again, due)

    def _may_join(self) -> bool:
        """An eager member drains first."""
        wants = self._rejoin is not None and self._joined is None
        return wants and (self._is_cooperative or not self._held)

    def _may_sync(self) -> bool:
        return self._is_proven and not self._unknown_topics()

    def _join(self) -> JoinGroup:
        self._lead.end()
        self._looks_again = math.inf
        self._joined_topics = frozenset(self._topics)
        self._claims = Claims(frozenset(self._held), self._held_in)
        self._succeeds = self._instance_id is not None and not self._member_id
        reason, self._rejoin, self._joins_when_drained = self._rejoin or "", None, False
        return JoinGroup(
            self._group,
            self._member_id,
            self._instance_id,
            self._session,
            self._rebalance_timeout,
            tuple((each.name, self._subscription(each)) for each in self._assignors.values()),
            reason,
        )

    def _subscription(self, assignor: Assignor) -> bytes:
        owned, generation = self._claims.partitions, self._claims.generation
        held = Subscription(self._joined_topics, None, owned, generation, self._rack)
        return write_subscription(assignor.subscription(held, self._given))

    def _sync(self, joined: JoinAnswer) -> SyncGroup:
        parts: tuple[tuple[str, bytes], ...] = ()
        if joined.leader_id == self._member_id and not joined.skip_assignment:
            shares = self._lead.share_out(self._assignors[joined.protocol], self._topics)
            parts = tuple((member, write_assignment(each)) for member, each in shares.items())
        return SyncGroup(
            self._group,
            joined.generation,
            self._member_id,
            self._instance_id,
            joined.protocol,
            parts,
        )

    def _heartbeat(self) -> Heartbeat:
        generation = self._epoch if self._joined is None else self._joined.generation
        return Heartbeat(self._group, generation, self._member_id, self._instance_id)

    def _leave(self) -> LeaveGroup | None:
        if self.has_left:
            return None
        return LeaveGroup(self._group, self._member_id, self._instance_id)

    # -- answers --------------------------------------------------------------------------------

    def answered(self, request: Request, answer: Answer, now: float) -> None:
        """See `Member`. An answer to a request that was given up is nothing new."""
        if request is not self._pending:
            return
        match answer:
            case LeaveAnswer():
                self._member_id = ""
            case JoinAnswer() if self._is_leaving:
                self._member_id = answer.member_id or self._member_id
            case _ if self._is_leaving:
                pass
            case JoinAnswer():
                self._on_join(answer, now)
            case SyncAnswer() if isinstance(request, SyncGroup):
                self._on_sync(request, answer, now)
            case HeartbeatAnswer():
                self._on_heartbeat(answer, now)
        self._pending = None
        self._expire(now)

    def failed(self, request: Request, now: float) -> None:
        """See `Member`. A known member id is kept: with it the coordinator takes the next join for this member's."""
        if request is not self._pending:
            return
        self._pending = None
        if self._is_leaving:
            if isinstance(request, LeaveGroup):
                self._member_id = ""  # its session will end
            return
        self._events.append(CoordinatorLost())
        self._is_doubtful = self._is_doubtful or isinstance(request, JoinGroup)
        self._try_again(request, now)
        self._expire(now)

    def _on_join(self, answer: JoinAnswer, now: float) -> None:
        if answer.error == MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            self._wants_to_join("the coordinator has given a member id")
        elif answer.error:
            self._on_error(answer.error, now)
        elif answer.protocol not in self._assignors:
            self._refuse(INCONSISTENT_PROTOCOL, f"no assignor {answer.protocol!r} is known here")
        else:
            self._on_generation(answer, now)

    def _on_generation(self, answer: JoinAnswer, now: float) -> None:
        if self._has_missed(answer.generation):
            self._lose(MISSED)
        is_new = answer.generation > self._told and not (self._is_doubtful or self._succeeds)
        if self._is_kept:
            self._hope = self._waited
        elif is_new:
            self._proof = self._calm = max(self._proof, self._waited)
        is_quick = not self._is_kept and now < self._proof + self._session / 2
        self._is_proven = is_new and is_quick
        self._next_heartbeat = self._proof + self._interval if self._is_proven else now
        self._told, self._is_doubtful = answer.generation, False
        self._member_id, self._epoch = answer.member_id, answer.generation
        self._joined, self._attempts = answer, 0
        try:
            self._lead.begin(answer, self._topics)
        except UnreadableMemberError as error:
            self._refuse(INCONSISTENT_PROTOCOL, str(error))

    def _has_missed(self, generation: int) -> bool:
        """The group may have given away what is held, in a generation that this member did not join.

        Only a static member stays in the group then, with what its last join has claimed.
        """
        took_part = generation in (self._held_in, self._epoch, self._epoch + 1)
        return self._instance_id is not None and bool(self._held) and not took_part

    def _on_sync(self, request: SyncGroup, answer: SyncAnswer, now: float) -> None:
        if self._is_kept and answer.error in (0, REBALANCE_IN_PROGRESS):
            self._hope, self._next_heartbeat = self._waited, now
        if answer.error:
            self._on_error(answer.error, now)
            return
        self._joined, self._attempts = None, 0
        try:
            assignment = read_assignment(answer.assignment, self._member_id)
        except UnreadableMemberError as error:
            self._refuse(INCONSISTENT_PROTOCOL, str(error))
        else:
            self._assignors[request.protocol].assigned(assignment, request.generation)
            self._take(assignment, request.generation)
            if self._assignors[request.protocol].is_cooperative:
                self._look_after_static_members(now)
            elif self._lead.misses(self._assignors[request.protocol], self._topics, assignment):
                self._wants_to_join("a leader that came back would have something else by now")

    def _look_after_static_members(self, now: float) -> None:
        """The leader sees to it that what one was to give up does not stay with nobody.

        A static member may go before it has joined again without that, and its successor gets the rest without a
        rebalance. A rebalance stops nothing that stays; it stops those members that know an eager assignor too, but
        other assignors withhold nothing.
        """
        if self._lead.is_blind:
            self._wants_to_join("a leader that came back does not know what was given to whom")
        elif self._lead.has_withheld:
            self._looks_again = now + self._rebalance_timeout

    def _take(self, assignment: Assignment, generation: int) -> None:
        self._epoch = self._held_in = generation
        self._given = Claims(assignment.partitions, generation)
        if self._rejoin is not None and not self._is_cooperative:
            return  # it would be revoked before the next join
        target = frozenset(tp for tp in assignment.partitions if tp.topic in self._topics)
        self._revoke(self._held - target - self._draining)
        self._target = target
        self._assign(target - self._held)
        # A claim of what is not given keeps others from it, though it may have been released since.
        self._joins_when_drained = bool(self._claims.partitions - target)
        self._join_if_drained()

    def _on_heartbeat(self, answer: HeartbeatAnswer, now: float) -> None:
        if answer.error in (0, REBALANCE_IN_PROGRESS):
            self._proof = max(self._proof, self._sent)
            self._attempts, self._next_heartbeat = 0, self._sent + self._interval
        if answer.error == 0:
            self._calm, self._is_proven = max(self._calm, self._sent), True
        elif answer.error == REBALANCE_IN_PROGRESS and self._joined is not None:
            # It proves the answer as well. In a group that has members of the consumer protocol, too: 1. the member joins; 2. it is
            # told to join again, as long as it has something to revoke; 3. only the SyncGroup tells it what.
            self._is_proven = True
        elif answer.error == REBALANCE_IN_PROGRESS:
            self._wants_to_join("the group rebalances")
        else:
            self._on_error(answer.error, now)

    def _on_error(self, error: int, now: float) -> None:
        request = self._pending
        if error in (UNKNOWN_MEMBER, ILLEGAL_GENERATION):
            self._lose(FORGOTTEN)
            self._member_id = "" if error == UNKNOWN_MEMBER else self._member_id
            self._try_again(None, now, at_once=True)
        elif error == REBALANCE_IN_PROGRESS:
            self._try_again(request, now, at_once=True)
        elif error in (NOT_AVAILABLE, NOT_COORDINATOR):
            self._events.append(CoordinatorLost())
            self._try_again(request, now)
        elif error in PASSING:
            self._try_again(request, now)
        elif error == INCONSISTENT_PROTOCOL:
            self._refuse(error, "", offered=tuple(self._assignors))
        else:
            self._refuse(error, FENCED_AWAY if error == FENCED else "")

    def _try_again(self, request: Request | None, now: float, *, at_once: bool = False) -> None:
        """By a join, but for heartbeats; what is tried for the first time may be at once."""
        self._attempts += 1
        factor = min(2 ** (self._attempts - 1), LONGEST_BACKOFF)
        is_first = at_once and self._attempts == 1
        self._not_before = now if is_first else now + FIRST_BACKOFF * factor
        if not isinstance(request, Heartbeat) or self._joined is not None:
            self._joined = None
            self._wants_to_join("the last join was cut short")

    def _refuse(self, error: int, message: str, offered: tuple[str, ...] = ()) -> None:
        self._lose(FENCED_AWAY if error == FENCED else "the group has refused this member")
        self._is_refused = True
        self._is_silent = self._is_silent or error == FENCED
        self._events.append(Refused(error, message, offered))

    # -- partitions -----------------------------------------------------------------------------

    def _assign(self, tps: AbstractSet[TopicPartition]) -> None:
        if tps:
            self._held |= tps
            self._events.append(Assigned(frozenset(tps)))

    def _revoke(self, tps: AbstractSet[TopicPartition]) -> None:
        self._target -= tps
        if tps:
            self._draining |= tps
            self._events.append(Revoked(frozenset(tps)))

    def _lose(self, reason: str) -> None:
        """All of it; what commits would carry is over too."""
        if self._held:
            self._events.append(Lost(frozenset(self._held), reason))
        self._forget()
        self._epoch = self._held_in = -1

    def _forget(self) -> None:
        self._held.clear()
        self._draining.clear()

    def _expire(self, now: float) -> None:
        # A coordinator that is away for longer than a session, as one that restarts, keeps its members: it begins their
        # sessions anew. Nothing is handled after `held_until`, and the next heartbeat that is answered tells.
        self._is_overdue = self.held_until <= now < self._lost_at
        if now < self._lost_at:
            return
        self._lose(SILENT if now >= self._proof + self._session else OVERDUE)
        if self._joined is not None:
            self._is_proven, self._next_heartbeat = False, now

    @property
    def _is_steady(self) -> bool:
        """It heartbeats, and neither joins nor is about to."""
        return self._joined is None and self._rejoin is None and not self._is_joining

    def released(self, tps: frozenset[TopicPartition], now: float) -> None:  # noqa: ARG002 - part of the seam
        """See `Member`. What is not being drained is left: it is lost by now, or was never revoked."""
        done = tps & self._draining
        self._draining -= done
        self._held -= done
        self._assign(done & self._target)
        self._join_if_drained()

    def _join_if_drained(self) -> None:
        if self._joins_when_drained and not self._draining:
            self._wants_to_join("partitions were given up for others")

    def _wants_to_join(self, reason: str) -> None:
        self._rejoin = self._rejoin or reason
        if not self._is_cooperative:
            self._revoke(self._held - self._draining)

    # -- the cluster, and the end ---------------------------------------------------------------

    def metadata_changed(self, topics: Mapping[str, TopicInfo], now: float) -> None:
        """See `Member`. Other topics: any member joins again; other counts of partitions: the leader does."""
        is_first, self._topics, self._knows_topics = not self._knows_topics, dict(topics), True
        if is_first:
            self._not_before = now
        elif topics.keys() != self._joined_topics:
            self._wants_to_join("the topics of the subscription have changed")
        self._look_at_counts()

    def group_metadata_changed(self, topics: Mapping[str, TopicInfo | None], now: float) -> None:  # noqa: ARG002
        """See `Member`."""
        self._lead.others.update(topics)
        self._look_at_counts()

    def _look_at_counts(self) -> None:
        if self._lead.has_changed(self._topics):
            self._wants_to_join("topics of the group have more or fewer partitions")

    def _unknown_topics(self) -> AbstractSet[str]:
        return self.group_topics.difference(self._lead.others)

    def leave(self, now: float) -> None:
        """See `Member`. A request that is under way ends first: `failed` cuts it short. A static member says nothing."""
        self._is_leaving, self._not_before = True, now
        self._forget()


class _Lead:
    """What the leader of a generation knows; nothing for the others.

    Attributes:
        topics: of all members.
        others: topics of `group_topics` → what the cluster has of them; None for nothing.
        is_blind: a static leader that came back shares nothing out.
        has_withheld: some partitions are nobody's until their owners join again, and a static one of these may not.
    """

    def __init__(self) -> None:
        self.topics = frozenset[str]()
        self.others = dict[str, TopicInfo | None]()
        self._members = dict[str, GroupMember]()
        self._me = ""
        self._counts: Mapping[str, int] | None = None
        self.is_blind = self.has_withheld = False

    def begin(self, answer: JoinAnswer, topics: Mapping[str, TopicInfo]) -> None:
        """A generation begins.

        Raises:
            UnreadableMemberError: a member's subscription is broken.
        """
        is_leader, self._me = answer.leader_id == answer.member_id, answer.member_id
        self._members = {
            member: GroupMember(read_subscription(data, member), instance_id)
            for member, instance_id, data in (answer.members if is_leader else ())
        }
        wanted = [each.subscription.topics for each in self._members.values()]
        self.topics = frozenset[str]().union(*wanted)
        self.others = {name: info for name, info in self.others.items() if name in self.topics}
        self.is_blind, self.has_withheld = answer.skip_assignment, False
        if answer.skip_assignment:
            self._counts = self._counts_of(topics)

    def end(self) -> None:
        """The member joins anew; whoever leads then looks at the partitions of then."""
        self._counts = None

    def share_out(
        self, assignor: Assignor, topics: Mapping[str, TopicInfo]
    ) -> dict[str, Assignment]:
        """What each member is to have."""
        self._counts = self._counts_of(topics)
        shares = assignor.assign(self._members, self._counts)
        given = sum(len(share.partitions) for share in shares.values())
        has_static = any(each.instance_id is not None for each in self._members.values())
        self.has_withheld = has_static and given < sum(self._counts.values())
        return shares

    def misses(
        self, assignor: Assignor, topics: Mapping[str, TopicInfo], given: Assignment
    ) -> bool:
        """Whether a static leader that came back was given something else than it would give itself.

        Its subscription may be another one than its predecessor's, or a topic has grown meanwhile. Nobody would have what is new.
        """
        is_known = assignor.is_forgetful or len(self._members) == 1
        if not (self.is_blind and is_known):
            return False
        share = assignor.assign(self._members, self._counts_of(topics))[self._me]
        return share.partitions != given.partitions

    def has_changed(self, topics: Mapping[str, TopicInfo]) -> bool:
        """Whether the partitions are others than those that were shared out."""
        return self._counts is not None and self._counts != self._counts_of(topics)

    def _counts_of(self, topics: Mapping[str, TopicInfo]) -> dict[str, int]:
        known = {**self.others, **topics}
        found = ((name, known.get(name)) for name in sorted(self.topics))
        return {name: info.partitions for name, info in found if info is not None}
