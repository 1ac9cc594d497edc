"""Decides which broker to ask for what next, for the cursors of all grants, and which answers count. Pure.

A request to a node is sent when no other one to it is under way, because a broker answers the requests of a connection
one after another. It asks:

- for each partition that the node leads, or is the preferred replica of (KIP-392), unless the partition is paused,
  rests after an error, or has half a request's bytes buffered;
- for as many bytes in all as the buffer has room for. Without room no request is sent, as long as some buffered bytes
  will be taken; those of paused partitions will not, and must not stop the others;
- to wait until records come, but not for long if partitions were left out because they are full: they belong into the
  session. A broker that does not wait, and has no new records, is not asked again at once;
- while the broker waits, for partitions that are opened, resumed, sought, or no longer full *aside*: without a session,
  on another connection, and without a wait. If there are no new records, this is repeated after a while.

A node may hang. If another one leads a partition meanwhile, that one is asked. If an answer is late, the metadata are
refreshed.

An answer counts for a cursor only if nothing has happened to the cursor since the request:

1. a fetch at offset 100 is under way; 2. somebody seeks, the partition is granted anew, or what was fetched cannot
be read; 3. the answer comes, and begins at an offset that nobody wants.

Errors of a partition:

===============================================  ============================================================
a leader or an epoch that is out of date         fresh metadata; asked again when they are there, or soon
out of range, or another past, by a follower     the leader is asked
out of range, by the leader                      asked again; said twice it is a fault, behind what is buffered
an end in doubt (see `transactions_in_doubt`)    asked again, until one counts (see `is_believed`)
the log has another past (KIP-320)               what is buffered is dropped; a fault if it was handed out
not authorized, corrupt, or nothing fixes it     a fault, behind what is buffered
any other                                        asked again, soon
===============================================  ============================================================
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from aiokafka import TopicPartition
from aiokafka.errors import (
    CorruptRecordException,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    for_code,
)

from consumer_sdk.adapters.kafka.client import faults
from consumer_sdk.adapters.kafka.client.cluster_metadata import NO_EPOCH
from consumer_sdk.adapters.kafka.decoding.record_batches import (
    is_believed,
    transactions_in_doubt,
)
from consumer_sdk.adapters.kafka.fetch.cursor import (
    NO_POSITION,
    Chunk,
    Cursor,
    Fault,
    Reach,
    reach_of,
)
from consumer_sdk.adapters.kafka.fetch.session import (
    Ask,
    FetchSession,
    SessionRequest,
    single_request,
)
from consumer_sdk.adapters.kafka.fetch.structs import (
    AnswerFormatError,
    Fetched,
    FetchLimits,
    PartitionAnswer,
)
from consumer_sdk.errors import PositionOutOfRangeError
from consumer_sdk.log_limits import REPEATS

__all__ = ["Cursors", "FetchOptions", "Leaders", "Look", "Plan"]

log = logging.getLogger(__name__)

PACE = 0.02
"""Seconds between two requests to a node that has had nothing for those it is asked for."""
SHORT_WAIT = 100
"""Milliseconds that a broker may wait while a partition of it is full."""
SLOW = 5.0
"""Seconds past the broker's own wait after which an answer is late: somebody else may lead by now."""
ASIDE = 0.1
"""Seconds between two requests aside for a partition that has nothing new; so long, too, for its answer."""

MOST_THROTTLE = 60.0
"""Seconds for which a broker is left alone at most when it asks for that."""

OUT_OF_RANGE, CORRUPT, FORBIDDEN = 1, 2, 29
STALE = faults.STALE | {100, 103}
"""Codes that ask for fresh metadata; also of a topic whose id is not known, or is another one."""
HOPELESS = {
    17: "this is not the name of a topic",
    35: "the broker cannot answer such a fetch",
    43: "the broker stores this topic in a format that is too old",
    76: "the broker sends zstd only to fetches that it does not know itself: use Kafka 2.3 or newer",
}
"""Codes that no other answer will follow, and what they mean."""
SESSION_ERRORS = frozenset({70, 71, 106})


class Leaders(Protocol):
    """What the cluster's metadata say."""

    def leader_of(self, tp: TopicPartition) -> tuple[int, int] | None:
        """The node that leads a partition, and its epoch (-1: not known); None if there is none."""

    def has_node(self, node: int) -> bool:
        """The node is one of the cluster's."""


class FetchOptions(NamedTuple):
    """Limits of fetching.

    Attributes:
        max_wait: milliseconds that a broker may wait for `min_bytes`.
        max_bytes: of what is buffered, and of what all nodes together are asked for.
        max_partition_bytes: of a partition, in one request.
        isolation: 1 to read only what is committed.
        rack: the reader's; empty for none.
        backoff: seconds until something is asked again after an error.
        replica_age: seconds for which a preferred replica is one.
    """

    max_wait: int = 500
    min_bytes: int = 1
    max_bytes: int = 52_428_800
    max_partition_bytes: int = 1_048_576
    isolation: int = 0
    rack: str = ""
    backoff: float = 0.1
    replica_age: float = 300.0


def _item(
    part: PartitionAnswer, reach: Reach | None, ask: Ask, *, continues: bool
) -> Chunk | Fault:
    if reach is None:
        return Fault(CorruptRecordException("a length points beyond the answer"))
    if NO_EPOCH < ask.leader_epoch < reach.epoch:
        reach = reach._replace(epoch=NO_EPOCH)  # no checksum covers it
    return Chunk(
        part.records,
        ask.offset,
        reach,
        aborted=part.aborted,
        highwater=part.highwater,
        continues=continues,
    )


def _asked(plan: Plan, part: PartitionAnswer, names: Mapping[bytes | None, str]) -> TopicPartition:
    topic = names.get(part.topic, "") if isinstance(part.topic, bytes) else part.topic
    tp = TopicPartition(topic, part.partition)
    if tp not in plan.cursors:
        raise AnswerFormatError(
            f"node {plan.node} answers of {part.topic!r}[{part.partition}], which nobody asked for"
        )
    return tp


class Plan(NamedTuple):
    """A request.

    Attributes:
        leaders: who led each partition when it was made, and the epoch of that leader.
        is_aside: it has no session, and goes beside the one that waits.
    """

    node: int
    limits: FetchLimits
    request: SessionRequest
    cursors: dict[TopicPartition, Cursor]
    leaders: dict[TopicPartition, tuple[int, int]]
    is_aside: bool = False


class Look(NamedTuple):
    """What there is to do.

    Attributes:
        plans: requests to be sent; of each the outcome is to be told.
        is_stale: fresh metadata are needed.
        wake_at: when to look again, if nothing happens before.
    """

    plans: list[Plan]
    is_stale: bool
    wake_at: float | None


class Node:
    """A broker: what it knows of us, and what it is asked.

    Attributes:
        is_asked: a request of its session is under way, which may take long.
        asked_at: when the last one of its session was made.
        answers_by: until then its answer may be as good as there, and nothing is asked aside.
        is_asked_aside: one aside is under way.
    """

    __slots__ = (
        "answers_by",
        "asked_at",
        "due_at",
        "failures",
        "is_asked",
        "is_asked_aside",
        "rests_until",
        "session",
    )

    def __init__(self) -> None:
        self.session = FetchSession()
        self.is_asked = False
        self.is_asked_aside = False
        self.due_at = 0.0
        self.asked_at = -PACE
        self.answers_by = 0.0
        self.rests_until = 0.0
        self.failures = 0

    @property
    def can_be_asked(self) -> bool:
        """In the session, or aside."""
        return not (self.is_asked and self.is_asked_aside)


class Group:
    """The cursors of one node at one look."""

    __slots__ = ("has_full", "leaders", "node", "wanting")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.wanting: list[Cursor] = []
        self.leaders: dict[TopicPartition, tuple[int, int]] = {}
        self.has_full = False


class Cursors:
    """All cursors of a client.

    Attributes:
        is_full: the last look has found no room, and something that will be taken.
    """

    def __init__(self, leaders: Leaders, options: FetchOptions) -> None:
        self._leaders = leaders
        self._options = options
        self._enough = max(options.max_partition_bytes // 2, 1)
        self._cursors: dict[TopicPartition, Cursor] = {}
        self._nodes: dict[int, Node] = {}
        self._is_stale = False
        self._wake_at: float | None = None
        self.is_full = False

    def __iter__(self) -> Iterator[Cursor]:
        return iter(self._cursors.values())

    def __len__(self) -> int:
        return len(self._cursors)

    def add(self, cursor: Cursor) -> None:
        """Takes a cursor; an older one of the same partition is over."""
        old = self._cursors.pop(cursor.tp, None)
        if old is not None and old is not cursor:
            old.close()
        self._cursors[cursor.tp] = cursor

    def served(self, cursor: Cursor) -> None:
        """Moves the cursor behind the others, so that these are asked for first."""
        if self._cursors.get(cursor.tp) is cursor:
            self._cursors[cursor.tp] = self._cursors.pop(cursor.tp)

    def wants_look(self, cursor: Cursor) -> bool:
        """Whether the cursor has become one to ask for, of a node that can be asked; true once for each request."""
        if cursor.is_noted or cursor.is_asked or not cursor.wants(self._enough):
            return False
        node = self._nodes.get(-1 if cursor.node is None else cursor.node)
        if node is not None and not node.can_be_asked:
            return False  # its answer is looked at anyway
        cursor.is_noted = True
        return True

    def has_room(self) -> bool:
        """Whether more may be fetched. Buffers of paused partitions alone do not prevent it."""
        return self._room() > 0 or not self._is_taken()

    def _room(self) -> int:
        return self._options.max_bytes - sum([cursor.held for cursor in self._cursors.values()])

    def _is_taken(self) -> bool:
        return any(cursor.queue and not cursor.paused for cursor in self._cursors.values())

    # -- what to do -----------------------------------------------------------------------------

    def look(self, now: float) -> Look:
        """The requests that are to be sent now."""
        self._wake_at = None
        groups: dict[int, Group] = {}
        for tp in [tp for tp, cursor in self._cursors.items() if cursor.is_closed]:
            del self._cursors[tp]
        for cursor in self._cursors.values():
            self._sort(cursor, groups, now)
        room = self._room()
        self.is_full = room <= 0 and self._is_taken()
        plans = []
        if not self.is_full:
            share = self._options.max_bytes // max(len(groups), 1)  # all may answer at once
            room = max(min(room, share), self._options.max_partition_bytes)
            found = [self._plan(node, group, room, now) for node, group in groups.items()]
            plans = [plan for plan in found if plan is not None]
        self._watch(now)
        is_stale, self._is_stale = self._is_stale, False
        return Look(plans, is_stale, self._wake_at)

    def _watch(self, now: float) -> None:
        """Asks for fresh metadata if an answer is late."""
        for node in self._nodes.values():
            if node.is_asked:
                if now >= node.due_at:
                    self._is_stale, node.due_at = True, now + SLOW
                self._later(node.due_at)

    def _sort(self, cursor: Cursor, groups: dict[int, Group], now: float) -> None:
        if cursor.position < 0:
            return
        leader = self._leaders.leader_of(cursor.tp)
        if leader is None:
            self._is_stale = True
            return
        group = self._group_of(cursor, leader[0], groups, now)
        if not group.node.can_be_asked:
            return
        cursor.is_noted = False
        if cursor.paused:
            return
        if now < cursor.rests_until and cursor.failed_leader == leader:
            self._later(cursor.rests_until)
        elif not cursor.wants(self._enough):
            group.has_full = True
        elif self._is_due(cursor, group.node, now):
            group.wanting.append(cursor)
            group.leaders[cursor.tp] = leader

    def _is_due(self, cursor: Cursor, node: Node, now: float) -> bool:
        """Whether the cursor may be asked for: no request for it is under way, and none went aside just now."""
        is_asked = cursor.is_asked
        if not node.is_asked:
            return not is_asked or now >= cursor.aside_at  # aside, and that takes long
        due_at = max(cursor.aside_at, node.answers_by)
        if not is_asked and now < due_at:
            self._later(due_at)
        return not is_asked and now >= due_at

    def _group_of(self, cursor: Cursor, leader: int, groups: dict[int, Group], now: float) -> Group:
        node = leader if cursor.replica is None else self._node_of(cursor, leader, now)
        if cursor.node != node:
            cursor.node = node
            cursor.disregard()  # whoever is asked may not answer for long
        group = groups.get(node)
        if group is None:
            group = groups[node] = Group(self._nodes.setdefault(node, Node()))
        return group

    def _node_of(self, cursor: Cursor, leader: int, now: float) -> int:
        if cursor.replica is None:
            return leader
        node, until = cursor.replica
        if (now < until or cursor.is_asked) and self._leaders.has_node(node):
            return node
        cursor.replica = None
        return leader

    def _plan(self, number: int, group: Group, room: int, now: float) -> Plan | None:
        node = group.node
        if not group.wanting:
            return None
        if now < node.rests_until:
            self._later(node.rests_until)
            return None
        if node.is_asked:
            return self._aside(number, group, room, now)
        again_at = node.asked_at + PACE
        if now < again_at and all(c.is_idle for c in group.wanting):
            self._later(again_at)
            return None
        wait = self._options.max_wait
        if group.has_full:
            wait = min(wait, SHORT_WAIT)
        request = node.session.request(self._asks(group))
        node.is_asked, node.asked_at, node.due_at = True, now, now + wait / 1000 + SLOW
        node.answers_by = now if all(c.is_idle for c in group.wanting) else now + PACE
        return self._made(number, group, request, wait, room)

    def _aside(self, number: int, group: Group, room: int, now: float) -> Plan:
        """Beside the request that waits."""
        group.node.is_asked_aside = True
        for cursor in group.wanting:
            cursor.aside_at = now + ASIDE
        request = single_request(self._asks(group))
        return self._made(number, group, request, 0, room)._replace(is_aside=True)

    def _asks(self, group: Group) -> dict[TopicPartition, Ask]:
        size = self._options.max_partition_bytes
        return {c.tp: c.ask(group.leaders[c.tp][1], size) for c in group.wanting}

    def _made(
        self, number: int, group: Group, request: SessionRequest, wait: int, room: int
    ) -> Plan:
        options, cursors = self._options, {cursor.tp: cursor for cursor in group.wanting}
        most = min(options.max_bytes, room)
        limits = FetchLimits(wait, options.min_bytes, most, options.isolation, options.rack)
        return Plan(number, limits, request, cursors, group.leaders)

    def _later(self, when: float) -> None:
        self._wake_at = when if self._wake_at is None else min(when, self._wake_at)

    # -- what came of it ------------------------------------------------------------------------

    def failed(self, plan: Plan, now: float) -> None:
        """Notes that no answer came; partitions that a follower was asked for are read from their leaders again."""
        self._end(plan, None)
        self._is_stale = True
        for cursor in self._counting(plan):
            cursor.replica = None  # its leader may name the same one again: not at once
            self._rest(cursor, plan.leaders[cursor.tp], now)

    def unusable(self, plan: Plan, error: Exception) -> None:
        """Notes an answer that cannot be parsed: each partition that was asked for gets a fault."""
        self._end(plan, None)
        for cursor in self._counting(plan):
            cursor.put(Fault(error))

    def accept(self, plan: Plan, answer: Fetched, now: float) -> bool:
        """Takes an answer.

        Returns:
            Whether there is something to be handed out.

        Raises:
            AnswerFormatError: it is none to this request; `unusable` is to be told.
        """
        names = {ask.topic_id: tp.topic for tp, ask in plan.request.asks.items()}
        parts = [(_asked(plan, part, names), part) for part in answer.partitions]
        is_sound, node = self._end(plan, answer), self._nodes[plan.node]
        node.rests_until = now + min(max(answer.throttle / 1000, 0.0), MOST_THROTTLE)
        if not is_sound:
            self._refused(plan, node, answer.error, now)
            return False
        node.failures = 0
        is_empty, has_news = not any(part.records for _tp, part in parts), False
        for tp, part in parts:
            cursor = plan.cursors[tp]
            if cursor.answered(plan.request.asks[tp]):
                has_news |= self._take_in(plan, cursor, part, now)
                cursor.is_idle |= is_empty and cursor.replica is None
        for cursor in self._counting(plan):  # a session's broker has nothing to say of them
            cursor.is_idle = is_empty or self._is_at_end(cursor, plan)
        return has_news

    def _refused(self, plan: Plan, node: Node, code: int, now: float) -> None:
        """Takes an error of the fetch as a whole: of the session, or of the broker."""
        node.failures += 1
        level = logging.DEBUG if code in SESSION_ERRORS else logging.WARNING
        log.log(
            level, "node %d refuses a fetch: %s", plan.node, for_code(code).__name__, extra=REPEATS
        )
        if node.failures > 1 or code not in SESSION_ERRORS:
            node.rests_until = max(node.rests_until, now + self._options.backoff)
        for cursor in list(self._counting(plan)):
            cursor.is_idle = False

    def _end(self, plan: Plan, answer: Fetched | None) -> bool:
        """Ends a request; returns whether its answer counts."""
        node = self._nodes[plan.node]
        if plan.is_aside:
            node.is_asked_aside = False
            return answer is not None and not answer.error
        node.is_asked = False
        if answer is not None:
            return node.session.answered(answer.session, answer.error)
        node.session.failed()
        return False

    @staticmethod
    def _counting(plan: Plan) -> Iterator[Cursor]:
        """The cursors whose answer still counts; now it is had."""
        for tp, cursor in plan.cursors.items():
            if cursor.answered(plan.request.asks[tp]):
                yield cursor

    def _rest(self, cursor: Cursor, leader: tuple[int, int], now: float) -> None:
        cursor.rests_until = now + self._options.backoff
        cursor.failed_leader = leader

    # -- one partition --------------------------------------------------------------------------

    def _take_in(self, plan: Plan, cursor: Cursor, part: PartitionAnswer, now: float) -> bool:
        """Whether there is something to be handed out."""
        if part.error:
            return self._take_error(plan, cursor, part, now)
        cursor.missing = NO_POSITION
        if part.diverging is not None:
            if plan.node == plan.leaders[cursor.tp][0]:
                return self._diverged(cursor, *part.diverging)
            self._leave_replica(plan, cursor, now)
            return False
        cursor.highwater, cursor.last_stable = part.highwater, part.last_stable
        cursor.log_start = part.log_start if part.log_start >= 0 else None
        if part.replica >= 0 and self._options.rack:
            self._follow(plan, cursor, part.replica, now)
        cursor.is_idle = part.replica < 0 and self._is_at_end(cursor, plan)
        if not part.records:
            return False
        cursor.aside_at = 0.0
        ask, reach = plan.request.asks[cursor.tp], reach_of(part.records)
        if reach is not None and reach.is_transactional and self._is_doubted(cursor, part, ask):
            return False
        cursor.put(_item(part, reach, ask, continues=cursor.continues_at(ask.offset)))
        self.served(cursor)
        return True

    def _is_doubted(self, cursor: Cursor, part: PartitionAnswer, ask: Ask) -> bool:
        """Whether the answer may leave out an aborted transaction. It is then asked for again."""
        if not self._options.isolation or len(part.records) >= ask.max_bytes:
            return False
        doubt = transactions_in_doubt(part.records, part.aborted, part.last_stable)
        offset, before = cursor.doubted
        cursor.doubted = ask.offset, doubt
        return not is_believed(doubt, before if offset == ask.offset else None)

    def _follow(self, plan: Plan, cursor: Cursor, replica: int, now: float) -> None:
        """Reads from the replica that the leader names, if the cluster has it."""
        if replica != plan.node and self._leaders.has_node(replica):
            cursor.replica = replica, now + self._options.replica_age
            return
        self._is_stale = True
        self._rest(cursor, plan.leaders[cursor.tp], now)

    def _leave_replica(self, plan: Plan, cursor: Cursor, now: float) -> None:
        """Goes back from a replica to the leader, whose log is the one that counts."""
        cursor.replica = None
        self._is_stale = True
        self._rest(cursor, plan.leaders[cursor.tp], now)

    def _is_at_end(self, cursor: Cursor, plan: Plan) -> bool:
        """Whether the answer reached the end of the log."""
        end = cursor.last_stable if self._options.isolation else cursor.highwater
        return end is not None and end <= plan.request.asks[cursor.tp].offset

    def _take_error(self, plan: Plan, cursor: Cursor, part: PartitionAnswer, now: float) -> bool:
        code, tp = part.error, cursor.tp
        fault = self._fault_of(plan, cursor, code)
        cursor.replica = None
        if fault is not None:
            cursor.put(fault)
            return True
        self._is_stale |= code in STALE or code == OUT_OF_RANGE
        self._rest(cursor, plan.leaders[tp], now)
        name = for_code(code).__name__
        log.info("%s at node %d: %s (%d); asked again", tp, plan.node, name, code, extra=REPEATS)
        return False

    @staticmethod
    def _fault_of(plan: Plan, cursor: Cursor, code: int) -> Fault | None:
        """What a partition's error means to its reader; None: it is asked for again."""
        tp, offset = cursor.tp, plan.request.asks[cursor.tp].offset
        if code == OUT_OF_RANGE and plan.node != plan.leaders[tp][0]:
            return None  # a follower may be behind
        if code == OUT_OF_RANGE:
            # So may a leader that is none any more, and that nobody knows of yet.
            is_said_twice, cursor.missing = cursor.missing == offset, offset
            cursor.has_lost_past |= is_said_twice
            return Fault(OffsetOutOfRangeError({tp: offset})) if is_said_twice else None
        if code == FORBIDDEN:
            return Fault(TopicAuthorizationFailedError(tp.topic))
        if code == CORRUPT:
            return Fault(CorruptRecordException("the broker finds its log corrupt"))
        if code in HOPELESS:
            return Fault(for_code(code)(f"the broker's error {code}: {HOPELESS[code]}"))
        return None

    @staticmethod
    def _diverged(cursor: Cursor, epoch: int, end: int) -> bool:
        """KIP-320: the leader's log is as it was read up to an offset only.

        What was read behind it was never committed by the brokers, and is gone.
        """
        position = cursor.position
        cursor.rewind()
        cursor.last_epoch = epoch
        if end >= position:
            return False
        cursor.has_lost_past, cursor.past_end = True, end
        text = (
            f"the log was truncated: the position is {position}, but the leader's log is as it was read "
            f"only up to {end} (leader epoch {epoch}): records from {end} on were lost by the brokers, "
            f"after they were delivered"
        )
        cursor.put(Fault(PositionOutOfRangeError(text)))
        return True
