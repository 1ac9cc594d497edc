"""What the adapter tells the runtime: partitions assigned, revoked, lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from consumer_sdk.abc import Adapter, AssignmentOwner, CheckpointStore
from consumer_sdk.errors import StoreError, TransientAdapterError, TransientStoreError
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Checkpoint,
    Kind,
    Message,
    OutcomeKind,
    Partition,
    Start,
    StartPoint,
)
from consumer_sdk.runtime.facts import Decision, Facts
from consumer_sdk.runtime.flusher import Flusher
from consumer_sdk.runtime.holding import Holding, Totals
from consumer_sdk.runtime.inquiry import Inquiry
from consumer_sdk.runtime.options import Options
from consumer_sdk.runtime.starts import choose, decide
from consumer_sdk.runtime.subscriptions import check_start

__all__ = ["Ownership", "Queues"]

log = logging.getLogger(__name__)

FLUSH_RETRY = 0.05
"""Seconds between the tries of a last flush."""


class Queues(Protocol):
    """Where records wait to be handed out; what a revoke has to empty."""

    def purge(self, holding: Holding) -> list[Message]:
        """Takes the holding's records out; returns those that were waiting to be handed out."""
        ...

    def abandon(self) -> None:
        """A holding was closed: what is still processed of it is in vain."""
        ...


class _Grant(NamedTuple):
    """What was known of an assignment, what that led to, and who holds it."""

    facts: Facts
    decision: Decision
    holding: Holding


class Ownership(AssignmentOwner):
    """Grants, drains and drops the holdings of one consumer.

    Args:
        make_holding: builds the holding, with its tracker, for a granted assignment.
        queues: where its records wait.
    """

    __slots__ = (
        "_adapter",
        "_closed",
        "_flusher",
        "_inquiry",
        "_make_holding",
        "_options",
        "_queues",
        "_resumed",
        "_said",
        "_store",
        "_totals",
        "holdings",
    )

    def __init__(
        self,
        adapter: Adapter,
        store: CheckpointStore | None,
        options: Options,
        flusher: Flusher,
        totals: Totals,
        *,
        make_holding: Callable[[Assignment], Holding],
        queues: Callable[[], Queues],
    ) -> None:
        self._adapter = adapter
        self._store = store
        self._options = options
        self._flusher = flusher
        self._totals = totals
        self._make_holding = make_holding
        self._queues = queues
        self._inquiry = Inquiry(adapter, store, options)
        self._closed: list[Assignment] = []
        self._resumed: set[Partition] = set()
        self._said: dict[Partition, Decision] = {}  # of starts that are not durable yet
        self.holdings: dict[Assignment, Holding] = flusher.holdings

    # -- assigned -------------------------------------------------------------------------

    async def assigned(self, assignments: Sequence[Assignment]) -> Mapping[Assignment, Start]:
        if self._adapter.capabilities.kind is Kind.QUEUE:
            await self._forget_closed()
            facts = [Facts(assignment=assignment) for assignment in assignments]
            decisions = await self._go_on(assignments)
        else:
            check_start(self._adapter, self._store, self._options)
            await self._forget_closed()
            found = await self._inquiry.facts(assignments)
            facts = [replace(f, is_resumed=f.assignment.partition in self._resumed) for f in found]
            decisions = [self._decide(each) for each in facts]
        try:
            grants = list(map(self._grant, facts, decisions))
            await self._make_durable(grants)
            taken_over = [g for g in grants if self._is_to_take_over(g.facts)]
            again = [self._grant_again(g) for g in taken_over if not g.holding.is_closed]
            await self._make_durable(again)
        except BaseException:
            self.lost(assignments)
            raise
        return self._granted({grant.facts.assignment: grant for grant in [*grants, *again]})

    async def _go_on(self, assignments: Sequence[Assignment]) -> list[Decision]:
        """With a queue, where the broker stands; a store has the attempts."""
        attempts = self._flusher.attempts
        found = {} if attempts is None else await attempts.load(assignments)
        return [Decision(StartPoint.BROKER, found.get(a, Checkpoint())) for a in assignments]

    def _granted(self, grants: Mapping[Assignment, _Grant]) -> dict[Assignment, Start]:
        """Another owner may have taken one over meanwhile."""
        held = {a: grant for a, grant in grants.items() if not grant.holding.is_closed}
        for assignment, grant in held.items():
            self._said.pop(assignment.partition, None)
            if not grant.decision.is_behind:
                self._resumed.discard(assignment.partition)
        return {assignment: grant.decision.start for assignment, grant in held.items()}

    def _decide(self, facts: Facts) -> Decision:
        if self._is_to_take_over(facts):
            decision = replace(choose(facts, self._options), is_pin=True)
        else:
            decision = decide(facts, self._options)
        if decision.reasons:
            self._announce(facts.assignment.partition, decision)
        return decision

    def _is_to_take_over(self, facts: Facts) -> bool:
        """What was written without the store's knowledge: the position as it is comes first.

        When store and broker agree on it, it is held against the log. Killed at any moment in
        between, the next start does not take a decision that was durable for another reset.
        """
        return facts.is_unmarked and self._flusher.tells_broker

    def _grant_again(self, grant: _Grant) -> _Grant:
        facts = grant.facts.after(grant.decision)
        grant.holding.close()
        return self._grant(facts, self._decide(facts))

    def _grant(self, facts: Facts, decision: Decision) -> _Grant:
        assignment = facts.assignment
        holding = self._make_holding(assignment)
        clock = self._options.clock
        holding.tracker.restore(
            decision.checkpoint, clock.monotonic(), clock.wall(), durable=not decision.is_pin
        )
        self.holdings[assignment] = holding
        holding.is_behind = decision.is_behind
        is_paused = self._options.lag_policy == "pause" and not facts.is_resumed
        if decision.is_behind and is_paused:
            holding.is_over_lag = holding.is_paused = True
            self._adapter.pause(assignment)
        return _Grant(facts, decision, holding)

    async def _make_durable(self, grants: Sequence[_Grant]) -> None:
        """Before a record is read: what was decided just now is not decided again.

        First the store, then the broker. Killed between the two, the next start finds a foreign
        position that is the store's own start, which is no reset; and tells the broker again.
        """
        await self._make_pins_durable([g.holding for g in grants if g.decision.is_pin])
        if self._flusher.tells_broker:
            for grant in grants:
                self._tell(grant)
            await self._mark_as_ours([g for g in grants if self._is_to_take_over(g.facts)])

    async def _make_pins_durable(self, pins: Sequence[Holding]) -> None:
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
        """A crash after a save left the broker's lag tools behind until the next ack."""
        facts, ours = grant.facts, grant.decision.checkpoint
        there = facts.committed and facts.committed.checkpoint.start
        is_behind = ours.start is not None and (there is None or there < ours.start)
        is_pin = grant.decision.is_pin  # its flush has told the broker
        if is_behind and not (is_pin or facts.is_unmarked):
            self._flusher.tell(AckFlush(facts.assignment, 0, ours))

    async def _mark_as_ours(self, foreign: Sequence[_Grant]) -> None:
        """What another program has written is ours again, or the next start honours it again."""
        flushes = [AckFlush(g.facts.assignment, 0, g.decision.checkpoint) for g in foreign]
        outcomes = await self._flusher.tell_now(flushes) if flushes else []
        for flush, outcome in zip(flushes, outcomes, strict=True):
            if outcome.kind is not OutcomeKind.DURABLE:
                raise TransientAdapterError(
                    f"{flush.assignment.partition}: the broker could not be told that the position "
                    f"which another program has set was taken over: {outcome.error!r}"
                )

    def _announce(self, partition: Partition, decision: Decision) -> None:
        """Before it is durable: a start that is tried again may find that it was, and be silent.

        Where it is decided again it was not: the last one counts.
        """
        before = self._said.get(partition, Decision(decision.start))
        for reason in decision.reasons:
            if reason not in before.reasons:
                log.warning("%s", reason)
        self._totals.lost += decision.lost - before.lost
        self._totals.resets += decision.is_reset and not before.is_reset
        reasons = (*before.reasons, *decision.reasons)
        is_reset = decision.is_reset or before.is_reset
        self._said[partition] = replace(decision, is_reset=is_reset, reasons=reasons)

    def resume(self, partition: Partition) -> bool:
        """Fetches a partition that is paused for its lag, now and when it is granted again."""
        held = [h for h in self.holdings.values() if h.assignment.partition == partition]
        paused = [holding for holding in held if holding.is_over_lag]
        for holding in paused:
            holding.is_over_lag = False
            self._resumed.add(partition)
        return bool(paused)

    # -- revoked, lost, fenced ------------------------------------------------------------

    async def revoked(self, assignments: Sequence[Assignment], *, deadline: float) -> None:
        holdings = self._stop_handing_out(assignments)
        try:
            await _uncancelled(self._drain_and_flush(holdings, deadline))
        except Exception:
            log.exception("the last flush of revoked partitions failed; they are redelivered")
        finally:
            for holding in holdings:
                self._close(holding.assignment, holding)
            with suppress(StoreError):
                await _uncancelled(self._forget_closed())

    async def drain(self, assignments: Sequence[Assignment], *, deadline: float) -> None:
        """Waits until nothing is in flight, or most of the time is up; they stay held."""
        await self._drain(self._stop_handing_out(assignments), deadline)

    def give_up(self, assignments: Sequence[Assignment]) -> None:
        """Nobody works on what is in flight any more: `revoked` need not wait for it."""
        for holding in self._stop_handing_out(assignments):
            holding.purged += holding.in_flight

    def _stop_handing_out(self, assignments: Sequence[Assignment]) -> list[Holding]:
        holdings = [self.holdings[a] for a in assignments if a in self.holdings]
        for holding in holdings:
            if not holding.is_draining:
                holding.start_draining()
                holding.withdraw(self._queues().purge(holding))
        return holdings

    async def _drain_and_flush(self, holdings: Sequence[Holding], deadline: float) -> None:
        await self._drain(holdings, deadline)
        budget = max(deadline - self._options.clock.monotonic(), 0.001)
        try:
            async with asyncio.timeout(budget):
                await self._flush_to_the_end(holdings)
        except TimeoutError:
            log.warning("the last flush of revoked partitions timed out; they are redelivered")

    async def _drain(self, holdings: Sequence[Holding], deadline: float) -> None:
        budget = max((deadline - self._options.clock.monotonic()) * 0.8, 0.0)
        try:
            async with asyncio.timeout(budget):
                for holding in holdings:
                    await holding.drained()
        except TimeoutError:
            busy = {str(h.assignment.partition): h.in_flight for h in holdings if h.in_flight > 0}
            log.warning("drain ended with records in flight, to be redelivered: %s", busy)

    async def _flush_to_the_end(self, holdings: Sequence[Holding]) -> None:
        while True:
            open_holdings = [h for h in holdings if not h.is_closed]
            await self._flusher.flush(open_holdings, force=True)
            if not any(h.tracker.is_dirty for h in open_holdings):
                await self._flusher.commit_pending()
                return
            await asyncio.sleep(FLUSH_RETRY)

    def lost(self, assignments: Sequence[Assignment]) -> None:
        for assignment in assignments:
            holding = self.holdings.get(assignment)
            if holding is not None:
                self._close(assignment, holding)

    def fenced(self, holding: Holding, error: Exception | None) -> None:
        """The store or the broker refuses its writes: another owner has it, or it is gone."""
        reason = error or "another owner has taken over"
        log.warning("%s may not be flushed any more: %s", holding.assignment.partition, reason)
        self.start_anew(holding)

    def start_anew(self, holding: Holding) -> None:
        """Ends the epoch; if the partition is still ours, it is granted again with a new one."""
        self._close(holding.assignment, holding)
        self._adapter.drop(holding.assignment)

    async def _forget_closed(self) -> None:
        """The store drops the claims of what is over: a write that comes late is refused."""
        closed, self._closed = self._closed, []
        if self._store is not None and closed:
            await self._store.forget(closed)

    def _close(self, assignment: Assignment, holding: Holding) -> None:
        if not holding.is_closed:
            self._queues().purge(holding)
            holding.close()
            self._queues().abandon()
            self._closed.append(assignment)
        self._flusher.forget(assignment)
        self.holdings.pop(assignment, None)


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
