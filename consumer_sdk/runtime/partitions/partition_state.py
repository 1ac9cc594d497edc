"""One held assignment: what settles its messages, and who waits for that to be durable."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from consumer_sdk.abc import AckTracker, Clock
from consumer_sdk.errors import ConfigurationError, ConsumerClosedError, PartitionLostError
from consumer_sdk.log_limits import REPEATS
from consumer_sdk.options import SECONDS, SECONDS_OR_0, OptionType, optional
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Branch,
    Explanation,
    Message,
    Outcome,
    Position,
    Run,
    Tracked,
    Verdict,
    VerdictKind,
)
from consumer_sdk.runtime.hooks import NO_HOOKS, Hooks
from consumer_sdk.runtime.observing.consumer_log import ConsumerLog
from consumer_sdk.runtime.observing.snapshots import PartitionSnapshot
from consumer_sdk.runtime.observing.stats import Totals
from consumer_sdk.runtime.observing.timing import Histogram
from consumer_sdk.runtime.partitions.message_index import Unsettled
from consumer_sdk.runtime.partitions.trees import TreeHolder
from consumer_sdk.trackers import Reject, Retry

if TYPE_CHECKING:
    from consumer_sdk.runtime.dispatch.queue import MessageQueue

__all__ = ["NACKED", "SETTLED", "Bury", "ConsumerContext", "Holding", "Load", "Totals"]

log = logging.getLogger(__name__)

DELAY = optional(SECONDS_OR_0)
REASON = OptionType(
    "a text, such as 'no such customer'", lambda value: isinstance(value, str | BaseException)
)
"""An error was always taken too, and says more."""
EXTENSION = replace(SECONDS, wanted="finite seconds above 0")

NACKED = -1
"""The index of a message that was nacked: this delivery is over, and another will come."""
SETTLED = -2
"""The index of a message with which it is over for good: it goes to the dead letters, or its
retry is back, or will not come, while the handler that nacked it goes on."""

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

_Waiter: TypeAlias = tuple[int, Callable[[], int], asyncio.Future[None]]
"""A flush's number, what tells how far things are, and who waits for that."""


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
        allows_cumulative: records are processed in order, so that one ack may settle all before it.
    """

    clock: Clock
    queue: MessageQueue
    totals: Totals = field(default_factory=Totals)
    hooks: Hooks = NO_HOOKS
    log: ConsumerLog = field(default_factory=ConsumerLog)
    holdings: dict[Assignment, Holding] = field(default_factory=dict)
    changed: OrderedDict[Holding, None] = field(default_factory=OrderedDict)
    allows_cumulative: bool = True


class Bury(Protocol):
    """Takes a record that is to be dead-lettered."""

    def __call__(
        self, holding: Holding, index: int, message: Message, error: BaseException | str
    ) -> None: ...


@dataclass(eq=False, slots=True)
class Holding:
    """The runtime's side of an assignment, and the `Holder` of its messages.

    Attributes:
        ack: the tracker's bound method, because ``message.ack()`` is the hot path; with hooks,
            one that tells them; while draining, one that also wakes the drain.
        is_paused: it is not fetched.
        is_over_budget: see `HoleBudget`.
        is_behind: it is farther behind the end than ``max_lag``, and that was said.
        is_over_lag: it started so, and waits for `Consumer.resume`.
        paused_by_hand: why a person has paused it; None if nobody has.
        own: what was seen of its partition, also in earlier assignments.
        handled: how long the handlers of its stream's records took.
        latest: the timestamp of the record fetched last, if it has one.
        lag: how far it is behind the end; None as long as nobody asked.
        seen: what was seen of it when somebody looked last.
        is_news: it has changed since.
        has_ended: it was read to its end, and the store or the broker knows.
        is_overtaken: the broker no longer stores what comes next; a new epoch begins when all that
            was fetched is settled and durable.
        hooks: told what becomes of messages.
        log: where failed deliveries are logged.
        unsettled: the messages of unsettled records, where somebody has to be told of them.
        body: makes a message's body of its value.
        tree: opens a message's tree; the bound method of its trees, once there are some.
        make_trees: makes the holder of messages with trees, for the first one; None: trees are
            off, and a message is acked instead (Storm without ackers).
        retries_settled: told of a message up to which retries were settled before their time.
        retry_given_up: told of a message whose retry was given up before its time.
        lanes: what `Lanes` keeps for this holding.
        retries: index → is due. Restored retries that are not due yet keep their place in
            the queues; due ones (in `Lanes`) may be settled while they wait.
        blocked: records that wait in `Lanes` behind a retry.
        purged: records, taken out of the queues when the revoke began, that nobody was handed.
        confirmed: the number of the last flush that was answered as durable.
        moot: acks on a handler's return, of what the handler had settled itself.
        is_truncated: its last flush did not hold all settled ranges.
        forgotten: so many attempts a flush did not hold, when that was said last.
        changed: the holdings whose load may not be what it was when `Intake` looked last; who changed
            first is first, since a set of objects has another order in each run.
        counted: the load that it saw then.
        due: when `Timers` looks at it next.
        blamed: position → attempt of deliveries that have blocked the event loop for a session: they
            count as failed if the assignment is lost by it.
        blockers: the same of earlier assignments, as far as it is not settled.
    """

    assignment: Assignment
    tracker: AckTracker
    clock: Clock
    bury: Bury
    reschedule: Callable[[Holding], None]
    totals: Totals
    retries_settled: Callable[[Holding, Message], None] = lambda _holding, _message: None
    retry_given_up: Callable[[Holding, Message], None] = lambda _holding, _message: None
    hooks: Hooks = NO_HOOKS
    log: ConsumerLog = field(default_factory=ConsumerLog)
    unsettled: Unsettled | None = None
    make_trees: Callable[[Holding], TreeHolder] | None = TreeHolder
    trees: TreeHolder | None = None
    allows_cumulative: bool = True
    body: Callable[[bytes | None], Any] = lambda value: value
    is_paused: bool = False
    is_over_budget: bool = False
    is_behind: bool = False
    has_ended: bool = False
    is_over_lag: bool = False
    paused_by_hand: str | None = None
    own: Totals = field(default_factory=Totals)
    handled: Histogram = field(default_factory=Histogram)
    latest: int | None = None
    lag: int | None = None
    seen: PartitionSnapshot | None = None
    is_news: bool = False
    is_overtaken: bool = False
    is_draining: bool = False
    is_closed: bool = False
    blocked: int = 0
    purged: int = 0
    confirmed: int = 0
    fetched: int = 0
    moot: int = 0
    is_truncated: bool = False
    forgotten: int = 0
    changed: OrderedDict[Holding, None] = field(default_factory=OrderedDict)
    counted: Load = field(default=(0, 0, 0))
    due: float = math.inf
    blamed: dict[Position, int] = field(default_factory=dict)
    blockers: Mapping[Position, int] = field(default_factory=dict)
    lanes: dict[Any, Any] = field(default_factory=dict)
    retries: dict[int, bool] = field(default_factory=dict)
    ack: Callable[[int], bool] = field(init=False)
    tree: Callable[[Message], Branch] = field(init=False)
    _acks: AckTracker | Unsettled = field(init=False)
    _progress: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _waiters: list[_Waiter] = field(init=False, default_factory=list)
    _purged_retries: list[int] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._acks = self.tracker if self.unsettled is None else self.unsettled
        self.ack = self._acks.ack
        self.tree = self._first_tree
        self.changed[self] = None

    def _first_tree(self, message: Message) -> Branch:
        if self.make_trees is None:
            message.ack()
            return Branch.unanchored()
        self.trees = self.make_trees(self)
        self.tree = self.trees.tree
        return self.tree(message)

    # -- what a message calls -------------------------------------------------------------

    def ack_all(self, messages: Sequence[Message]) -> int:
        """Acks many messages of this holding."""
        settled = self._acks.ack_all([message.index for message in messages])
        self._moved()
        self._count_if_closed(len(messages))
        return settled

    def ack_cumulative(self, message: Message) -> bool:
        """Settles what was handed out up to ``message``."""
        if not self.allows_cumulative:
            raise ConfigurationError(
                "ack_cumulative() would settle records that others still process; use it on a log "
                "(a queue has no order), when pulling or in run() with ordering=Ordering.PARTITION"
            )
        before = self.tracker.retrying
        settled = self._acks.ack_cumulative(message.index)
        if self.tracker.retrying < before:
            self.retries_settled(self, message)
        if self.trees is not None:
            self.trees.trees.acked(settled)
        self._moved()
        self._count_if_closed()
        return settled > 0

    def nack(self, message: Message, delay: float | None, reason: str) -> bool:
        """Counts a failed delivery."""
        DELAY.check("delay", delay, "nack")
        REASON.check("reason", reason, "nack")
        return self.fail(message, delay, reason)

    def reject(self, message: Message, reason: str) -> bool:
        """Sends the record to the dead letters."""
        REASON.check("reason", reason, "reject")
        return self.reject_with(message, reason)

    def extend(self, message: Message, seconds: float) -> bool:
        """Moves the ack timeout."""
        EXTENSION.check("seconds", seconds, "extend")
        now = self.clock.monotonic()
        extended = self.tracker.extend(message.index, message.attempt, now, seconds)
        self.reschedule(self)
        return extended

    async def durable(self) -> None:
        """Waits until everything settled so far is durable."""
        if (waiter := self._waiter(lambda: self.tracker.durable_number)) is not None:
            await waiter

    def until_flushed(self) -> asyncio.Future[None] | None:
        """Done when everything settled so far was flushed; None if it was.

        Unlike `durable`, not for a hole to close where the broker keeps a position alone, so that
        what is settled above the hole would be delivered again after a crash.
        """
        return self._waiter(lambda: self.confirmed)

    def _waiter(self, reached: Callable[[], int]) -> asyncio.Future[None] | None:
        if self.is_closed:
            raise self._lost()
        target = self.tracker.flush_number - (not self.tracker.is_dirty)
        if reached() >= target:
            return None
        future = asyncio.get_running_loop().create_future()
        self._waiters.append((target, reached, future))
        return future

    # -- what the runtime calls -----------------------------------------------------------

    def track(self, run: Run) -> Tracked:
        """Tracks a run and binds its messages to this holding."""
        tracked = self.tracker.track(run, self.clock.monotonic())
        given = len(run.messages)
        run.messages = messages = tracked.bind(run.messages, self)
        self.changed[self] = None
        self.fetched += tracked.count
        suppressed = given - len(messages) + len(tracked.settled)
        for totals in (self.totals, self.own):
            totals.fetched += tracked.count
            totals.suppressed += suppressed
        self.latest = messages[-1].timestamp if messages else self.latest
        if self.unsettled is not None:
            self.unsettled.track(messages, tracked)
        if tracked.late:
            first = next(m for m in messages if m.index in tracked.late.values())
            self.log.late(first, len(tracked.late), self.clock.monotonic())
        return tracked

    def hand_out(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages go to user code now; returns those that are still wanted."""
        wanted = self.tracker.handed_out(messages, self.clock.monotonic())
        if self.unsettled is not None:
            self.unsettled.replace(wanted)
        return wanted

    def tried_before(self, message: Message) -> None:
        """A record whose failures the checkpoint tells of is delivered as this one."""
        if self.unsettled is not None:
            self.unsettled.replace([message])

    def still_wants(self, message: Message) -> bool:
        """Whether to call the handler with a retry: not when it was settled as it waited."""
        if not self.hand_out([message]):
            return False
        # No ack timeout while the handler is alive.
        self.tracker.extend(message.index, message.attempt, self.clock.monotonic(), 0)
        return True

    def returned(self, messages: Sequence[Message]) -> None:
        """Their handler has returned."""
        self.moot += len(messages) - self.ack_all(messages)

    def raised(self, message: Message, error: BaseException | str) -> bool:
        """Its handler, or its tree, ended with an error: `Reject` and `Retry` choose."""
        if isinstance(error, Reject):
            return self.reject_with(message, error)
        return self.fail(message, error.delay if isinstance(error, Retry) else None, error)

    def fail(self, message: Message, delay: float | None, error: BaseException | str) -> bool:
        """A delivery failed: it is retried after a back-off, or dead-lettered at the limit."""
        index, now = message.index, self.clock.monotonic()
        verdict = self.tracker.nack(index, message.attempt, now, delay, message)
        if verdict.kind is VerdictKind.IGNORED:
            self._count_if_closed()
            return False
        message.index = NACKED if verdict.kind is VerdictKind.RETRY else SETTLED
        self.carry_out(verdict, index, message, error)
        return True

    def carry_out(
        self, verdict: Verdict, index: int, message: Message, error: BaseException | str
    ) -> None:
        """Does what the tracker decided on a failed delivery."""
        self._moved()
        self.totals.failed += 1
        self.own.failed += 1
        self.log.failed(message, error, self.clock.monotonic())
        if verdict.kind is VerdictKind.RETRY:
            self._end_tree(message)
            self.reschedule(self)
            delay = max(verdict.due - self.clock.monotonic(), 0.0)
            self.hooks.retried(message, error, delay)
        else:
            self.give_up(index, message, error)

    def expire(self, verdict: Verdict, index: int, message: Message) -> None:
        """The ack timeout of a delivery has passed."""
        self.hooks.expired(message)
        self.carry_out(verdict, index, message, "the ack timeout passed")

    def give_up(self, index: int, message: Message, error: BaseException | str) -> None:
        """Sends a record that the tracker has taken out of delivery to the dead letters."""
        self._moved()
        self._end_tree(message)
        if self.unsettled is not None:
            self.unsettled.forget(index)
        self.bury(self, index, message, error)

    def _end_tree(self, message: Message) -> None:
        if self.trees is not None and message.holder is self.trees:
            self.trees.release(message)

    def reject_with(self, message: Message, error: BaseException | str) -> bool:
        """Takes a record out of delivery because it can never be processed."""
        index = message.index
        if not self.tracker.reject(index, message.attempt):
            self._count_if_closed()
            return False
        message.index = SETTLED
        self.give_up(index, message, error)
        return True

    def take_out(self, index: int, message: Message, error: BaseException | str) -> bool:
        """Gives a record up, whether it is in delivery or waits for a retry.

        Args:
            message: its last delivery, which may be in a handler: what that says is too late.
        """
        retrying = self.tracker.retrying
        if not self.tracker.reject(index, None):
            return False
        if self.tracker.retrying < retrying:
            self.retry_given_up(self, message)
        self.give_up(index, message, error)
        return True

    def dead_lettered(self, index: int, message: Message, error: BaseException | str) -> None:
        """The record's dead letter is durable."""
        if self.tracker.dead_lettered(index):
            self.totals.dead_lettered += 1
            self.own.dead_lettered += 1
            self.log.dead_lettered(message, error, self.clock.monotonic())
            self.hooks.dead_lettered(message, error)
        self._moved()

    def confirm(self, flush: AckFlush, outcome: Outcome) -> None:
        """The flush is durable: wakes whoever waited for it."""
        self.tracker.flushed(flush, outcome)
        self.confirmed = flush.number
        if self._waiters:
            self._wake_waiters()

    def _wake_waiters(self) -> None:
        waiting = []
        for target, reached, future in self._waiters:
            if reached() < target:
                waiting.append((target, reached, future))
            elif not future.done():
                future.set_result(None)
        self._waiters = waiting

    def note_cut(self, covered: Position | None, forgotten: int) -> None:
        """A checkpoint that was stored had a limit: see `Outcome`."""
        is_cut = covered is not None
        self.totals.truncated += is_cut or forgotten > 0
        if is_cut and not self.is_truncated:
            log.warning(
                "%s has more settled ranges than its checkpoint may hold: what is settled after %s "
                "is delivered again after a restart, until the holes below are settled (see "
                "consumer.explain())",
                *(self.assignment.partition, covered),
            )
        self.is_truncated = is_cut
        if forgotten and forgotten >= 2 * self.forgotten:
            is_again, self.forgotten = self.forgotten > 0, forgotten
            log.warning(
                "%s has more failing records than its checkpoint may hold: the attempts of %d are "
                "not kept now and count anew after a restart; give the consumer a store that holds "
                "more, or end the failures (see consumer.explain()); said again when they are "
                "twice as many",
                *(self.assignment.partition, forgotten),
                extra=REPEATS if is_again else None,
            )

    def explain(self) -> Explanation:
        """What pins its position, and what holds it back."""
        found = self.tracker.explain(self.clock.monotonic())
        held_back = self.held_back
        return found if held_back is None else replace(found, held_back=held_back)

    @property
    def held_back(self) -> str | None:
        """Why it is not fetched until somebody does something; None where nobody has to."""
        if self.is_overtaken:
            return OVERTAKEN
        if self.paused_by_hand is not None:
            return PAUSED.format(self.paused_by_hand)
        return OVER_LAG if self.is_over_lag else None

    @property
    def is_finished(self) -> bool:
        """All that was fetched is settled, and no flush is left to do."""
        tracker = self.tracker
        is_flushed = not tracker.is_dirty and self.confirmed == tracker.flush_number - 1
        return is_flushed and not tracker.unsettled

    def start_draining(self) -> None:
        """From here on every ack may be the one that the drain waits for."""
        self.is_draining = self.is_news = True
        self.ack = self._ack_while_draining

    def _ack_while_draining(self, index: int) -> bool:
        self._moved()
        return self._acks.ack(index)

    def _moved(self) -> None:
        self.changed[self] = None
        self._progress.set()

    @property
    def is_idle(self) -> bool:
        """Nothing is unsettled, by what was counted and has not changed since."""
        return self.counted == (0, 0, 0) and self not in self.changed

    def load(self) -> Load:
        """What it holds now; `changed` has it again at the next change.

        The ack that changes it first costs a little more, and all others nothing: whoever acks
        finds the tracker's own method here again.
        """
        if self.is_closed:
            return 0, 0, 0
        tracker = self.tracker
        unsettled = tracker.unsettled
        if not unsettled:
            return 0, 0, 0
        if not self.is_draining:
            self.ack = self._ack_first
        return unsettled, tracker.retrying + self.blocked, tracker.unsettled_bytes

    def _ack_first(self, index: int) -> bool:
        self.ack = self._acks.ack
        self.changed[self] = None
        return self.ack(index)

    def withdraw(self, waiting: Sequence[Message]) -> None:
        """These will not be handed out; a retry may yet be settled by who had it before."""
        retries = [message.index for message in waiting if message.attempt > 1]
        self._purged_retries += retries
        self.purged += len(waiting) - len(retries)
        self._moved()

    @property
    def in_flight(self) -> int:
        """Records handed out, or on their way to the dead letters, and not settled."""
        tracker = self.tracker
        retries = sum(not tracker.is_settled(index) for index in self._purged_retries)
        return tracker.unsettled - tracker.retrying - self.purged - retries

    async def drained(self) -> None:
        """Waits until nothing is in flight. Cancellation: changes nothing."""
        while not self.is_closed and self.in_flight > 0:
            self._progress.clear()
            await self._progress.wait()

    def close(self) -> None:
        """The assignment is over: every later call is a counted no-op."""
        if self.is_closed:
            return
        settled = self.fetched - self.tracker.unsettled
        self.totals.settled += settled
        self.own.settled += settled
        self.totals.ignored += self.ignored
        self.is_closed = True
        self.tracker.close()
        self.ack, self._acks = self._ack_when_closed, self.tracker
        if self.unsettled is not None:
            self.unsettled.clear()
        if self.trees is not None:
            self.trees.close()
        self.lanes, self.retries = {}, {}
        self._moved()
        for _, _, future in self._waiters:
            if not future.done():
                future.set_exception(self._lost())
                future.exception()  # nobody may be waiting any more
        self._waiters = []

    def _ack_when_closed(self, _index: int) -> bool:
        self._count_if_closed()
        return False

    def _count_if_closed(self, calls: int = 1) -> None:
        """From here on nobody reads what the tracker counts."""
        if self.is_closed:
            self.totals.ignored += calls

    @property
    def ignored(self) -> int:
        """Settles that came too late or twice, while it is held."""
        return 0 if self.is_closed else self.tracker.ignored - self.moot

    def forbid(self) -> None:
        """In a forked child: settling is an error, since nothing here would flush it."""
        forked: Any = _Forked()
        self.tracker = self._acks = self.clock = forked
        self.ack = lambda index: bool(forked.ack(index))
        self.tree = lambda _message: forked.tree
        if self.trees is not None:
            self.trees.forbid(forked)

    def _lost(self) -> PartitionLostError:
        return PartitionLostError(
            f"{self.assignment.partition} (epoch {self.assignment.epoch}) is no longer held; "
            f"whatever was not durable is delivered again"
        )


class _Forked:
    """The tracker and the clock of a holding in a forked child: every use is an error."""

    def __getattr__(self, name: str) -> Any:
        raise ConsumerClosedError(
            f"this message belongs to the parent process; settle it there (a forked child has no "
            f"connection to the broker): {name}"
        )
