"""What is known of a held partition, as plain data, and what the parts of a consumer share.

What happens to a partition is in `held_partition`: it settles messages, and drains.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from sortedcontainers import SortedDict

from consumer_sdk.abc import AckTracker, Clock, Transactions
from consumer_sdk.records import Assignment, Message, Partition, Position, Tracked
from consumer_sdk.runtime.hooks import NO_HOOKS, Hooks
from consumer_sdk.runtime.observing.consumer_log import ConsumerLog
from consumer_sdk.runtime.observing.snapshots import PartitionSnapshot
from consumer_sdk.runtime.observing.stats import Totals
from consumer_sdk.runtime.observing.timing import Histogram
from consumer_sdk.trackers.outputs import OutputBook

if TYPE_CHECKING:
    from consumer_sdk.runtime.partitions.held_partition import HeldPartition
    from consumer_sdk.runtime.partitions.queue import Lane, MessageQueue

__all__ = ["ConsumerContext", "Load", "MessageIndex", "PartitionState", "Pauses", "SettledOutputs"]

OVER_LAG = (
    "not fetched: it started more than max_lag behind the end; call consumer.resume(partition)"
)
PAUSED = "not fetched: paused by hand ({}); call consumer.resume(partition)"
OVERTAKEN = (
    "not fetched: the broker no longer stores the next position; out_of_range decides where to go on "
    "when what was fetched is settled"
)

Load: TypeAlias = tuple[int, int, int]
"""Unsettled records, those of them that wait for a retry or behind one, and the bytes of all."""


class Pauses:
    """Which partitions a person has paused, and why: single ones, or all but some.

    That lasts while a partition moves away and comes back.
    """

    def __init__(self) -> None:
        self._some: dict[Partition, str] = {}
        self._all: str | None = None
        self._spared: set[Partition] = set()

    def pause(self, partition: Partition | None, reason: str) -> None:
        """Pauses one, or all of now and later for None."""
        if partition is None:
            self._all = reason
            self._spared.clear()
        else:
            self._some[partition] = reason

    def resume(self, partition: Partition | None) -> None:
        """Ends the pause of one, also where all are paused; or of all for None."""
        if partition is None:
            self._all = None
            self._some.clear()
        else:
            self._some.pop(partition, None)
            if self._all is not None:
                self._spared.add(partition)

    def reason(self, partition: Partition) -> str | None:
        """Why it is paused; None if it is not."""
        return self._some.get(partition, None if partition in self._spared else self._all)

    def own_reason(self, partition: Partition) -> str | None:
        """Why it was paused by itself; None if it was not."""
        return self._some.get(partition)


@dataclass(eq=False, slots=True, kw_only=True)
class ConsumerContext:
    """What the parts of one consumer share.

    Attributes:
        clock: where time comes from.
        queue: where records wait to be handed out; a pull or `run` puts its own here.
        totals: what was seen of all partitions together.
        hooks: told what becomes of messages and partitions.
        log: the consumer's log lines and events.
        holdings: the partitions that are held.
        changed: of them, those whose load may not be what it was when the fetch loop looked last; who
            changed first is first, since a set of objects has another order in each run.
        pauses: which partitions a person has paused.
        longest_hold: seconds that a record may wait here for its next attempt; see `Capabilities`.
        allows_cumulative: records are processed in order, so that one ack may settle all before it.
        transactions: what commits what handlers send; None without.
    """

    clock: Clock
    queue: MessageQueue
    totals: Totals = field(default_factory=Totals)
    hooks: Hooks = NO_HOOKS
    log: ConsumerLog = field(default_factory=ConsumerLog)
    holdings: dict[Assignment, HeldPartition] = field(default_factory=dict)
    changed: OrderedDict[HeldPartition, None] = field(default_factory=OrderedDict)
    pauses: Pauses = field(default_factory=Pauses)
    longest_hold: float = math.inf
    allows_cumulative: bool = True
    transactions: Transactions | None = None


@dataclass(eq=False, slots=True)
class PartitionState:
    """What is known of a partition that a consumer holds; whoever learns it writes it here.

    Attributes:
        assignment: the partition and its epoch.
        tracker: which of its records are settled.

        is_paused: it is not fetched.
        is_over_budget: see `HoleBudget`.
        is_behind: it is farther behind the end than ``max_lag``, and that was said.
        is_over_lag: it started so, and waits for `Consumer.resume`.
        paused_by_hand: why a person has paused it; None if nobody has.
        is_overtaken: the broker no longer stores what comes next; a new epoch begins when all that
            was fetched is settled and durable.

        lanes: key → lane, of the records that wait in `Lanes` or are in handlers.
        retries: index → is due. Restored retries that are not due yet keep their place in
            the queues; due ones (in `Lanes`) may be settled while they wait.
        blocked: records that wait in `Lanes` behind a retry.
        due: when `Timers` looks at it next.
        blamed: position → attempt of deliveries that have blocked the event loop for a session: they
            count as failed if the assignment is lost by it.
        blockers: the same of earlier assignments, as far as it is not settled.

        is_draining: it is being revoked: nothing more is fetched or handed out.
        purged: records, taken out of the queue when the revoke began, that nobody was handed.
        is_closed: the assignment is over.
        has_ended: it was read to its end, and the store or the broker knows.

        confirmed: the number of the last flush that was answered as durable.
        is_truncated: its last flush did not hold all settled ranges.
        forgotten: so many attempts a flush did not hold, when that was said last.

        own: what was seen of its partition, also in earlier assignments.
        handled: how long the handlers of its stream's records took.
        fetched: records tracked in this assignment.
        redundant_acks: acks on a handler's return, of what the handler had settled itself.
        counted: the load that the fetch loop saw when it looked last.
        latest: the timestamp of the record fetched last, if it has one.
        lag: how far it is behind the end; None as long as nobody asked.
        seen: what was seen of it when somebody looked last.
        is_news: it has changed since.
        outputs: in a run with transactions, what handlers have sent.
    """

    assignment: Assignment
    tracker: AckTracker

    is_paused: bool = False
    is_over_budget: bool = False
    is_behind: bool = False
    is_over_lag: bool = False
    paused_by_hand: str | None = None
    is_overtaken: bool = False

    lanes: dict[object, Lane] = field(default_factory=dict)
    retries: dict[int, bool] = field(default_factory=dict)
    blocked: int = 0
    due: float = math.inf
    blamed: dict[Position, int] = field(default_factory=dict)
    blockers: Mapping[Position, int] = field(default_factory=dict)

    is_draining: bool = False
    purged: int = 0
    is_closed: bool = False
    has_ended: bool = False

    confirmed: int = 0
    is_truncated: bool = False
    forgotten: int = 0

    own: Totals = field(default_factory=Totals)
    handled: Histogram = field(default_factory=Histogram)
    fetched: int = 0
    redundant_acks: int = 0
    counted: Load = (0, 0, 0)
    latest: int | None = None
    lag: int | None = None
    seen: PartitionSnapshot | None = None
    is_news: bool = False
    outputs: OutputBook | None = None

    @property
    def held_back(self) -> str | None:
        """Why it is not fetched until somebody does something; None where nobody has to."""
        if self.is_overtaken:
            return OVERTAKEN
        if self.paused_by_hand is not None:
            return PAUSED.format(self.paused_by_hand)
        return OVER_LAG if self.is_over_lag else None


class MessageIndex:
    """Which message each unsettled record has, for whoever has to be told of what was settled.

    It stands before a tracker's acks, and tells of each message that they settle, once. Without it an
    ack is the tracker's own bound method and knows nothing but an index; it is there only where hooks,
    or a hole budget that dead-letters, ask for the messages.

    It holds what an ack can settle: neither what is on its way to the dead letters, nor a restored
    retry that nobody has been handed yet, which a cumulative ack spares.

    Args:
        tracker: settles.
        settled: told of each message.
    """

    def __init__(self, tracker: AckTracker, settled: Callable[[Message], None]) -> None:
        self._tracker = tracker
        self._settled = settled
        self._messages: SortedDict[int, Message] = SortedDict()

    def track(self, messages: Iterable[Message], tracked: Tracked) -> None:
        """Takes in what was tracked, for its first delivery in this assignment."""
        absent = {*tracked.settled, *tracked.held}
        self._messages.update((m.index, m) for m in messages if m.index not in absent)

    def replace(self, messages: Iterable[Message]) -> None:
        """Redeliveries take the place of what was tracked, or delivered before."""
        self._messages.update((m.index, m) for m in messages if m.attempt > 1)

    def get(self, index: int) -> Message | None:
        """The latest delivery of a record; None if it is not held."""
        found: Message | None = self._messages.get(index)
        return found

    def forget(self, index: int) -> None:
        """The record was taken out of delivery: its dead letter will settle it."""
        self._messages.pop(index, None)

    def clear(self) -> None:
        """Drops all messages: the assignment is over."""
        self._messages.clear()

    # -- what settles -----------------------------------------------------------------------

    def ack(self, index: int) -> bool:
        """See `AckTracker.ack`; so with the others."""
        if not self._tracker.ack(index):
            return False
        self._settled(self._messages.pop(index))
        return True

    def ack_all(self, indices: Sequence[int]) -> int:
        """One by one: each is told."""
        return sum(map(self.ack, indices))

    def ack_cumulative(self, index: int) -> int:
        """What was settled is all that is held up to ``index``."""
        settled = self._tracker.ack_cumulative(index)
        if settled:
            indices = list(self._messages.irange(maximum=index))
            for message in [self._messages.pop(at) for at in indices]:
                self._settled(message)
        return settled


class SettledOutputs:
    """Tells an `OutputBook` of each record that is settled: its outputs are written in that order.

    It stands before a tracker's acks, or a `MessageIndex`, in a run with transactions alone.
    """

    def __init__(
        self,
        acks: AckTracker | MessageIndex | SettledOutputs,
        tracker: AckTracker,
        book: OutputBook,
    ) -> None:
        self._acks = acks
        self._tracker = tracker
        self._book = book

    def ack(self, index: int) -> bool:
        """See `AckTracker.ack`; so with the others."""
        if not self._acks.ack(index):
            return False
        self._book.settled(index)
        return True

    def ack_all(self, indices: Sequence[int]) -> int:
        """One by one: an ack that comes too late settles nothing."""
        return sum(map(self.ack, indices))

    def ack_cumulative(self, index: int) -> int:
        """What was settled is found by looking at those that have sent something."""
        settled = self._acks.ack_cumulative(index)
        if settled:
            self._book.settled_up_to(index, self._tracker.is_settled)
        return settled
