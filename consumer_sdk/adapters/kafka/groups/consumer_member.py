"""A member of the consumer protocol (KIP-848): the coordinator assigns, and heartbeats are the only request.

The rules are those of Java's ``ConsumerMembershipManager``, unless noted otherwise:

* The member chooses its id. It joins with epoch 0, and owns no partition then. Every answer has the epoch for commits
  and for the next heartbeat.
* An answer may have an assignment: all partitions that the member is to have. Partitions that are not in it are
  revoked. The member goes on to own them, and to name them in heartbeats, until the owner has drained them. The first
  heartbeat that no longer names them gives them back, and is sent at once. New partitions of the assignment are
  assigned as soon as the name of their topic is known.
* A partition that is assigned again before it was drained is drained first, and then assigned anew. A topic that was
  deleted and created again is another topic of the same name: its old partition is drained before the new one begins.
* After a missing answer or an error, the next heartbeat is a full one. The coordinator may have changed the epoch or
  the assignment in the missing answer, and repeats them only to a full heartbeat.
* If it is fenced or unknown, the member loses all partitions, and joins again under the same id.

Some rules are ours. A static member whose join was not answered, or that is fenced, gives its instance id back (epoch
-2) before it joins again, because the coordinator refuses the id for a whole session otherwise, even to the same
member. An answer that is read later than a session after its request was sent does not count, because the coordinator
may have given the partitions away since.

A heartbeat that the member has given up may still be in a queue of the broker, and be processed after later ones.
Nobody reads its answer. The answer may give partitions, which no member has then; or take some, which the coordinator
gives to the next member after the rebalance timeout. Later answers repeat that only to a full heartbeat. So for `LATE`
seconds each heartbeat is a full one, and the partitions count as held for a rebalance timeout from the last answered
heartbeat.

If another member has its instance id, a static member waits for one session, because that member may be a killed
predecessor. If it still has the id then, it lives, and the new member is refused. (Java's is refused at once.)
"""

from __future__ import annotations

import logging
import math
import uuid
from collections import defaultdict
from collections.abc import Collection, Mapping
from enum import Enum, auto

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
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    Request,
    TopicPartitions,
)
from consumer_sdk.errors import ConfigurationError

__all__ = ["SESSION_TIMEOUT", "ConsumerMember"]

log = logging.getLogger(__name__)

SESSION_TIMEOUT = 45.0
"""Seconds; the broker's default of ``group.consumer.session.timeout.ms``, and of the least that a group may have."""

LATE = 60.0
"""Seconds for which a heartbeat that was given up may yet be carried out."""

LONGEST_SESSION = 60.0
"""Seconds; the broker's default of ``group.consumer.max.session.timeout.ms``."""

UNKNOWN_SESSION = 3
"""Heartbeat intervals that a session has at the least, where nobody may know it."""

JOINS, LEAVES, LEAVES_FOR_A_WHILE = 0, -1, -2
FIRST_BACK_OFF, LONGEST_BACK_OFF = 0.1, 1.0
"""Seconds."""

NOT_COORDINATOR = frozenset({15, 16})
TRANSIENT = frozenset({-1, 7, 13, 14, 19, 20, 56, 89}) | NOT_COORDINATOR
"""Server error, timeout, network, group is loading, replicas, storage, throttling: the broker's trouble, not ours."""
UNKNOWN_MEMBER, GROUP_NOT_FOUND, FENCED_EPOCH, UNRELEASED_INSTANCE = 25, 69, 110, 111
FENCED = frozenset({UNKNOWN_MEMBER, FENCED_EPOCH, 113})
UNKNOWN = frozenset({UNKNOWN_MEMBER, GROUP_NOT_FOUND})


class _Phase(Enum):
    JOINING = auto()
    MEMBER = auto()
    LEAVING = auto()
    LEFT = auto()


class ConsumerMember(Member):
    """One membership of the consumer protocol.

    Args:
        topics: names; or else
        pattern: a regular expression (RE2) that the broker evaluates.
        rebalance_timeout: seconds that the owner may take to drain what is revoked.
        session_timeout: seconds after which the coordinator gives up a silent member. It is the broker's or the
            group's setting (``group.consumer.session.timeout.ms``), and is never told; longer than that is not safe.
            None for unknown: see `session_timeout`.
        instance_id: of a static member: it leaves so that it may come back within a session.
        assignor: of the broker's; None for the group's.
        member_id: a UUID by default.

    Raises:
        ConfigurationError: both topics and a pattern, or neither.
    """

    def __init__(
        self,
        group: str,
        *,
        topics: Collection[str] = (),
        pattern: str | None = None,
        rebalance_timeout: float,
        session_timeout: float | None = SESSION_TIMEOUT,
        instance_id: str | None = None,
        rack: str | None = None,
        assignor: str | None = None,
        member_id: str | None = None,
    ) -> None:
        if bool(topics) == bool(pattern):
            raise ConfigurationError(
                f"a member of group {group!r} subscribes to topics or to a pattern: give one of them"
            )
        self._group = group
        self._topics = tuple(sorted(set(topics)))
        self._pattern = pattern or ""
        self._rebalance_timeout = rebalance_timeout
        self._known_session = session_timeout
        self._instance_id = instance_id
        self._rack = rack
        self._assignor = assignor
        self._member_id = member_id or str(uuid.uuid4())
        self._holdings = _Holdings()
        self._timing = _Timing()
        self._events: list[Event] = []
        self._phase = _Phase.JOINING
        self._epoch = JOINS
        self._in_flight: ConsumerHeartbeat | None = None
        self._tells_all = True
        self._told: TopicPartitions | None = None  # owned, as the coordinator heard it last
        self._may_be_known = False
        self._frees_instance = False
        self._heard_of = -math.inf  # when the last request that was answered well was sent
        self._drain_end = math.inf
        self._unheard_since = (
            -math.inf
        )  # when the first request after the last good answer was sent
        self._hears = True  # that answer was the last one of all
        self._acknowledges = False  # what is in flight names nothing that is being drained
        self._leave_end = math.inf
        self._unreleased_since = math.inf
        self._late_until = -math.inf  # a heartbeat that was given up may be carried out before
        self._warned_of = 0

    # -- what it is -----------------------------------------------------------------------------

    @property
    def member_id(self) -> str:
        return self._member_id

    @property
    def epoch(self) -> int:
        return self._epoch if self._phase is _Phase.MEMBER else -1

    @property
    def held_until(self) -> float:
        """No later than a rebalance timeout after a revocation; we may not have heard of that yet.

        1. an answer revokes a partition, and the process stands still before it has read it;
        2. when the rebalance timeout is over, the coordinator removes the member, and assigns all that it had;
        3. the session would have ended later.
        """
        session_end = self._heard_of + self._session_timeout
        if self._hears:
            return min(session_end, self._drain_end)
        unheard_end = self._unheard_since + self._rebalance_timeout
        return min(session_end, self._drain_end, unheard_end)

    @property
    def _session_timeout(self) -> float:
        if self._known_session is not None:
            return self._known_session
        return min(SESSION_TIMEOUT, UNKNOWN_SESSION * self._timing.interval)

    def session_is(self, seconds: float) -> None:
        """The group's session, as it is now; what is held counts by it from the last heartbeat on."""
        self._known_session = seconds

    @property
    def held(self) -> frozenset[TopicPartition]:
        return frozenset(self._holdings.held)

    @property
    def unknown_topic_ids(self) -> frozenset[bytes]:
        return self._holdings.unknown_topic_ids

    @property
    def has_left(self) -> bool:
        return self._phase is _Phase.LEFT

    def events(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    # -- requests -------------------------------------------------------------------------------

    def wake_at(self) -> float:
        return math.inf if self._in_flight is not None or self.has_left else self._timing.next

    def hurry(self, now: float) -> None:
        """The next heartbeat is due now: an answer may have more to tell than the last one."""
        self._timing.hurry(now)

    def poll(self, now: float) -> Request | None:
        if now < self.wake_at():
            return None
        if now >= self._leave_end:
            self._phase = _Phase.LEFT  # the session has ended, and the membership with it
            return None
        self._in_flight = self._request(now)
        self._timing.sent_at = now
        if self._hears:
            self._hears, self._unheard_since = False, now
        return self._in_flight

    def _request(self, now: float) -> ConsumerHeartbeat:
        if self._phase is _Phase.LEAVING:
            return self._leave(LEAVES if self._instance_id is None else LEAVES_FOR_A_WHILE)
        if self._frees_instance:
            return self._leave(LEAVES_FOR_A_WHILE)
        owned = self._holdings.owned()
        self._acknowledges = not self._holdings.draining
        if self._tells_all or now < self._late_until:
            return self._full_heartbeat(owned)
        changed = None if owned == self._told else owned
        return ConsumerHeartbeat(
            self._group, self._member_id, self._epoch, self._instance_id, owned=changed
        )

    def _full_heartbeat(self, owned: TopicPartitions) -> ConsumerHeartbeat:
        """Topics end a pattern, and a pattern topics: a static member may have had the other before."""
        self._may_be_known = True
        return ConsumerHeartbeat(
            self._group,
            self._member_id,
            self._epoch,
            self._instance_id,
            rack=self._rack,
            rebalance_timeout=self._rebalance_timeout,
            topics=self._topics,
            pattern=self._pattern,
            assignor=self._assignor,
            owned=owned,
        )

    def _leave(self, epoch: int) -> ConsumerHeartbeat:
        return ConsumerHeartbeat(self._group, self._member_id, epoch, self._instance_id)

    # -- answers --------------------------------------------------------------------------------

    def answered(self, request: Request, answer: Answer, now: float) -> None:
        if request is not self._in_flight:  # it failed before, and was sent again since
            return
        if not isinstance(answer, ConsumerHeartbeatAnswer):
            raise TypeError(f"a heartbeat of the consumer protocol has no answer like {answer!r}")
        self._in_flight = None
        if self._phase is _Phase.LEAVING:
            self._answered_leaving(request, answer, now)
        elif answer.error in TRANSIENT:
            self._try_again(answer.error, answer.message, now)
        elif self._frees_instance:  # free, or another member's: the join will tell
            self._frees_instance = False
        elif answer.error:
            self._answered_error(answer.error, answer.message, now)
        elif answer.epoch <= 0 or now >= self._timing.sent_at + self._session_timeout:
            self._unanswered(now)
        else:
            self._answered_well(request, answer, now)
            self._hear(now)

    def failed(self, request: Request, now: float) -> None:
        if request is not self._in_flight:
            return
        self._in_flight = None
        self._events.append(CoordinatorLost())
        self._unanswered(now)

    def _unanswered(self, now: float) -> None:
        """The coordinator knows us, or not, and if so by this epoch or by the next one."""
        if self._phase is _Phase.JOINING and self._instance_id is not None:
            self._frees_instance = True
        self._late_until = now + LATE
        self._tell_all_later(now)

    def _try_again(self, error: int, message: str, now: float) -> None:
        if error in NOT_COORDINATOR:
            self._events.append(CoordinatorLost())
        if error == -1:
            self._warn(error, message)
        self._tell_all_later(now)

    def _tell_all_later(self, now: float) -> None:
        self._tells_all = True
        self._timing.back_off(now)

    def _answered_well(
        self, request: ConsumerHeartbeat, answer: ConsumerHeartbeatAnswer, now: float
    ) -> None:
        has_joined = self._phase is _Phase.JOINING
        self._phase = _Phase.MEMBER
        self._member_id = answer.member_id or self._member_id
        self._epoch = answer.epoch
        self._tells_all = False
        self._unreleased_since = math.inf
        self._warned_of = 0
        self._heard_of = self._timing.sent_at
        self._timing.answered(answer.interval, keep_back_off=has_joined)
        if request.owned is not None:
            self._told = request.owned
            if self._acknowledges:
                self._drain_end = math.inf
        if answer.assignment is None:
            self._reconcile()
        else:
            self._take(answer.assignment, is_told=request.owned is not None)
        self._acknowledge(now)

    def _hear(self, now: float) -> None:
        """The answer says all; while a late heartbeat may change something behind our back, it says how it was then."""
        self._hears = now >= self._late_until
        if not self._hears:
            self._unheard_since = self._timing.sent_at

    def _take(self, assignment: TopicPartitions, *, is_told: bool) -> None:
        if not is_told:  # it waits for what we own, even if that is as before
            self._told = None
        self._holdings.target = dict(assignment)
        self._reconcile()
        if self._holdings.draining:
            end = self._unheard_since + self._rebalance_timeout
            self._drain_end = min(self._drain_end, end)

    def _reconcile(self) -> None:
        self._events += self._holdings.reconcile(gains=self._may_gain)

    @property
    def _may_gain(self) -> bool:
        """What a heartbeat does not name as owned may be another member's, until its answer says that it is not.

        1. An answer assigns a partition of a topic whose name is not known; 2. the next heartbeat does not name it;
        3. the name is learnt; 4. the coordinator takes the partition away, and does not wait for anything.
        """
        tells = self._in_flight is not None and self._in_flight.owned is not None
        return not (tells or self._tells_all)

    def _acknowledge(self, now: float) -> None:
        """At once where the coordinator waits for it: it gives the next member nothing before."""
        if not self._holdings.draining and self._told != self._holdings.owned():
            self._timing.hurry(now)

    # -- errors ---------------------------------------------------------------------------------

    def _answered_error(self, error: int, message: str, now: float) -> None:
        is_member = self._phase is _Phase.MEMBER
        if error in FENCED or (error == GROUP_NOT_FOUND and is_member):
            self._rejoin(error, message, now)
        elif error == UNRELEASED_INSTANCE and now < self._predecessor_ends(now):
            self._warn(error, message)
            self._tell_all_later(now)
        else:
            self._lose(f"the group refused the member: {message or 'no reason given'} ({error})")
            self._events.append(Refused(error, message))
            self._phase = _Phase.LEFT

    def _predecessor_ends(self, now: float) -> float:
        """When the session of whoever has our instance id is over, if that one is dead."""
        self._unreleased_since = min(self._unreleased_since, now)
        session = LONGEST_SESSION if self._known_session is None else self._known_session
        return self._unreleased_since + session + LONGEST_BACK_OFF

    def _rejoin(self, error: int, message: str, now: float) -> None:
        self._lose(
            f"the coordinator has removed the member ({message or 'no reason given'}, error {error}); it joins "
            "again. If this happens often: drains outlast the rebalance timeout, or the process stands still for "
            "longer than group.consumer.session.timeout.ms"
        )
        self._may_be_known = error not in UNKNOWN
        self._frees_instance = self._may_be_known and self._instance_id is not None
        self._phase = _Phase.JOINING
        self._epoch = JOINS
        self._tell_all_later(now)

    def _lose(self, reason: str) -> None:
        lost = self._forget()
        if lost:
            self._events.append(Lost(lost, reason))

    def _forget(self) -> frozenset[TopicPartition]:
        self._heard_of, self._drain_end = -math.inf, math.inf
        return self._holdings.clear()

    def _warn(self, error: int, message: str) -> None:
        """Once for each trouble: it is asked again and again."""
        if error != self._warned_of:
            self._warned_of = error
            log.warning(
                "group %r, member %s: the coordinator answers error %d (%s); it is asked again until that ends",
                *(self._group, self._member_id, error, message),
            )

    # -- what the owner and the cluster say -----------------------------------------------------

    def released(self, tps: frozenset[TopicPartition], now: float) -> None:
        """Counts for what is being drained alone; what was lost, or is assigned anew, is none of it."""
        if self._holdings.release(tps):
            self._told = None  # told even if one of them comes back at once
        self._reconcile()
        self._acknowledge(now)

    def metadata_changed(self, topics: Mapping[str, TopicInfo], now: float) -> None:
        self._holdings.rename(topics)
        self._reconcile()
        self._acknowledge(now)

    # -- leaving --------------------------------------------------------------------------------

    def leave(self, now: float) -> None:
        """A static member's place stays free for it until the session ends; nobody else gets it before.

        The request is tried until the session would have ended.
        """
        if self._phase in (_Phase.LEAVING, _Phase.LEFT):
            return
        self._forget()
        self._phase = _Phase.LEAVING if self._may_be_known else _Phase.LEFT
        self._leave_end = now + self._session_timeout
        self._timing.hurry(now)

    def _answered_leaving(
        self, request: ConsumerHeartbeat, answer: ConsumerHeartbeatAnswer, now: float
    ) -> None:
        is_known = answer.error in (0, FENCED_EPOCH, UNRELEASED_INSTANCE)
        if answer.error in TRANSIENT:
            self._try_again(answer.error, answer.message, now)
        elif request.epoch < JOINS or not is_known:  # else it still has to leave
            self._phase = _Phase.LEFT


# -- what is held -------------------------------------------------------------------------------


class _Holdings:
    """What the member is to have, has, and gives back.

    Attributes:
        target: as it was told last.
        held: with the id of each one's topic: the same name may be another topic later.
        draining: part of ``held``.
    """

    def __init__(self) -> None:
        self.target: TopicPartitions = {}
        self.held: dict[TopicPartition, bytes] = {}
        self.draining: set[TopicPartition] = set()
        self._names: dict[bytes, str] = {}
        self._gone: set[bytes] = set()  # named, because they are held, but none of the cluster's

    @property
    def unknown_topic_ids(self) -> frozenset[bytes]:
        """Topics of the target without a name."""
        return frozenset(self.target.keys() - self._names.keys())

    def owned(self) -> TopicPartitions:
        """As a heartbeat tells it; what is being drained counts."""
        owned: dict[bytes, set[int]] = defaultdict(set)
        for tp, topic_id in self.held.items():
            owned[topic_id].add(tp.partition)
        return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}

    def reconcile(self, *, gains: bool) -> list[Event]:
        """Revokes what is held against the target, and assigns what is missing if it may."""
        wanted = self._wanted()
        revoked = {tp for tp, topic_id in self.held.items() if wanted.get(tp) != topic_id}
        revoked -= self.draining
        missing = {tp: topic_id for tp, topic_id in wanted.items() if tp not in self.held}
        gained = missing if gains else {}
        self.draining |= revoked
        self.held |= gained
        events: list[Event] = []
        if revoked:
            events.append(Revoked(frozenset(revoked)))
        if gained:
            events.append(Assigned(frozenset(gained)))
        return events

    def _wanted(self) -> dict[TopicPartition, bytes]:
        """Of two topics with one name it is the one that the cluster has."""
        named = sorted(self.target.keys() & self._names.keys(), key=self._is_there)
        return {
            TopicPartition(self._names[topic_id], partition): topic_id
            for topic_id in named
            for partition in self.target[topic_id]
        }

    def _is_there(self, topic_id: bytes) -> bool:
        return topic_id not in self._gone

    def rename(self, topics: Mapping[str, TopicInfo]) -> None:
        """The cluster's topics; a topic that is held keeps its name, even when the cluster has it no more."""
        held = {topic_id: tp.topic for tp, topic_id in self.held.items()}
        there = {info.topic_id: name for name, info in topics.items()}
        self._names = held | there
        self._gone = held.keys() - there.keys()

    def release(self, tps: frozenset[TopicPartition]) -> bool:
        """True if some of them were being drained."""
        drained = tps & self.draining
        self.draining -= drained
        for tp in drained:
            del self.held[tp]
        return bool(drained)

    def clear(self) -> frozenset[TopicPartition]:
        """All that was held."""
        held = frozenset(self.held)
        self.target, self.held, self.draining = {}, {}, set()
        return held


# -- when to send -------------------------------------------------------------------------------


class _Timing:
    """When the next request is due. All in seconds of the caller's clock.

    Attributes:
        sent_at: when the last request was sent.
        interval: between heartbeats, as the coordinator has told it last.
    """

    def __init__(self) -> None:
        self.sent_at = -math.inf
        self._due = -math.inf
        self._not_before = -math.inf
        self.interval = 5.0
        self._failures = 0

    @property
    def next(self) -> float:
        """When to send."""
        return max(self._due, self._not_before)

    def hurry(self, now: float) -> None:
        """Sent as soon as may be."""
        self._due = min(self._due, now)

    def answered(self, interval: float, *, keep_back_off: bool) -> None:
        """All is well; or is it so only until the next error? Then ``keep_back_off``.

        The next one is due an interval after this one was sent, not after its answer.
        """
        self.interval = interval if interval > 0 else self.interval
        self._due = self.sent_at + self.interval
        self._failures = self._failures if keep_back_off else 0

    def back_off(self, now: float) -> None:
        """Sent after a while, which doubles with each failure."""
        self._not_before = now + min(FIRST_BACK_OFF * 2**self._failures, LONGEST_BACK_OFF)
        self._failures = min(self._failures + 1, 10)
