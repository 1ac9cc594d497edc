"""A held partition: settles its messages, retries or dead-letters failed ones, drains, and closes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

from consumer_sdk.abc import AckTracker, Transactions
from consumer_sdk.errors import (
    ConfigurationError,
    ConsumerClosedError,
    NoTransactionsError,
    OutputError,
    PartitionLostError,
)
from consumer_sdk.log_limits import REPEATS
from consumer_sdk.options import SECONDS, OptionType
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Branch,
    Explanation,
    Headers,
    Message,
    Outcome,
    Position,
    Run,
    Tracked,
    Verdict,
    VerdictKind,
)
from consumer_sdk.records.outputs import Output
from consumer_sdk.runtime.observing.stats import Totals
from consumer_sdk.runtime.observing.timing import Histogram
from consumer_sdk.runtime.partitions.partition_state import (
    ConsumerContext,
    Load,
    MessageIndex,
    PartitionState,
    SettledOutputs,
)
from consumer_sdk.runtime.partitions.trees import TreeHolder
from consumer_sdk.trackers import QueueTracker, Reject, Retry
from consumer_sdk.trackers.outputs import OutputBook

__all__ = ["NACKED", "SETTLED", "HeldPartition", "PartitionCallbacks"]

log = logging.getLogger(__name__)

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

_Waiter: TypeAlias = tuple[int, Callable[[], int], asyncio.Future[None]]
"""A flush's number, what tells how far things are, and who waits for that."""


class SendsDeadLetters(Protocol):
    """Takes a record that is to be dead-lettered."""

    def __call__(
        self, holding: HeldPartition, index: int, message: Message, error: BaseException | str
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCallbacks:
    """What a held partition calls; one object for all partitions of a consumer.

    Attributes:
        dead_letter: takes a record that is to be dead-lettered, and settles it later.
        reschedule: told that something of a partition may be due earlier than before.
        make_trees: makes the holder of messages with trees, for the first one; None: trees are
            off, and a message is acked instead (Storm without ackers).
        body: makes a message's body of its value.
    """

    dead_letter: SendsDeadLetters
    reschedule: Callable[[HeldPartition], None]
    make_trees: Callable[[HeldPartition], TreeHolder] | None = TreeHolder
    body: Callable[[bytes | None], Any] = lambda value: value


class HeldPartition(PartitionState):
    """The runtime's state of an assignment, and the `Holder` of its messages.

    Args:
        messages: the messages of unsettled records, where somebody has to be told of them.
        own: what was seen of its partition, also in earlier assignments.
        handled: how long the handlers of its stream's records took.

    Attributes:
        ack: the tracker's bound method, because ``message.ack()`` is the hot path; with hooks,
            one that tells them; while draining, one that also wakes the drain.
        body: makes a message's body of its value.
        tree: opens a message's tree; the bound method of its trees, once there are some.
        trees: the holder of messages with trees; None as long as there are none.
    """

    __slots__ = (
        "_acks",
        "_progress",
        "_purged_retries",
        "_waiters",
        "ack",
        "body",
        "callbacks",
        "context",
        "messages",
        "tree",
        "trees",
    )

    def __init__(
        self,
        assignment: Assignment,
        tracker: AckTracker,
        context: ConsumerContext,
        callbacks: PartitionCallbacks,
        *,
        messages: MessageIndex | None = None,
        own: Totals | None = None,
        handled: Histogram | None = None,
    ) -> None:
        super().__init__(assignment, tracker, own=own or Totals(), handled=handled or Histogram())
        self.context = context
        self.callbacks = callbacks
        self.messages = messages
        self.trees: TreeHolder | None = None
        self.body = callbacks.body
        self.tree: Callable[[Message], Branch] = self._first_tree
        self._acks: AckTracker | MessageIndex | SettledOutputs = (
            tracker if messages is None else messages
        )
        self.ack: Callable[[int], bool] = self._acks.ack
        self._progress = asyncio.Event()
        self._waiters: list[_Waiter] = []
        self._purged_retries: list[int] = []
        self.note_change()

    def _first_tree(self, message: Message) -> Branch:
        if self.callbacks.make_trees is None:
            message.ack()
            return Branch.unanchored()
        self.trees = self.callbacks.make_trees(self)
        self.tree = self.trees.tree
        return self.tree(message)

    def keep_outputs(self, book: OutputBook) -> None:
        """Keeps what handlers send; before anything is fetched."""
        self.outputs = book
        self._acks = SettledOutputs(self._acks, self.tracker, book)
        self.ack = self._acks.ack

    # -- what a message calls -------------------------------------------------------------

    def send(
        self,
        message: Message,
        stream: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
    ) -> bool:
        """Keeps an output with its record, until a transaction commits both."""
        transactions = self.context.transactions
        if transactions is None:
            raise NoTransactionsError(
                f"message.send({stream!r}, …): this run has no transactions: give run(handler, "
                f"transactions=KafkaTransactions(transactional_id=…)); what is pulled has none"
            )
        if self.is_closed or self.outputs is None:
            self._count_if_closed()
            return False
        try:
            output = self._output(transactions, message, stream, value, key, headers)
        except OutputError as error:
            error.message = message
            raise
        self.context.changed[self] = None
        return self.outputs.send(message.index, message.position, message.attempt, output)

    def _output(
        self, transactions: Transactions, message: Message, stream: str, *given: Any
    ) -> Output:
        output = Output.make(stream, *given)
        transactions.check_output(output)
        if self.tracker.is_settled(message.index):
            raise OutputError(
                f"message.send({stream!r}, …): the message is settled, or its delivery has failed: send "
                f"before you settle it"
            )
        return output

    def ack_all(self, messages: Sequence[Message]) -> int:
        """Acks many messages of this holding."""
        settled = self._acks.ack_all([message.index for message in messages])
        self._moved()
        self._count_if_closed(len(messages))
        return settled

    def ack_cumulative(self, message: Message) -> bool:
        """Settles what was handed out up to ``message``."""
        if not self.context.allows_cumulative:
            raise ConfigurationError(
                "ack_cumulative() would settle records that others still process; use it on a log "
                "(a queue has no order), when pulling or in run() with ordering=Ordering.PARTITION"
            )
        before = self.tracker.retrying
        settled = self._acks.ack_cumulative(message.index)
        if self.tracker.retrying < before:
            self.context.queue.free_up_to(self, message)
        if self.trees is not None:
            self.trees.trees.acked(settled)
        self._moved()
        self._count_if_closed()
        return settled > 0

    def nack(self, message: Message, delay: float | None, reason: str) -> bool:
        """Ends the delivery as failed: the record is retried, or dead-lettered at the limit."""
        REASON.check("reason", reason, "nack")
        return self.fail(message, delay, reason)

    def reject(self, message: Message, reason: str) -> bool:
        """Sends the record to the dead letters."""
        REASON.check("reason", reason, "reject")
        return self.reject_with(message, reason)

    def extend(self, message: Message, seconds: float) -> bool:
        """Puts the ack timeout of the delivery off."""
        EXTENSION.check("seconds", seconds, "extend")
        now = self.context.clock.monotonic()
        extended = self.tracker.extend(message.index, message.attempt, now, seconds)
        self.callbacks.reschedule(self)
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
        tracked = self.tracker.track(run, self.context.clock.monotonic())
        given = len(run.messages)
        run.messages = messages = tracked.bind(run.messages, self)
        self.context.changed[self] = None
        self.fetched += tracked.count
        suppressed = given - len(messages) + len(tracked.settled)
        for totals in (self.context.totals, self.own):
            totals.fetched += tracked.count
            totals.suppressed += suppressed
        self.latest = messages[-1].timestamp if messages else self.latest
        if self.messages is not None:
            self.messages.track(messages, tracked)
        if tracked.late:
            first = next(m for m in messages if m.index in tracked.late.values())
            self.context.log.late(first, len(tracked.late), self.context.clock.monotonic())
        return tracked

    def hand_out(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages go to user code now; returns those that are still wanted."""
        wanted = self.tracker.handed_out(messages, self.context.clock.monotonic())
        if self.messages is not None:
            self.messages.replace(wanted)
        return wanted

    def tried_before(self, message: Message) -> None:
        """A record whose failures the checkpoint tells of is delivered as this one."""
        if self.messages is not None:
            self.messages.replace([message])

    def still_wants(self, message: Message) -> bool:
        """Whether to call the handler with a retry: not when it was settled as it waited."""
        if not self.hand_out([message]):
            return False
        # No ack timeout while the handler is alive.
        self.tracker.extend(message.index, message.attempt, self.context.clock.monotonic(), 0)
        return True

    def returned(self, messages: Sequence[Message]) -> None:
        """Acks messages whose handler has returned, but for those that it has settled."""
        self.redundant_acks += len(messages) - self.ack_all(messages)

    def raised(self, message: Message, error: BaseException | str) -> bool:
        """Its handler, or its tree, ended with an error: `Reject` and `Retry` choose."""
        is_refused = isinstance(error, OutputError) and error.message is message
        if is_refused or isinstance(error, Reject):
            is_rejected = self.reject_with(message, error)
            if is_refused and not is_rejected and not self.is_closed:  # nobody else tells of it
                log.warning("%r: its output is not written: %s", message, error, extra=REPEATS)
            return is_rejected
        return self.fail(message, error.delay if isinstance(error, Retry) else None, error)

    def fail(self, message: Message, delay: float | None, error: BaseException | str) -> bool:
        """A delivery failed: it is retried after a back-off, or dead-lettered at the limit."""
        index, now = message.index, self.context.clock.monotonic()
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
        if self.outputs is not None:
            self.outputs.drop(index)
        self.context.totals.failed += 1
        self.own.failed += 1
        self.context.log.failed(message, error, self.context.clock.monotonic())
        if verdict.kind is VerdictKind.RETRY:
            self._end_tree(message)
            delay = max(verdict.due - self.context.clock.monotonic(), 0.0)
            if delay <= self.context.longest_hold or not self._release(index, message):
                self.callbacks.reschedule(self)
            self.context.hooks.retried(message, error, delay)
        else:
            self.give_up(index, message, error)

    def _release(self, index: int, message: Message) -> bool:
        """Gives a record that would wait too long back to the broker."""
        if not self.tracker.release(index):
            return False
        message.index = SETTLED
        if self.messages is not None:
            self.messages.forget(index)
        self.context.queue.free(self, message)
        return True

    def forget(self, indices: Iterable[int]) -> int:
        """The broker has taken these back, of which nobody has been handed the delivery that waits.

        Returns:
            how many of them were not settled.
        """
        tracker, forgotten = self.tracker, 0
        assert isinstance(tracker, QueueTracker)  # noqa: S101 - asked by the caller
        for index in indices:
            if tracker.forget(index):
                forgotten += 1
                self.retries.pop(index, None)
                if self.messages is not None:
                    self.messages.forget(index)
        self.fetched -= forgotten  # else they would count as settled
        self._moved()
        return forgotten

    def expire(self, verdict: Verdict, index: int, message: Message) -> None:
        """The ack timeout of a delivery has passed."""
        self.context.hooks.expired(message)
        if self.outputs is not None:  # whoever has it still sends and settles nothing more
            message.index = NACKED
        self.carry_out(verdict, index, message, "the ack timeout passed")

    def give_up(self, index: int, message: Message, error: BaseException | str) -> None:
        """Sends a record that the tracker has taken out of delivery to the dead letters."""
        self._moved()
        self._end_tree(message)
        if self.messages is not None:
            self.messages.forget(index)
        if self.outputs is not None:
            self.outputs.give_up(index)
        self.callbacks.dead_letter(self, index, message, error)

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
            self.context.queue.free(self, message)
        self.give_up(index, message, error)
        return True

    def dead_lettered(
        self,
        index: int,
        message: Message,
        error: BaseException | str,
        letter: Output | None = None,
    ) -> None:
        """The record's dead letter is durable, or is an output that the record's transaction writes."""
        if self.tracker.dead_lettered(index):
            if self.outputs is not None:
                self.outputs.dead_lettered(index, message.position, letter)
            self.context.totals.dead_lettered += 1
            self.own.dead_lettered += 1
            self.context.log.dead_lettered(message, error, self.context.clock.monotonic())
            self.context.hooks.dead_lettered(message, error)
        self._moved()

    def confirm(self, flush: AckFlush, outcome: Outcome) -> None:
        """The flush is done: wakes whoever waited for it."""
        self.tracker.flushed(flush, outcome)
        self.confirmed = flush.number
        if self._waiters:
            self._wake_waiters(outcome.error)

    def _wake_waiters(self, error: Exception | None) -> None:
        waiting = []
        for target, reached, future in self._waiters:
            if reached() < target:
                waiting.append((target, reached, future))
            elif future.done():
                continue
            elif error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
                future.exception()  # nobody may be waiting any more
        self._waiters = waiting

    def note_cut(self, covered: Position | None, forgotten: int) -> None:
        """A checkpoint that was stored had a limit: see `Outcome`."""
        is_cut = covered is not None
        self.context.totals.truncated += is_cut or forgotten > 0
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
        found = self.tracker.explain(self.context.clock.monotonic())
        held_back = self.held_back
        return found if held_back is None else replace(found, held_back=held_back)

    @property
    def is_finished(self) -> bool:
        """All that was fetched is settled, and no flush is left to do."""
        tracker = self.tracker
        is_flushed = not tracker.is_dirty and self.confirmed == tracker.flush_number - 1
        return is_flushed and not tracker.unsettled

    def start_draining(self) -> None:
        """From here on each ack wakes the drain: it may be the one that the drain waits for."""
        self.is_draining = self.is_news = True
        self.ack = self._ack_while_draining

    def _ack_while_draining(self, index: int) -> bool:
        self._moved()
        return self._acks.ack(index)

    def _moved(self) -> None:
        self.context.changed[self] = None
        self._progress.set()

    @property
    def is_idle(self) -> bool:
        """Nothing is unsettled, by what was counted and has not changed since."""
        return self.counted == (0, 0, 0) and self not in self.context.changed

    def note_change(self) -> None:
        """Its load may not be what it was: the fetch loop looks at it again."""
        self.context.changed[self] = None

    def load(self) -> Load:
        """What it holds now; the context's ``changed`` has it again at the next change.

        The ack that changes it first costs a little more, and all others nothing: whoever acks
        finds the tracker's own method here again.
        """
        if self.is_closed:
            return 0, 0, 0
        tracker = self.tracker
        unsettled = tracker.unsettled
        held = 0 if self.outputs is None else self.outputs.size
        if not unsettled:
            return 0, 0, held
        if not self.is_draining:
            self.ack = self._ack_first
        return unsettled, tracker.retrying + self.blocked, tracker.unsettled_bytes + held

    def _ack_first(self, index: int) -> bool:
        self.ack = self._acks.ack
        self.context.changed[self] = None
        return self.ack(index)

    def discard_queued(self, waiting: Sequence[Message]) -> None:
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
        # Nothing is awaited between the count and `clear`: an ack that comes later sets the event again.
        # So does `close`, which ends the wait of a drain whose partition is lost: nothing is in flight then.
        while self.in_flight > 0:
            self._progress.clear()
            await self._progress.wait()

    def close(self) -> None:
        """The assignment is over: every later call is a counted no-op."""
        if self.is_closed:
            return
        settled = self.fetched - self.tracker.unsettled
        self.context.totals.settled += settled
        self.own.settled += settled
        self.context.totals.ignored += self.ignored
        self.is_closed = True
        self.tracker.close()
        self.ack, self._acks = self._ack_when_closed, self.tracker
        if self.messages is not None:
            self.messages.clear()
        if self.trees is not None:
            self.trees.close()
        if self.outputs is not None:
            self.outputs.close()
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
            self.context.totals.ignored += calls

    @property
    def ignored(self) -> int:
        """Settles that came too late or twice, while it is held."""
        return 0 if self.is_closed else self.tracker.ignored - self.redundant_acks

    def invalidate_after_fork(self) -> None:
        """In a forked child: settling is an error, since nothing here would flush it."""
        forked: Any = _Forked()
        self.tracker = self._acks = self.context = forked
        self.ack = lambda index: bool(forked.ack(index))
        self.tree = lambda _message: forked.tree
        if self.trees is not None:
            self.trees.invalidate_after_fork(forked)

    def _lost(self) -> PartitionLostError:
        return PartitionLostError(
            f"{self.assignment.partition} (epoch {self.assignment.epoch}) is no longer held; "
            f"whatever was not durable is delivered again"
        )


class _Forked:
    """The tracker and the context of a held partition in a forked child: every use is an error."""

    def __getattr__(self, name: str) -> Any:
        raise ConsumerClosedError(
            f"this message belongs to the parent process; settle it there (a forked child has no "
            f"connection to the broker): {name}"
        )
