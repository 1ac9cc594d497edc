"""What the adapter tells the runtime: partitions assigned, revoked, lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from consumer_sdk.abc import Adapter, AssignmentOwner, CheckpointStore
from consumer_sdk.errors import StoreError, TransientStoreError
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    AtTime,
    Checkpoint,
    Committed,
    Kind,
    Message,
    Outcome,
    Position,
    Start,
    StartPoint,
)
from consumer_sdk.runtime.flusher import Flusher
from consumer_sdk.runtime.holding import Holding
from consumer_sdk.runtime.options import Options
from consumer_sdk.runtime.starts import Decision, decide
from consumer_sdk.trackers import decode_checkpoint

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
        "_make_holding",
        "_options",
        "_queues",
        "_store",
        "holdings",
    )

    def __init__(
        self,
        adapter: Adapter,
        store: CheckpointStore | None,
        options: Options,
        flusher: Flusher,
        *,
        make_holding: Callable[[Assignment], Holding],
        queues: Callable[[], Queues],
    ) -> None:
        self._adapter = adapter
        self._store = store
        self._options = options
        self._flusher = flusher
        self._make_holding = make_holding
        self._queues = queues
        self._closed: list[Assignment] = []
        self.holdings: dict[Assignment, Holding] = flusher.holdings

    # -- assigned -------------------------------------------------------------------------

    async def assigned(self, assignments: Sequence[Assignment]) -> Mapping[Assignment, Start]:
        if self._adapter.capabilities.kind is Kind.QUEUE:
            decisions = dict.fromkeys(assignments, Decision(StartPoint.BROKER))
        else:
            decisions = await self._decisions(assignments)
        granted = {a: self._grant(a, decision) for a, decision in decisions.items()}
        pins = [granted[a] for a, decision in decisions.items() if decision.is_pin]
        try:
            await self._make_pins_durable(pins)
        except BaseException:
            for assignment, holding in granted.items():
                self._close(assignment, holding)
            raise
        # Another owner may have taken one over meanwhile.
        return {a: d.start for a, d in decisions.items() if not granted[a].is_closed}

    async def _decisions(self, assignments: Sequence[Assignment]) -> dict[Assignment, Decision]:
        """By the store's checkpoint, else the broker's. Fenced ones are left out."""
        stored = await self._stored(assignments)
        committed = await self._adapter.committed(list(stored)) if stored else {}
        known = {a: _checkpoint(committed.get(a)) if c is None else c for a, c in stored.items()}
        decisions = await self._decide(stored, known)
        if self._flusher.tells_broker:
            for assignment in stored:
                self._tell(
                    assignment, decisions[assignment], _checkpoint(committed.get(assignment))
                )
        return decisions

    def _tell(
        self, assignment: Assignment, decision: Decision, committed: Checkpoint | None
    ) -> None:
        """A crash after a save left the broker's lag tools behind until the next ack."""
        start, there = decision.checkpoint.start, committed and committed.start
        is_behind = start is not None and (there is None or there < start)
        if is_behind and not decision.is_pin:
            self._flusher.tell(AckFlush(assignment, 0, decision.checkpoint))

    async def _stored(
        self, assignments: Sequence[Assignment]
    ) -> dict[Assignment, Checkpoint | None]:
        """What the store has; None where it has nothing, or where there is none."""
        await self._forget_closed()
        stored: dict[Assignment, Checkpoint | None] = {}
        for assignment, text in (await self._claim(assignments)).items():
            if isinstance(text, Outcome):
                log.warning("%s was not granted: %s", assignment.partition, text.error or "fenced")
            else:
                stored[assignment] = None if text is None else self._decode(assignment, text)
        return stored

    async def _claim(
        self, assignments: Sequence[Assignment]
    ) -> Mapping[Assignment, str | Outcome | None]:
        if self._store is None:
            return dict.fromkeys(assignments)
        return await self._store.claim(self._adapter.group or "", assignments)

    def _decode(self, assignment: Assignment, text: str) -> Checkpoint:
        return decode_checkpoint(
            text,
            broker=self._adapter.broker,
            partition=assignment.partition,
            identity=self._adapter.identity(assignment),
            decode_position=self._adapter.decode_position,
        )

    async def _decide(
        self,
        stored: Mapping[Assignment, Checkpoint | None],
        known: Mapping[Assignment, Checkpoint | None],
    ) -> dict[Assignment, Decision]:
        assignments, redelivers = list(stored), self._adapter.capabilities.wants_settled
        if not assignments:
            return {}
        earliest = await self._adapter.positions(assignments, StartPoint.EARLIEST)
        latest = await self._adapter.positions(assignments, StartPoint.LATEST)
        start = self._options.start
        at_time: Mapping[Assignment, Position | None] = {}
        if isinstance(start, AtTime):
            at_time = await self._adapter.positions(assignments, start)
        return {
            a: decide(
                a,
                known[a],
                start=start,
                resolved=at_time.get(a),
                earliest=earliest.get(a),
                latest=latest.get(a),
                out_of_range=self._options.out_of_range,
                keeps_cursor=redelivers and stored[a] is None,
            )
            for a in assignments
        }

    def _grant(self, assignment: Assignment, decision: Decision) -> Holding:
        if decision.reason:
            log.warning("%s", decision.reason)
        holding = self._make_holding(assignment)
        clock = self._options.clock
        holding.totals.lost += decision.lost
        holding.tracker.restore(
            decision.checkpoint, clock.monotonic(), clock.wall(), durable=not decision.is_pin
        )
        self.holdings[assignment] = holding
        return holding

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


def _checkpoint(committed: Committed | None) -> Checkpoint | None:
    return None if committed is None else committed.checkpoint


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
