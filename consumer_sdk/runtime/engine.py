"""Ties the parts of a consumer together: builds them, runs them, and ends them in order."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from consumer_sdk.abc import (
    AckTracker,
    Adapter,
    CheckpointStore,
    DeadLetters,
    LeaseSource,
    Transactions,
)
from consumer_sdk.errors import ConfigurationError, ConsumerClosedError, ConsumerSdkError
from consumer_sdk.log_limits import LimitedLoggers
from consumer_sdk.records import Assignment, Kind, Message, Partition
from consumer_sdk.runtime.checkpoint_cleanup import CheckpointCleanup
from consumer_sdk.runtime.compatibility import (
    check,
    check_ordering,
    in_flight_of,
    make_tracker,
)
from consumer_sdk.runtime.dispatch.decoding import body_reader
from consumer_sdk.runtime.dispatch.handlers import is_cancelled
from consumer_sdk.runtime.dispatch.lanes import Lanes, Ordering
from consumer_sdk.runtime.dispatch.loop_watch import LoopWatch
from consumer_sdk.runtime.dispatch.workers import Workers
from consumer_sdk.runtime.fetch_loop import DEFAULT_IN_FLIGHT, FetchLoop
from consumer_sdk.runtime.flusher import Flusher
from consumer_sdk.runtime.health_watch import HealthWatch, LagWatch
from consumer_sdk.runtime.hooks import NO_HOOKS, SafeHooks
from consumer_sdk.runtime.observing.consumer_log import ConsumerLog, error_text
from consumer_sdk.runtime.observing.events import EventKind, Events
from consumer_sdk.runtime.observing.health import HealthInputs, State
from consumer_sdk.runtime.observing.stats import ConsumerStats, PartitionTotals
from consumer_sdk.runtime.observing.timing import Timing
from consumer_sdk.runtime.options import Options
from consumer_sdk.runtime.partitions.assignments import Assignments
from consumer_sdk.runtime.partitions.dead_lettering import DeadLetterSender
from consumer_sdk.runtime.partitions.gap_budget import HoleBudget
from consumer_sdk.runtime.partitions.held_partition import HeldPartition, PartitionCallbacks
from consumer_sdk.runtime.partitions.partition_state import ConsumerContext, MessageIndex
from consumer_sdk.runtime.partitions.queue import MessageQueue
from consumer_sdk.runtime.partitions.timers import Timers
from consumer_sdk.runtime.partitions.trees import TreeHolder
from consumer_sdk.trackers import Receipts
from consumer_sdk.trackers.outputs import OutputBook

__all__ = ["Engine"]

log = logging.getLogger(__name__)

TOGETHER = 1000
"""Partitions that are asked before the event loop has its turn."""
OUTAGES = LimitedLoggers("consumer_sdk", burst=3, repeats_alone=True)
"""Limits our own repeats while a broker is away; held by each consumer that is open."""


class Engine:
    """The parts of one `Consumer` that run, in one supervised task."""

    def __init__(
        self,
        adapter: Adapter,
        store: CheckpointStore | None,
        dead_letters: DeadLetters | None,
        options: Options,
    ) -> None:
        check(adapter, store, options)
        self.adapter = adapter
        self._store = store
        self._options = options
        self._dead_letters = dead_letters or adapter.dead_letters()
        if options.gives_up_holes and self._dead_letters is None:
            raise ConfigurationError(
                "hole_policy='dead_letter' needs a place to keep what is given up: give the "
                "consumer dead_letters=…"
            )
        # Its life: opened, run, stopped, closed.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening: asyncio.Timeout | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._may_fetch = asyncio.Event()
        self._stop = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None
        self._is_leaving = self._is_closed = False
        self._transactions: Transactions | None = None
        self._failure: BaseException | None = None
        self._is_raised = False
        # How it is run.
        self.workers: Workers | None = None
        self._wanted_in_flight = DEFAULT_IN_FLIGHT
        self._allows_cumulative = adapter.capabilities.kind is Kind.LOG
        # What is seen of it.
        self.timing = Timing()
        self.events = Events(options.clock.wall)
        self.looked_up_to = 0
        self.context = self._make_context()
        self.holdings = self.context.holdings
        self.partition_totals = PartitionTotals(lambda: {a.partition for a in self.holdings})
        # Its parts. The flusher and the assignments call each other.
        self.watch = LoopWatch(adapter, self.context)
        self._flusher = Flusher(
            adapter,
            store,
            options,
            self.context,
            fenced=lambda holding, error: self._assignments.fenced(holding, error),
            finished=lambda holding: self._assignments.start_anew(holding),
        )
        self._assignments = Assignments(
            adapter,
            store,
            options,
            self._flusher,
            self.context,
            make_holding=self._make_holding,
        )
        self._fetch_loop = FetchLoop(
            adapter,
            options,
            self.context,
            overtaken=self._assignments.start_anew_when_finished,
            has_dead_letters=self._dead_letters is not None,
        )
        self._dead_letter_sender = DeadLetterSender(adapter, options, self._dead_letters)
        self._timers = Timers(self.context)
        self._callbacks = PartitionCallbacks(
            dead_letter=self._dead_letter_sender.add,
            reschedule=self._timers.reschedule,
            make_trees=self._make_trees if options.trees else None,
            body=body_reader(options.decode),
        )
        self._holes = HoleBudget(
            options, self.context, unsettled=lambda: self._fetch_loop.unsettled
        )
        self._health = HealthWatch(self.context, self._fetch_loop)
        self.lag_watch = LagWatch(adapter, options, self.holdings)
        self._cleanup = CheckpointCleanup(adapter, store)

    def _make_context(self) -> ConsumerContext:
        """Until somebody pulls or runs, nothing is fetched, and the queue stays empty."""
        hooks = NO_HOOKS if self._options.hooks is None else SafeHooks(self._options.hooks)
        return ConsumerContext(
            clock=self._options.clock,
            queue=Lanes(Ordering.NONE),
            hooks=hooks,
            log=ConsumerLog(self.events, self.timing, hooks),
            allows_cumulative=self._allows_cumulative,
        )

    # -- opening --------------------------------------------------------------------------

    async def open(self) -> bool:
        """Opens store, dead letters and adapter; whatever was opened is closed on an error.

        Returns:
            False if `stop` has ended it.
        """
        self._loop = asyncio.get_running_loop()
        OUTAGES.hold(self)
        opening = asyncio.timeout(None)
        try:
            async with opening:
                self._opening = opening
                await self._open_parts()
        except BaseException as error:
            await self._close_after_failed_open()
            if opening.expired() and isinstance(error, Exception):
                return False  # whatever the cancelled part has made of it
            if isinstance(error, Exception):
                self._failure = error
            raise
        finally:
            self._opening = None
        self._supervisor = asyncio.create_task(self._supervise(), name="consumer_sdk")
        self._log_opened()
        return True

    def _log_opened(self) -> None:
        adapter, store = self.adapter, self._store
        kept = "no store" if store is None else type(store).__name__
        held = len(self.holdings)
        log.info("opened: %s, group %r, %s; %d held", adapter.broker, adapter.group, kept, held)
        if not self._flusher.is_durable:
            log.warning(
                "%s: without a group no position is kept, and each start of this consumer begins "
                "at start= again: give the adapter group=…, and the consumer store=… where the "
                "broker keeps no positions, or see that this is what you want",
                adapter.broker,
            )

    async def _open_parts(self) -> None:
        if self._store is not None:
            await self._store.open()
        if self._dead_letters is not None:
            await self._dead_letters.open()
        await self.adapter.open(self._assignments, self._lease_source())
        self.context.longest_hold = self.adapter.capabilities.longest_hold

    def _lease_source(self) -> LeaseSource | None:
        needs_leases = self.adapter.capabilities.needs_leases
        return None if self._store is None or not needs_leases else self._store.leases

    async def _close_after_failed_open(self) -> None:
        try:
            await _to_its_end(asyncio.create_task(self._close_parts()))
        except Exception:
            log.exception("closing after a failed start failed too")

    def _make_holding(self, assignment: Assignment) -> HeldPartition:
        options = self._options
        tracker = make_tracker(
            self.adapter,
            options,
            assignment,
            has_store=self._store is not None,
            wake=lambda: self._from_loop(self._settled, holding),
            full=lambda: self._from_loop(self._flusher.hurry, holding),
        )
        holding = HeldPartition(
            assignment,
            tracker,
            self.context,
            self._callbacks,
            messages=self._message_index(tracker),
            own=self.partition_totals.of(assignment.partition),
            handled=self.timing.handler(assignment.partition.stream),
        )
        return holding

    def _message_index(self, tracker: AckTracker) -> MessageIndex | None:
        """Only where somebody is to be told of messages: without it an ack costs less."""
        is_wanted = self._options.hooks is not None or self._options.gives_up_holes
        return MessageIndex(tracker, self.context.hooks.settled) if is_wanted else None

    def _make_trees(self, holding: HeldPartition) -> TreeHolder:
        options = self._options
        return TreeHolder(
            holding,
            is_timed=options.ack_timeout is not None,
            is_naming=options.name_branches,
        )

    def settle(self, receipts: Receipts) -> int:
        """Applies the receipts of branches from other processes; returns how many changed something."""
        held = [h.trees.trees for h in self.holdings.values() if h.trees is not None]
        trackers = {trees.id: trees for trees in held}
        settled = 0
        for anchor, receipt in receipts.items():
            tracker = trackers.get(anchor.table)
            if tracker is None:
                self.context.totals.ignored += 1
            else:
                settled += tracker.settle(anchor, receipt)
        return settled

    def _from_loop(self, notice: Callable[[HeldPartition], None], holding: HeldPartition) -> None:
        """Passes a tracker's notice on; the ack that caused it may come from another thread.

        The notice wakes asyncio's objects, which would break in that thread, and the flusher would wait
        for ever. So the event loop passes it on, and the caller is told. The record is settled.

        Raises:
            ConsumerClosedError: this is another thread, or event loop.
        """
        if asyncio._get_running_loop() is self._loop:  # noqa: SLF001 - get_running_loop raises
            notice(holding)
            return
        assert self._loop is not None  # noqa: S101 - there are no records before it is opened
        self._loop.call_soon_threadsafe(notice, holding)
        raise ConsumerClosedError(
            "messages are settled in the consumer's event loop; from another thread: "
            "loop.call_soon_threadsafe(message.ack)"
        )

    def _settled(self, holding: HeldPartition) -> None:
        """Its tracker has turned dirty: there is something to flush, and perhaps room."""
        self._flusher.wake(holding)
        self._fetch_loop.nudge()

    # -- running --------------------------------------------------------------------------

    def allow(self, in_flight: int, ordering: Ordering) -> None:
        """Settings that follow from how the consumer is run."""
        check_ordering(self.adapter, ordering)
        self._allows_cumulative = ordering is Ordering.PARTITION
        self._wanted_in_flight = in_flight_of(self.adapter, self._options, in_flight)

    async def use(self, transactions: Transactions) -> bool:
        """Makes each flush a transaction. Called before records are fetched.

        Returns:
            False if `stop` has ended it.

        Raises:
            ConsumerSdkError: they cannot be opened.
        """
        self._transactions = transactions
        if not await self._unless_stopped(transactions.open(self.adapter)):
            return False
        # Nothing is awaited from here on: a partition that is assigned later has a book from the beginning.
        now, wall = self.monotonic(), self.wall()
        for holding in self.holdings.values():
            if not holding.is_closed:
                holding.keep_outputs(OutputBook(holding.tracker.checkpoint(now, wall)))
        self.context.transactions = self._flusher.transactions = transactions
        self._fetch_loop.filled = self._flusher.force  # what is written takes no room any more
        if self._dead_letters is not None:
            self._dead_letter_sender.within = transactions.letters_of(self._dead_letters)
        return True

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> bool:
        """Whether it has ended before somebody called `stop`."""
        task, stop = asyncio.ensure_future(work), asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_done = task.done()
            task.cancel()
            stop.cancel()
            await asyncio.wait({task, stop})
        if is_done:
            task.result()
        return is_done

    def start(self, queue: MessageQueue) -> None:
        """Starts fetching; records go to ``queue``."""
        self.context.queue = queue
        self.context.allows_cumulative = self._allows_cumulative
        queue.set_gated(is_gated=self.watch.is_gated)
        self._fetch_loop.max_in_flight = self.in_flight_limit
        if self._stop.is_set():
            queue.close()
        self._may_fetch.set()

    async def _supervise(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for work in (
                    self.adapter.run,
                    self._flusher.run,
                    self._flusher.run_commits,
                    self._timers.run,
                    self._dead_letter_sender.run,
                    self._holes.run,
                    self.lag_watch.run,
                    self._health.run,
                    self.watch.run,
                    self._cleanup.run,
                ):
                    tasks.create_task(_until_cancelled(work))
                self._fetching = tasks.create_task(_until_cancelled(self._fetch))
        except BaseExceptionGroup as group:
            self.fail(_first(group))

    async def _fetch(self) -> None:
        await self._may_fetch.wait()
        await self._fetch_loop.run()

    def fail(self, error: BaseException) -> None:
        """Stops the consumer after an error, and logs the reason."""
        if self._failure is None and not self._is_leaving:
            self._failure = error
        self.stop()

    def raise_failure(self) -> None:
        """Raises what made the consumer stop by itself, if anything."""
        if self._failure is not None:
            self._is_raised = True
            raise self._failure

    def stop(self) -> None:
        """Wakes all who wait for the end; ends an opening."""
        self._stop.set()
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.reschedule(asyncio.get_running_loop().time())
        self.context.queue.close()

    async def stopped(self) -> None:
        """Waits until `stop` or a failure."""
        await self._stop.wait()

    def nudge(self) -> None:
        """There may be room for another fetch."""
        self._fetch_loop.nudge()

    def hand_out(self, holding: HeldPartition, messages: list[Message]) -> list[Message]:
        """Marks messages as handed out to the user; returns those that are still wanted."""
        wanted = holding.hand_out(messages)
        if self._options.ack_timeout is not None:
            self._timers.reschedule(holding)
        return list(wanted)

    async def flush(self) -> None:
        """Returns when everything settled so far was flushed."""
        self._flusher.force()
        waiting = await self._until_flushed()
        # The supervisor's end, not `stop`: until then the flusher goes on.
        ends = () if self._supervisor is None else (self._supervisor,)
        try:
            for flushed in waiting:
                if not flushed.done():
                    await asyncio.wait({flushed, *ends}, return_when=asyncio.FIRST_COMPLETED)
                if not flushed.done():
                    self.raise_failure()
                await flushed
        finally:
            for future in waiting:
                future.cancel()

    async def _until_flushed(self) -> list[asyncio.Future[None]]:
        waiting = []
        for number, holding in enumerate(list(self.holdings.values()), 1):
            if not holding.is_closed and (each := holding.until_flushed()):
                waiting.append(each)
            if number % TOGETHER == 0:
                await asyncio.sleep(0)
        return waiting

    # -- closing --------------------------------------------------------------------------

    async def close(self, workers: Workers | None) -> None:
        """Stop, drain, cancel, flush, release, close: each step even if one before fails."""
        self._closing = asyncio.create_task(self._close(workers), name="consumer_sdk close")
        await _to_its_end(self._closing)
        if self._failure is not None and not self._is_raised:
            self.raise_failure()

    async def closed(self) -> None:
        """Waits for the `close` that somebody else has begun, if any."""
        if self._closing is not None and not self._closing.done():
            await asyncio.wait({self._closing})

    async def _close(self, workers: Workers | None) -> None:
        try:
            await self._drain(workers)
        finally:
            await self._close_parts()

    async def _drain(self, workers: Workers | None) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait({self._fetching})
        clock, budget, held = self._options.clock, self._options.drain_timeout, list(self.holdings)
        deadline = clock.monotonic() + budget
        # 1. Handlers have most of the time to end. 2. Those that still run are cancelled, and may settle
        # their record as they end. 3. What is still unsettled then is given up: the revoke does not wait for
        # it. 4. The last flush has all that was settled until now, so it comes last.
        await self._assignments.drain(held, deadline=deadline)
        if workers is not None:
            await workers.cancel(budget)
        self._assignments.give_up(held)
        deadline = max(deadline, clock.monotonic() + budget * 0.2)
        await self._assignments.revoked(held, deadline=deadline)

    async def _close_parts(self) -> None:
        # Errors that parts report from here on come from closing, and are no failure of the consumer.
        self._is_leaving = self._is_closed = True
        errors: list[Exception] = []
        steps = [self.adapter.aclose, self._end_supervisor]
        parts = self._transactions, self._dead_letters, self._store
        steps += [part.aclose for part in parts if part is not None]
        for step in steps:  # each, even if one before it fails
            try:
                await _until_cancelled(step)
            except Exception as error:  # noqa: BLE001 - the first one is raised below
                errors.append(error)
        OUTAGES.release(self)
        if self._supervisor is not None:
            self._log_closed()
        if errors:
            raise errors[0]

    def _log_closed(self) -> None:
        self.context.log.report(math.inf)
        now = self.stats()
        log.info(
            "closed: %s, group %r; %d fetched, %d settled, %d failed deliveries, %d dead-lettered",
            *(self.adapter.broker, self.adapter.group),
            *(now.fetched, now.settled, now.failed, now.dead_lettered),
        )

    async def _end_supervisor(self) -> None:
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.wait({self._supervisor})

    # -- looking --------------------------------------------------------------------------

    def pause(self, partition: Partition | None, reason: str) -> None:
        """Stops fetching one, or all, until `resume`."""
        self.context.pauses.pause(partition, reason)
        self._said("paused", partition, reason)
        self._assignments.pause()

    def resume(self, partition: Partition | None) -> bool:
        """Fetches again partitions that were paused by hand or for their lag; False if there were none."""
        self.context.pauses.resume(partition)
        has_resumed = self._assignments.resume(partition)
        if has_resumed:
            self._said("resumed", partition, "by hand")
        return has_resumed

    def _said(self, kind: EventKind, partition: Partition | None, why: str) -> None:
        held = [a.partition for a in self.holdings if partition in (None, a.partition)]
        self.events.add(kind, f"{partition or 'all partitions'}: {why}", held)
        log.info("%s %s: %s", kind, partition or "all partitions", why)

    @property
    def state(self) -> State:
        """What the consumer is doing."""
        if self._failure is not None:
            return "failed"
        if self._is_closed:
            return "closed"
        if self._stop.is_set():
            return "stopping"
        if self._supervisor is not None:
            return "running"
        return "new" if self._loop is None else "opening"

    @property
    def is_at_work(self) -> bool:
        """Its tasks run."""
        return self._supervisor is not None

    def health_inputs(self, stalled: Sequence[tuple[Partition, float]]) -> HealthInputs:
        """What tells whether it works.

        Args:
            stalled: partitions that one record has pinned for too long, and for how long.
        """
        return HealthInputs(
            state=self.state,
            failure=None if self._failure is None else error_text(self._failure),
            turned=max(self.time() - self._health.turned, 0.0) if self.is_at_work else 0.0,
            is_gated=self.watch.is_gated,
            stalled=stalled,
        )

    def time(self) -> float:
        """The loop's time; 0 before there is one, and after it was closed."""
        loop = self._loop
        return 0.0 if loop is None or loop.is_closed() else loop.time()

    def monotonic(self) -> float:
        """The time that the trackers know, in seconds."""
        return self._options.clock.monotonic()

    def wall(self) -> float:
        """Seconds since the epoch."""
        return self._options.clock.wall()

    @property
    def loop_lag(self) -> float:
        """How many seconds the event loop turned too late."""
        return self._health.late

    @property
    def is_full(self) -> bool:
        """No more is fetched until something is settled."""
        return self._fetch_loop.is_full

    @property
    def in_flight_limit(self) -> int:
        """Unsettled records at which fetching stops."""
        return self._options.max_in_flight or self._wanted_in_flight

    def letter_of(self, holding: HeldPartition, index: int) -> Message | None:
        """The message of a record that waits for its dead letter."""
        return self._dead_letter_sender.find(holding, index)

    async def lag(self) -> Mapping[Partition, int | None]:
        """The adapter's lag of each held partition."""
        lags = await self.adapter.lag(list(self.holdings))
        return {assignment.partition: lag for assignment, lag in lags.items()}

    def stats(self) -> ConsumerStats:
        """What `Consumer.stats` returns."""
        held, totals = list(self.holdings.values()), self.context.totals
        busy = [h for h in held if not h.is_idle]
        in_flight = sum(h.tracker.unsettled for h in busy)
        return ConsumerStats(
            partitions=tuple(h.assignment.partition for h in held),
            paused=tuple(h.assignment.partition for h in held if h.is_paused),
            over_hole_budget=tuple(h.assignment.partition for h in held if h.is_over_budget),
            over_max_lag=tuple(h.assignment.partition for h in held if h.is_over_lag),
            fetched=totals.fetched,
            suppressed=totals.suppressed,
            settled=totals.settled + sum(h.fetched for h in held) - in_flight,
            in_flight=in_flight,
            in_flight_bytes=sum(map(_bytes_of, busy)),
            retrying=sum(h.tracker.retrying for h in busy),
            redelivered=totals.redelivered,
            failed=totals.failed,
            dead_lettered=totals.dead_lettered,
            ignored=totals.ignored + sum(h.ignored for h in held),
            lost=totals.lost,
            resets=totals.resets,
            hole_alarms=totals.hole_alarms,
            flushes=totals.flushes,
            truncated=totals.truncated,
            fetch_errors=totals.fetch_errors,
        )


def _bytes_of(holding: HeldPartition) -> int:
    """Of records that are not settled, and of outputs that are not committed."""
    outputs = holding.outputs
    return holding.tracker.unsettled_bytes + (0 if outputs is None else outputs.size)


async def _to_its_end(task: asyncio.Task[None]) -> None:
    """Waits for ``task``, whoever is cancelled meanwhile; the cancellation is raised then."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from (None if task.cancelled() else task.exception())
    task.result()


async def _until_cancelled(work: Callable[[], Awaitable[None]]) -> None:
    """Turns a CancelledError that nobody asked for into an error.

    A task group ignores a child that ends by one: all would hang. A close would skip the rest.
    """
    try:
        await work()
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        raise ConsumerSdkError(
            f"{work.__qualname__} ended by a cancellation that nobody asked for; the adapter or "
            f"store let one of its own out"
        ) from error


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
