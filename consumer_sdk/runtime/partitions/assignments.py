"""Opens the partitions that the adapter assigns; drains, flushes and closes those that it revokes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from consumer_sdk.abc import Adapter, AssignmentOwner, CheckpointStore
from consumer_sdk.errors import StoreError, TransientAdapterError, TransientStoreError
from consumer_sdk.log_limits import REPEATS
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Checkpoint,
    Kind,
    OutcomeKind,
    Partition,
    Position,
    Start,
    StartPoint,
)
from consumer_sdk.runtime.compatibility import check_start
from consumer_sdk.runtime.flusher import Flusher
from consumer_sdk.runtime.options import Options
from consumer_sdk.runtime.partitions.held_partition import HeldPartition
from consumer_sdk.runtime.partitions.partition_state import ConsumerContext
from consumer_sdk.runtime.starts.decide import choose, decide
from consumer_sdk.runtime.starts.inputs import Decision, StartInputs
from consumer_sdk.runtime.starts.lookup import StartLookup
from consumer_sdk.trackers import QueueTracker
from consumer_sdk.trackers.outputs import OutputBook

__all__ = ["Assignments"]

log = logging.getLogger(__name__)

TOGETHER = 500
"""Partitions that are drained, or closed, before the event loop has its turn."""
FLUSH_RETRY = 0.05
"""Seconds between the tries of a last flush."""


class _Grant(NamedTuple):
    """What was known of an assignment, what that led to, and who holds it."""

    inputs: StartInputs
    decision: Decision
    holding: HeldPartition


class Assignments(AssignmentOwner):
    """Grants, drains and drops the holdings of one consumer.

    Args:
        make_holding: builds the held partition, with its tracker, for a granted assignment.
        context: what is held, where its records wait, and who is told what comes and goes.
    """

    __slots__ = (
        "_adapter",
        "_closed",
        "_context",
        "_flusher",
        "_is_to_sweep",
        "_log",
        "_lookup",
        "_make_holding",
        "_options",
        "_overtaken",
        "_resumed",
        "_said",
        "_store",
        "_totals",
        "_tried",
        "holdings",
    )

    def __init__(
        self,
        adapter: Adapter,
        store: CheckpointStore | None,
        options: Options,
        flusher: Flusher,
        context: ConsumerContext,
        *,
        make_holding: Callable[[Assignment], HeldPartition],
    ) -> None:
        self._context = context
        self._log = context.log
        self._adapter = adapter
        self._store = store
        self._options = options
        self._flusher = flusher
        self._totals = context.totals
        self._make_holding = make_holding
        self._lookup = StartLookup(adapter, store, options)
        self._closed: list[Assignment] = []
        self._is_to_sweep = False
        self._resumed: set[Partition] = set()
        # Attempts that no commit tells of, by partition and identity of the stream.
        self._tried: dict[tuple[Partition, str | None], dict[Position, int]] = {}
        self._said: dict[Partition, Decision] = {}  # of starts that are not durable yet
        # Where partitions were that retention has overtaken, if nobody else keeps that.
        self._overtaken: dict[Partition, Checkpoint] = {}
        self.holdings = context.holdings

    # -- assigned -------------------------------------------------------------------------

    async def assigned(self, assignments: Sequence[Assignment]) -> Mapping[Assignment, Start]:
        try:
            grants = await self._start(assignments)
        except BaseException:
            self._drop(assignments)
            # 1. The store grants its claims. 2. The broker does not answer, so nothing is decided and
            # nothing held. 3. The adapter tries again, with new epochs. The old claims would stay in the
            # store's memory for ever; so they are forgotten as those of closed partitions are.
            self._closed = list(dict.fromkeys([*self._closed, *assignments]))
            raise
        return self._granted({grant.inputs.assignment: grant for grant in grants})

    async def _start(self, assignments: Sequence[Assignment]) -> list[_Grant]:
        if self._adapter.capabilities.kind is Kind.QUEUE:
            await self._forget_closed()
            inputs = [StartInputs(assignment=assignment) for assignment in assignments]
            decisions = await self._go_on(assignments)
        else:
            check_start(self._adapter, self._store, self._options)
            await self._forget_closed()
            found = list(map(self._with_overtaken, await self._lookup.ask(assignments)))
            inputs = [replace(f, is_resumed=f.assignment.partition in self._resumed) for f in found]
            decisions = [self._decide(each) for each in inputs]
        grants = list(map(self._grant, inputs, decisions))
        await self._make_durable(grants)
        taken_over = [g for g in grants if self._is_to_take_over(g.inputs)]
        again = [self._grant_again(g) for g in taken_over if not g.holding.is_closed]
        await self._make_durable(again)
        return [*grants, *again]

    async def _go_on(self, assignments: Sequence[Assignment]) -> list[Decision]:
        """A queue is read where the broker's subscription stands; a store adds the attempts."""
        attempts = self._flusher.attempts
        found = {} if attempts is None else await attempts.load(assignments)
        return [Decision(StartPoint.BROKER, found.get(a, Checkpoint())) for a in assignments]

    def _granted(self, grants: Mapping[Assignment, _Grant]) -> dict[Assignment, Start]:
        """Counts and tells those that are still held; returns where the adapter is to seek."""
        # 1. `_grant` makes a partition ours to lose. 2. Its start is being made durable. 3. The store
        # answers that another owner has claimed it, or the adapter says that it is lost: either closes
        # it. The adapter, which waits for this answer, must not fetch for it.
        held = {a: grant for a, grant in grants.items() if not grant.holding.is_closed}
        for assignment, grant in held.items():
            self._said.pop(assignment.partition, None)
            self._overtaken.pop(assignment.partition, None)
            grant.holding.own.assigned += 1
            if not grant.decision.is_behind:
                self._resumed.discard(assignment.partition)
        self._log.assigned(_partitions(held), len(self.holdings), self._options.clock.monotonic())
        return {assignment: grant.decision.start for assignment, grant in held.items()}

    def _decide(self, inputs: StartInputs) -> Decision:
        if self._is_to_take_over(inputs):
            decision = replace(choose(inputs, self._options), is_pin=True)
        else:
            decision = decide(inputs, self._options)
        if decision.reasons:
            self._announce(inputs.assignment.partition, decision)
        return decision

    def _is_to_take_over(self, inputs: StartInputs) -> bool:
        """What was written without the store's knowledge: the position as it is comes first.

        When store and broker agree on it, it is held against the log. Killed at any moment in
        between, the next start does not take a decision that was durable for another reset.
        """
        return inputs.is_unmarked and self._flusher.tells_broker

    def _grant_again(self, grant: _Grant) -> _Grant:
        inputs = grant.inputs.after(grant.decision)
        grant.holding.close()
        return self._grant(inputs, self._decide(inputs))

    def _grant(self, inputs: StartInputs, decision: Decision) -> _Grant:
        assignment = inputs.assignment
        holding = self._make_holding(assignment)
        clock = self._options.clock
        checkpoint = self._with_tried(holding, decision.checkpoint)
        holding.tracker.restore(
            checkpoint, clock.monotonic(), clock.wall(), durable=not decision.is_pin
        )
        if self._context.transactions is not None:
            holding.keep_outputs(OutputBook(checkpoint))
        self.holdings[assignment] = holding
        holding.is_behind = decision.is_behind
        holding.has_ended = decision.start is StartPoint.ENDED
        is_paused = self._options.lag_policy == "pause" and not inputs.is_resumed
        if decision.is_behind and is_paused:
            holding.is_over_lag = True
        holding.paused_by_hand = self._context.pauses.reason(assignment.partition)
        if holding.held_back is not None:
            holding.is_paused = True
            self._adapter.pause(assignment)
        return _Grant(inputs, decision, holding)

    async def _make_durable(self, grants: Sequence[_Grant]) -> None:
        """Before a record is read: what was decided just now is not decided again.

        First the store, then the broker. Killed between the two, the next start finds a foreign
        position that is the store's own start, which is no reset; and tells the broker again.
        """
        await self._make_pins_durable([g.holding for g in grants if g.decision.is_pin])
        if self._flusher.tells_broker:
            for grant in grants:
                self._tell(grant)
            await self._mark_as_ours([g for g in grants if self._is_to_take_over(g.inputs)])

    async def _make_pins_durable(self, pins: Sequence[HeldPartition]) -> None:
        """A start that moves is written before a record is read: a restart leaves no gap."""
        if not pins or not self._flusher.is_durable:
            return
        await self._flusher.flush(pins, force=True)
        for holding in pins:
            if holding.tracker.is_dirty:
                raise TransientStoreError(
                    f"{holding.assignment.partition}: the start position could not be stored"
                )

    def _tell(self, grant: _Grant) -> None:
        """Tells the broker the store's position, where a crash came between the save and the commit.

        Else the broker's lag tools would be wrong until the next ack.
        """
        inputs, ours = grant.inputs, grant.decision.checkpoint
        there = inputs.committed and inputs.committed.checkpoint.start
        is_behind = ours.start is not None and (there is None or there < ours.start)
        is_pin = grant.decision.is_pin  # its flush has told the broker
        if is_behind and not (is_pin or inputs.is_unmarked):
            self._flusher.tell(AckFlush(inputs.assignment, 0, ours))

    async def _mark_as_ours(self, foreign: Sequence[_Grant]) -> None:
        """Writes the position that another program has set as ours: else the next start honours it again."""
        flushes = [AckFlush(g.inputs.assignment, 0, g.decision.checkpoint) for g in foreign]
        outcomes = await self._flusher.tell_now(flushes) if flushes else []
        for flush, outcome in zip(flushes, outcomes, strict=True):
            if outcome.kind is not OutcomeKind.DURABLE:
                raise TransientAdapterError(
                    f"{flush.assignment.partition}: the broker could not be told that the position "
                    f"which another program has set was taken over: {outcome.error!r}"
                )

    def _announce(self, partition: Partition, decision: Decision) -> None:
        """Logs and counts a decision before it is durable.

        A start that is tried again may find its decision durable, and has nothing to say then. If it
        is decided again, the last decision counts.
        """
        before = self._said.get(partition, Decision(decision.start))
        for reason in decision.reasons:
            if reason not in before.reasons:
                log.warning("%s", reason)
        self._totals.lost += decision.lost - before.lost
        if decision.is_reset and not before.is_reset:
            self._totals.resets += 1
            self._log.events.add("reset", "; ".join(decision.reasons), [partition])
        reasons = (*before.reasons, *decision.reasons)
        is_reset = decision.is_reset or before.is_reset
        self._said[partition] = replace(decision, is_reset=is_reset, reasons=reasons)

    def pause(self) -> None:
        """Stops fetching partitions that a person has just paused."""
        for holding in self.holdings.values():
            holding.paused_by_hand = self._context.pauses.reason(holding.assignment.partition)
            if holding.paused_by_hand is not None and not holding.is_paused:
                holding.is_paused = True
                self._adapter.pause(holding.assignment)
            holding.note_change()

    def resume(self, partition: Partition | None) -> bool:
        """Fetches again partitions that were paused by hand or for their lag, now and when they are granted again."""
        held = [h for h in self.holdings.values() if partition in (None, h.assignment.partition)]
        paused = [h for h in held if h.is_over_lag or h.paused_by_hand is not None]
        for holding in paused:
            if holding.is_over_lag:
                self._resumed.add(holding.assignment.partition)
            holding.is_over_lag, holding.paused_by_hand = False, None
            holding.note_change()
        return bool(paused)

    # -- revoked, lost, fenced ------------------------------------------------------------

    async def revoked(self, assignments: Sequence[Assignment], *, deadline: float) -> None:
        holdings = self._held(assignments)
        self._stop_handing_out(holdings[:TOGETHER])
        try:
            await _uncancelled(self._drain_and_flush(holdings, deadline))
        except Exception:
            log.exception("the last flush of revoked partitions failed; they are redelivered")
        finally:
            # 1. The drain waits for handlers. 2. The session ends, and the adapter calls `lost`, which
            # closes and tells at once; the drain of what is closed is over. So what is closed by now was
            # lost, and is not revoked as well.
            await _uncancelled(self._close_in_turns(holdings))
            with suppress(StoreError):
                await _uncancelled(self._forget_closed())

    def _tell_revoked(self, holdings: Sequence[HeldPartition]) -> None:
        gone, now = _told(holdings), self._options.clock.monotonic()
        for holding in gone:
            holding.own.revoked += 1
        self._log.revoked([h.assignment.partition for h in gone], len(self.holdings), now)

    async def drain(self, assignments: Sequence[Assignment], *, deadline: float) -> None:
        """Waits until no record is in flight, or most of the time is up. The partitions stay held."""
        await self._drain(self._held(assignments), deadline)

    def give_up(self, assignments: Sequence[Assignment]) -> None:
        """No handler works on the records in flight any more, so `revoked` need not wait for them."""
        holdings = self._held(assignments)
        self._stop_handing_out(holdings)
        for holding in holdings:
            holding.purged += holding.in_flight

    def _held(self, assignments: Sequence[Assignment]) -> list[HeldPartition]:
        return [self.holdings[a] for a in assignments if a in self.holdings]

    def _stop_handing_out(self, holdings: Sequence[HeldPartition]) -> None:
        # A fetch may be on its way: 1. it was sent; 2. the queue is emptied here; 3. it brings records.
        # The fetch loop drops those, since it sees `is_draining`, and timers leave due retries where
        # they are. Nothing is awaited between the purge and `start_draining`.
        begun = [holding for holding in holdings if not holding.is_draining]
        for holding, waiting in self._context.queue.purge(begun).items():
            holding.start_draining()
            holding.discard_queued(waiting)

    async def _drain_and_flush(self, holdings: Sequence[HeldPartition], deadline: float) -> None:
        await self._drain(holdings, deadline)
        budget = max(deadline - self._options.clock.monotonic(), 0.001)
        try:
            async with asyncio.timeout(budget):
                await self._flush_to_the_end(holdings)
        except TimeoutError:
            log.warning("the last flush of revoked partitions timed out; they are redelivered")

    async def _drain(self, holdings: Sequence[HeldPartition], deadline: float) -> None:
        for at in range(0, len(holdings), TOGETHER):
            if at:
                await asyncio.sleep(0)
            self._stop_handing_out(holdings[at : at + TOGETHER])
        budget = max((deadline - self._options.clock.monotonic()) * 0.8, 0.0)
        try:
            async with asyncio.timeout(budget):
                for holding in holdings:
                    await holding.drained()
        except TimeoutError:
            busy = {str(h.assignment.partition): h.in_flight for h in holdings if h.in_flight > 0}
            log.warning("drain ended with records in flight, to be redelivered: %s", busy)

    async def _flush_to_the_end(self, holdings: Sequence[HeldPartition]) -> None:
        # 1. A flush takes what is settled so far. 2. While it is awaited, a handler that still runs
        # settles its record, or the store answers RETRY. 3. The tracker is dirty again. So it is flushed
        # until nothing is left, and the deadline ends it. What is lost meanwhile is closed, and so not dirty.
        while True:
            await self._flusher.flush(holdings, force=True)
            if not any(h.tracker.is_dirty for h in holdings):
                await self._flusher.commit_pending()
                return
            await asyncio.sleep(FLUSH_RETRY)

    def lost(self, assignments: Sequence[Assignment]) -> None:
        self._tell_lost(self._drop(assignments))

    def lapsed(self, assignment: Assignment, positions: Collection[Position]) -> None:
        holding = self.holdings.get(assignment)
        if holding is None or holding.is_draining or not isinstance(holding.tracker, QueueTracker):
            return
        gone, queue = set(positions), self._context.queue
        waiting = queue.purge([holding])[holding]
        kept = [message for message in waiting if message.position not in gone]
        lapsed = [message.index for message in waiting if message.position in gone]
        lapsed += [at for each in gone if (at := holding.tracker.retry_at(each)) is not None]
        forgotten = holding.forget(lapsed)
        if kept:
            queue.put(holding, kept)
        if forgotten:
            log.warning(
                "%s: the broker has taken %d records back before they were handled: they come again, here or at "
                "another consumer",
                *(assignment.partition, forgotten),
                extra=REPEATS,
            )

    def _tell_lost(self, holdings: Sequence[HeldPartition]) -> None:
        gone, held, now = _told(holdings), len(self.holdings), self._options.clock.monotonic()
        for holding in gone:
            holding.own.revoked += holding.has_ended
            holding.own.taken += not holding.has_ended
        self._log.ended([h.assignment.partition for h in gone if h.has_ended], held, now)
        self._log.lost([h.assignment.partition for h in gone if not h.has_ended], held, now)

    def _drop(self, assignments: Sequence[Assignment]) -> list[HeldPartition]:
        holdings = self._held(assignments)
        self._close(holdings)
        return holdings

    def fenced(self, holding: HeldPartition, error: Exception | None) -> None:
        """Ends a partition whose writes the store or the broker refuses: it has another owner, or is gone."""
        reason = error or "another owner has taken over"
        partition = holding.assignment.partition
        log.warning("%s may not be flushed any more: %s", partition, reason)
        self._log.events.add("fenced", str(reason), [partition])
        self._close([holding])
        self._tell_lost([holding])
        self._adapter.drop(holding.assignment)

    def start_anew(self, holding: HeldPartition) -> None:
        """Ends the epoch, whose records are all durable. If the partition still belongs to this consumer, it is granted again."""
        if not self._flusher.is_durable:
            self._overtaken[holding.assignment.partition] = self._checkpoint(holding)
        self._close([holding])
        self._tell_revoked([holding])
        self._adapter.drop(holding.assignment)

    def start_anew_when_finished(self, holding: HeldPartition) -> None:
        """Ends the epoch when all fetched records, which the broker no longer stores, are durable.

        Retries and dead letters too. If another owner takes the partition before, the epoch ends then.
        """
        holding.is_overtaken = holding.is_paused = True
        if self._checkpoint(holding).start is None:  # the next decision has nothing to count from
            self._totals.lost += 1
        if holding.is_finished:
            self.start_anew(holding)
        else:
            log.warning(
                "%s: the position is decided anew when %d records in hand are settled and durable",
                *(holding.assignment.partition, holding.tracker.unsettled),
            )

    def _with_overtaken(self, inputs: StartInputs) -> StartInputs:
        """Without a store and a group nobody else knows where the last epoch ended."""
        # 1. A consumer without a group begins at the end. 2. Retention overtakes it, and a new epoch begins.
        # 3. If nothing were known, it would begin at the end again: what is stored would be passed in silence.
        known = self._overtaken.get(inputs.assignment.partition)
        return inputs if known is None else replace(inputs, stored=known)

    async def _forget_closed(self) -> None:
        """The store drops the claims of what is over."""
        # 1. A save of the old epoch is on its way. 2. The partition is lost, and granted to us anew. 3. The
        # save arrives late. Without its claim it is FENCED, and does not move the new epoch back. So this
        # comes before each claim. An assignment that is closed during the call is of the next one.
        closed, self._closed = self._closed, []
        if self._store is not None and closed:
            await self._store.forget(closed)

    def _remember(self, holding: HeldPartition) -> None:
        """Keeps in this process which deliveries have blocked the event loop for a session."""
        # 1. A handler blocks the loop. 2. The session ends, and others have the partition. 3. The failed
        # attempt cannot be flushed: this member is fenced. 4. The partition comes back, and the record as
        # delivery 1, for ever. So the attempts are remembered here, and added to the next checkpoint.
        if holding.blamed:
            self._totals.failed += len(holding.blamed)
            self._tried.setdefault(self._log_of(holding), {}).update(holding.blamed)

    def _with_tried(self, holding: HeldPartition, checkpoint: Checkpoint) -> Checkpoint:
        """What is not settled has failed at least as often as is remembered here."""
        if not self._tried:
            return checkpoint
        key = self._log_of(holding)
        holding.blockers = tried = {
            position: failures
            for position, failures in self._tried.pop(key, {}).items()
            if not (checkpoint.start is not None and position < checkpoint.start)
            and not checkpoint.is_settled(position)
        }
        if not tried:
            return checkpoint
        self._tried[key] = tried
        known, wall = checkpoint.attempts, self._options.clock.wall()
        attempts = {p: max(known.get(p, (0, wall)), (n, wall)) for p, n in tried.items()}
        return replace(checkpoint, attempts={**known, **attempts})

    def _log_of(self, holding: HeldPartition) -> tuple[Partition, str | None]:
        """What positions are of: the partition of a stream that is made again is another log."""
        return holding.assignment.partition, self._checkpoint(holding).identity

    def _checkpoint(self, holding: HeldPartition) -> Checkpoint:
        clock = self._options.clock
        return holding.tracker.checkpoint(clock.monotonic(), clock.wall())

    async def _close_in_turns(self, holdings: Sequence[HeldPartition]) -> None:
        """Closes and tells; the event loop has its turn after each five hundred."""
        closed: list[HeldPartition] = []
        for at in range(0, len(holdings), TOGETHER):
            closed += self._close(holdings[at : at + TOGETHER])
            await asyncio.sleep(0)
        self._tell_revoked(closed)

    def _close(self, holdings: Sequence[HeldPartition]) -> list[HeldPartition]:
        """At once: nothing of theirs is handed out or flushed from here on.

        What waits for them is taken out later, once for all that are closed in this turn of the
        event loop: many may be, one by one, and there is as much to look through for each.

        Returns:
            those that were not closed before.
        """
        open_ones = [holding for holding in holdings if not holding.is_closed]
        for holding in open_ones:
            if not holding.is_draining:  # else nothing waits for it
                self._sweep_soon()
            self._remember(holding)
            holding.close()
            self._closed.append(holding.assignment)
        for holding in holdings:
            self._flusher.forget(holding.assignment)
            self.holdings.pop(holding.assignment, None)
        # Handlers are cancelled once: 1. `lost` closes, and cancels them; 2. they clean up, which may
        # await; 3. the adapter calls `revoked` or `lost` again for the same. That closes nothing more.
        if open_ones:
            self._context.queue.abandon()
        return open_ones

    def _sweep_soon(self) -> None:
        if not self._is_to_sweep:
            self._is_to_sweep = True
            asyncio.get_running_loop().call_soon(self._sweep)

    def _sweep(self) -> None:
        self._is_to_sweep = False
        _free(self._context.queue.sweep())


def _free(gone: list[object]) -> None:
    """Gives the memory back in parts: of many records that takes long."""
    del gone[-TOGETHER:]
    if gone:
        asyncio.get_running_loop().call_soon(_free, gone)


def _told(holdings: Iterable[HeldPartition]) -> list[HeldPartition]:
    """Those of which it was said that they had come, and not yet that they are over."""
    # 1. `_grant` makes a partition ours. 2. Its start is being made durable. 3. It is lost, or the
    # consumer closes. Nobody was told of it, so nobody is told that it is over.
    return [h for h in holdings if h.own.assigned > h.own.revoked + h.own.taken]


def _partitions(assignments: Iterable[Assignment]) -> list[Partition]:
    return [assignment.partition for assignment in assignments]


async def _uncancelled(work: Coroutine[Any, Any, None]) -> None:
    """Runs ``work`` to its end in a task of its own, whoever is cancelled meanwhile.

    A revoke that is cut short would leave records settled but not flushed. It bounds itself.
    """
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            continue
    task.result()
