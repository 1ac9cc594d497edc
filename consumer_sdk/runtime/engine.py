"""Ties the parts of a consumer together: builds them, runs them, and ends them in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from consumer_sdk.abc import AckTracker, Adapter, CheckpointStore, DeadLetters, LeaseSource
from consumer_sdk.errors import ConfigurationError, ConsumerSdkError
from consumer_sdk.records import Assignment, Kind, Message, Partition
from consumer_sdk.runtime.burial import Burial
from consumer_sdk.runtime.flusher import Flusher
from consumer_sdk.runtime.holding import Holding, Totals
from consumer_sdk.runtime.holes import HoleBudget
from consumer_sdk.runtime.hooks import NO_HOOKS, SafeHooks
from consumer_sdk.runtime.intake import DEFAULT_IN_FLIGHT, Intake
from consumer_sdk.runtime.lag_watch import LagWatch
from consumer_sdk.runtime.lanes import Lanes, Ordering
from consumer_sdk.runtime.options import Options
from consumer_sdk.runtime.ownership import Ownership
from consumer_sdk.runtime.stats import ConsumerStats
from consumer_sdk.runtime.subscriptions import (
    check,
    check_ordering,
    in_flight_of,
    make_tracker,
)
from consumer_sdk.runtime.timers import Timers
from consumer_sdk.runtime.trees import TreeHolder
from consumer_sdk.runtime.unsettled import Unsettled
from consumer_sdk.runtime.workers import Workers
from consumer_sdk.trackers import Receipts

__all__ = ["Engine"]

log = logging.getLogger(__name__)


class Engine:
    """The moving parts of one `Consumer`, in one supervised task."""

    def __init__(
        self,
        adapter: Adapter,
        store: CheckpointStore | None,
        dead_letters: DeadLetters | None,
        options: Options,
    ) -> None:
        check(adapter, store, options)
        self._adapter = adapter
        self._store = store
        self._options = options
        self._dead_letters = dead_letters or adapter.dead_letters()
        if options.gives_up_holes and self._dead_letters is None:
            raise ConfigurationError(
                "hole_policy='dead_letter' needs a place to keep what is given up: give the "
                "consumer dead_letters=…"
            )
        self._hooks = NO_HOOKS if options.hooks is None else SafeHooks(options.hooks)
        self._sink: Any = Lanes(Ordering.NONE, lambda: None)
        self._allows_cumulative = adapter.capabilities.kind is Kind.LOG
        self._end_iteration: Callable[[], None] = lambda: None
        self._supervisor: asyncio.Task[None] | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._is_leaving = False
        self._stop = asyncio.Event()
        self._is_raised = False
        self.totals = Totals()

    # -- opening --------------------------------------------------------------------------

    async def open(self) -> None:
        """Opens store, dead letters and adapter; whatever was opened is closed on an error."""
        self._may_fetch = asyncio.Event()
        options, adapter = self._options, self._adapter
        self._flusher = Flusher(adapter, self._store, options, self.totals, self._fenced)
        self._burial = Burial(adapter, options, self._dead_letters)
        self._ownership = Ownership(
            adapter,
            self._store,
            options,
            self._flusher,
            self.totals,
            make_holding=self._make_holding,
            queues=lambda: self._sink,
        )
        self._timers = Timers(options, self.holdings, lambda: self._sink)
        self._holes = HoleBudget(options, self.holdings, self.totals, lambda: self._sink)
        self._lag_watch = LagWatch(adapter, options, self.holdings)
        self._intake = Intake(
            adapter,
            options,
            self.holdings,
            self.totals,
            sink=lambda: self._sink,
            start_anew=self._ownership.start_anew,
        )
        try:
            if self._store is not None:
                await self._store.open()
            if self._dead_letters is not None:
                await self._dead_letters.open()
            await adapter.open(self._ownership, self._lease_source())
        except BaseException:
            await self._close_after_failed_open()
            raise
        self._supervisor = asyncio.create_task(self._supervise(), name="consumer_sdk")

    def _lease_source(self) -> LeaseSource | None:
        needs_leases = self._adapter.capabilities.needs_leases
        return None if self._store is None or not needs_leases else self._store.leases

    async def _close_after_failed_open(self) -> None:
        try:
            await _to_its_end(asyncio.create_task(self._close_parts()))
        except Exception:
            log.exception("closing after a failed start failed too")

    @property
    def holdings(self) -> dict[Assignment, Holding]:
        """The held assignments."""
        return self._flusher.holdings if hasattr(self, "_flusher") else {}

    def _make_holding(self, assignment: Assignment) -> Holding:
        options = self._options
        tracker = make_tracker(
            self._adapter,
            options,
            assignment,
            has_store=self._store is not None,
            wake=self._settled,
            full=self._flusher.hurry,
        )
        return Holding(
            assignment,
            tracker,
            options.clock,
            self._burial.add,
            self._timers.reschedule,
            self.totals,
            lambda holding, message: self._sink.free_up_to(holding, message),
            lambda holding, message: self._sink.free(holding, message),
            hooks=self._hooks,
            unsettled=self._unsettled(tracker),
            make_trees=self._make_trees if options.trees else None,
            allows_cumulative=self._allows_cumulative,
        )

    def _unsettled(self, tracker: AckTracker) -> Unsettled | None:
        """Only where somebody is to be told of messages: without it an ack costs less."""
        is_wanted = self._options.hooks is not None or self._options.gives_up_holes
        return Unsettled(tracker, self._hooks.settled) if is_wanted else None

    def _make_trees(self, holding: Holding) -> TreeHolder:
        options = self._options
        return TreeHolder(
            holding,
            is_timed=options.ack_timeout is not None,
            is_naming=options.name_branches,
        )

    def settle(self, receipts: Receipts) -> int:
        """Applies what became of branches elsewhere; returns how many changed something."""
        held = [h.trees.trees for h in self.holdings.values() if h.trees is not None]
        trackers = {trees.id: trees for trees in held}
        settled = 0
        for anchor, receipt in receipts.items():
            tracker = trackers.get(anchor.table)
            if tracker is None:
                self.totals.ignored += 1
            else:
                settled += tracker.settle(anchor, receipt)
        return settled

    def _settled(self) -> None:
        """A tracker has turned dirty: there is something to flush, and perhaps room."""
        self._flusher.wake()
        self._intake.nudge()

    def _fenced(self, holding: Holding, error: Exception | None) -> None:
        self._ownership.fenced(holding, error)

    # -- running --------------------------------------------------------------------------

    def allow(self, in_flight: int, ordering: Ordering) -> None:
        """Settings that follow from how the consumer is run."""
        check_ordering(self._adapter, ordering)
        self._allows_cumulative = ordering is Ordering.PARTITION
        self._wanted_in_flight = in_flight_of(self._adapter, self._options, in_flight)

    def start(self, sink: Any, end_iteration: Callable[[], None]) -> None:
        """Records go to ``sink`` from here on."""
        self._sink = sink
        self._end_iteration = end_iteration
        wanted = getattr(self, "_wanted_in_flight", DEFAULT_IN_FLIGHT)
        self._intake.max_in_flight = self._options.max_in_flight or wanted
        for holding in self.holdings.values():
            holding.allows_cumulative = self._allows_cumulative
        if self._stop.is_set():
            end_iteration()
        self._may_fetch.set()

    async def _supervise(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for work in (
                    self._adapter.run,
                    self._flusher.run,
                    self._flusher.run_commits,
                    self._timers.run,
                    self._burial.run,
                    self._holes.run,
                    self._lag_watch.run,
                ):
                    tasks.create_task(_until_cancelled(work))
                self._fetching = tasks.create_task(_until_cancelled(self._fetch))
        except BaseExceptionGroup as group:
            self.fail(_first(group))

    async def _fetch(self) -> None:
        await self._may_fetch.wait()
        await self._intake.run()

    def fail(self, error: BaseException) -> None:
        """Something cannot go on: the consumer stops, and says why."""
        if self._failure is None and not self._is_leaving:
            self._failure = error
        self.stop()

    def raise_failure(self) -> None:
        """Raises what made the consumer stop by itself, if anything."""
        if self._failure is not None:
            self._is_raised = True
            raise self._failure

    def stop(self) -> None:
        """Wakes whoever waits for the end."""
        self._stop.set()
        self._end_iteration()

    async def stopped(self) -> None:
        """Waits until `stop` or a failure."""
        await self._stop.wait()

    def nudge(self) -> None:
        """There may be room for another fetch."""
        self._intake.nudge()

    def hand_out(self, holding: Holding, messages: list[Message]) -> list[Message]:
        """The messages go to the user now; returns those that are still wanted."""
        wanted = holding.hand_out(messages)
        if self._options.ack_timeout is not None:
            self._timers.reschedule()
        return list(wanted)

    async def flush(self) -> None:
        """Returns when everything settled so far was flushed."""
        self._flusher.force()
        waiting = [asyncio.ensure_future(h.flushed()) for h in list(self.holdings.values())]
        # The supervisor's end, not `stop`: until then the flusher goes on.
        ends = () if self._supervisor is None else (self._supervisor,)
        try:
            for flushed in waiting:
                await asyncio.wait({flushed, *ends}, return_when=asyncio.FIRST_COMPLETED)
                if not flushed.done():
                    self.raise_failure()
                await flushed
        finally:
            for task in waiting:
                task.cancel()

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
        await self._ownership.drain(held, deadline=deadline)
        if workers is not None:
            # Before the last flush: a handler may settle its record when it is cancelled.
            await workers.cancel(budget)
        self._ownership.give_up(held)
        deadline = max(deadline, clock.monotonic() + budget * 0.2)
        await self._ownership.revoked(held, deadline=deadline)

    async def _close_parts(self) -> None:
        self._is_leaving = True  # what the parts say from here on is the sound of leaving
        errors: list[Exception] = []
        steps = [self._adapter.aclose, self._end_supervisor]
        steps += [part.aclose for part in (self._dead_letters, self._store) if part is not None]
        for step in steps:
            try:
                await _until_cancelled(step)
            except Exception as error:  # noqa: BLE001 - the first one is raised below
                errors.append(error)
        if errors:
            raise errors[0]

    async def _end_supervisor(self) -> None:
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.wait({self._supervisor})

    # -- looking --------------------------------------------------------------------------

    def resume(self, partition: Partition) -> bool:
        """Fetches a partition that is paused for its lag; False if it is not."""
        return self._ownership.resume(partition)

    async def lag(self) -> Mapping[Partition, int | None]:
        """The adapter's lag of each held partition."""
        lags = await self._adapter.lag(list(self.holdings))
        return {assignment.partition: lag for assignment, lag in lags.items()}

    def stats(self) -> ConsumerStats:
        """A snapshot."""
        held, totals = list(self.holdings.values()), self.totals
        in_flight = sum(h.tracker.unsettled for h in held)
        return ConsumerStats(
            partitions=tuple(h.assignment.partition for h in held),
            paused=tuple(h.assignment.partition for h in held if h.is_paused),
            over_hole_budget=tuple(h.assignment.partition for h in held if h.is_over_budget),
            over_max_lag=tuple(h.assignment.partition for h in held if h.is_over_lag),
            fetched=totals.fetched,
            suppressed=totals.suppressed,
            settled=totals.settled + sum(h.fetched - h.tracker.unsettled for h in held),
            in_flight=in_flight,
            in_flight_bytes=sum(h.tracker.unsettled_bytes for h in held),
            retrying=sum(h.tracker.retrying for h in held),
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
        task = asyncio.current_task()
        if task is not None and task.cancelling():
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
