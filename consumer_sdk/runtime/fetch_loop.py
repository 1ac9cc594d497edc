"""Fetches, tracks and queues records while there is room for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from consumer_sdk.abc import Adapter
from consumer_sdk.errors import (
    PositionOutOfRangeError,
    TransientAdapterError,
    UnreadableRecordError,
)
from consumer_sdk.log_limits import REPEATS
from consumer_sdk.records import Arrival, Kind, Message, Redelivery, Run, Tracked
from consumer_sdk.runtime.observing.consumer_log import error_text
from consumer_sdk.runtime.options import Options
from consumer_sdk.runtime.partitions.held_partition import HeldPartition
from consumer_sdk.runtime.partitions.partition_state import ConsumerContext

__all__ = ["FetchLoop"]

log = logging.getLogger(__name__)

FIRST_POLL = 0.02
LONGEST_POLL = 0.5
"""Seconds between looks at a full window when nobody says that it has room again: only the first
ack after a flush does, since a counter on the path of every ack would cost more than this."""
FIRST_BACKOFF = 0.1
LONGEST_BACKOFF = 5.0
DEFAULT_IN_FLIGHT = 10_000
RESTARTED = "the retry limit was reached before a restart; the error was not kept"
BLOCKER = (
    "what handles it has blocked the event loop for longer than a session, in as many deliveries as "
    "there may be: run what blocks in asyncio.to_thread"
)
SLICE = 2000
"""Holdings that are counted before a fetch: more than one fetch and its acks can change."""


class FetchLoop:
    """The fetch loop of one consumer.

    Back-pressure counts unsettled records and their bytes, in all and for each partition.
    Records that wait for a retry, or behind one, have a limit of their own, so that a
    population that keeps failing does not starve the rest.

    The cost of a fetch does not depend on the number of partitions: their load is a running sum,
    and only partitions that have changed since the last fetch are looked at.

    Args:
        context: what is held, what of it has changed, where tracked records go, and who is told of
            fetches.
        overtaken: called with a partition whose next position is no longer stored.
        has_dead_letters: whether there are dead letters for unreadable records.

    Attributes:
        unsettled: records that all partitions have in flight: sometimes too high, never too low.
        paused: the holdings that are not fetched.
        filled: called while there is no room; in a run with transactions a flush makes room.
    """

    def __init__(
        self,
        adapter: Adapter,
        options: Options,
        context: ConsumerContext,
        *,
        overtaken: Callable[[HeldPartition], None],
        has_dead_letters: bool,
    ) -> None:
        self._context = context
        self._events = context.log.events
        self._timing = context.log.timing
        self._overtaken = overtaken
        self._has_dead_letters = has_dead_letters
        self._adapter = adapter
        self._options = options
        self._holdings = context.holdings
        self._totals = context.totals
        self._changed = context.changed
        self.unsettled = self._waiting = self._size = 0
        self._shared = 0
        self.paused: set[HeldPartition] = set()
        self._pauses_holes = options.hole_policy == "pause"
        self._room = asyncio.Event()
        self.is_full = False
        self.filled: Callable[[], None] = lambda: None
        self.max_in_flight = options.max_in_flight or DEFAULT_IN_FLIGHT

    def nudge(self) -> None:
        """Records were handed out or settled: there may be room again."""
        if self.is_full:
            self._room.set()

    async def run(self) -> None:
        """Fetches while there is room, until it is cancelled.

        Raises:
            AdapterError: the adapter cannot go on.
        """
        backoff, poll = FIRST_BACKOFF, FIRST_POLL
        while True:
            await self._wait_for_room()
            try:
                runs = await self._fetch(poll)
            except TransientAdapterError as error:
                self._totals.fetch_errors += 1
                self._events.add("fetch-error", error_text(error))
                log.warning(
                    "fetch failed, trying again in %.1f s: %s", backoff, error, extra=REPEATS
                )
                await asyncio.sleep(backoff)
                backoff = min(backoff * 2, LONGEST_BACKOFF)
                continue
            backoff = FIRST_BACKOFF
            poll = FIRST_POLL if runs else min(poll * 2, LONGEST_POLL)
            for run in runs:
                self._take(run)
            # An adapter that has records buffered does not suspend, and its next request to the
            # broker is to be on its way while these are processed.
            await asyncio.sleep(0)

    async def _fetch(self, poll: float) -> list[Run]:
        options = self._options
        # A partition that is paused may have room long before another one has a record.
        with self._timing.measured("receive"):
            return await self._adapter.fetch(
                max_records=self._most_records(),
                max_bytes=options.fetch_bytes,
                max_wait=min(poll, options.fetch_wait) if self.paused else options.fetch_wait,
            )

    # -- back-pressure --------------------------------------------------------------------

    async def _wait_for_room(self) -> None:
        poll = FIRST_POLL
        while not self._has_room():
            if self._changed:
                await asyncio.sleep(0)
                continue
            if not self.is_full:
                self._set_full(is_full=True)
            self.filled()
            self._room.clear()
            try:
                async with asyncio.timeout(poll):
                    await self._room.wait()
                poll = FIRST_POLL
            except TimeoutError:
                poll = min(poll * 2, LONGEST_POLL)
        if self.is_full:
            self._set_full(is_full=False)

    def _set_full(self, *, is_full: bool) -> None:
        self.is_full = is_full
        self._context.queue.set_full(is_full=is_full)

    def _most_records(self) -> int:
        """Of a fetch. A queue's records are nobody else's once they are fetched: no more than there is room for."""
        most = self._options.fetch_records
        if self._adapter.capabilities.kind is not Kind.QUEUE:
            return most
        return min(most, max(self.max_in_flight - self.unsettled + self._spared, 1))

    @property
    def _spared(self) -> int:
        """Records that wait for a retry, and take no room."""
        return min(self._waiting, self._options.max_retrying)

    def _has_room(self) -> bool:
        """Pauses and resumes partitions with hysteresis on the way."""
        self._count()
        # Once full, half of it has to go before the next fetch.
        factor = 0.5 if self.is_full else 1.0
        is_small = self._size < self._options.max_in_flight_bytes * factor
        return is_small and self.unsettled - self._spared < self.max_in_flight * factor

    def _count(self) -> None:
        """Looks at what has changed; at all holdings when the share of each has.

        Not at more than the event loop has time for: of the others too much is counted, not too
        little, since what is tracked is counted at once.
        """
        share = self._share()
        if share != self._shared:
            self._shared = share
            self._changed.update(dict.fromkeys(self._holdings.values()))
        changed = self._changed
        for _ in range(min(len(changed), SLICE)):
            holding, _ = changed.popitem(last=False)
            self._count_one(holding)
            if not holding.is_closed:
                self._pause_or_resume(holding, share)
            (self.paused.add if self._is_watched(holding) else self.paused.discard)(holding)

    def _count_one(self, holding: HeldPartition) -> None:
        records, waiting, size = holding.counted
        holding.counted = now = holding.load()
        holding.is_news = True
        self.unsettled += now[0] - records
        self._waiting += now[1] - waiting
        self._size += now[2] - size

    def _add(self, holding: HeldPartition, count: int, size: int) -> None:
        """It was tracked: too much, if some of it is settled already, until it is counted."""
        records, waiting, before = holding.counted
        holding.counted = records + count, waiting, before + size
        self.unsettled += count
        self._size += size

    @staticmethod
    def _is_watched(holding: HeldPartition) -> bool:
        return holding.is_paused and not holding.is_closed

    def _share(self) -> int:
        """The records that one partition may hold, so that a slow one leaves room for others."""
        given = self._options.max_in_flight_per_partition
        return given or max(self.max_in_flight * 2 // (len(self._holdings) + 1), 1)

    def _pause_or_resume(self, holding: HeldPartition, share: int) -> None:
        """Its records, its holes, its lag or a person pause it; it takes all to resume it."""
        unsettled, waiting, _ = holding.counted
        records = unsettled - min(waiting, self._options.max_retrying)
        is_over_budget = holding.is_over_budget and self._pauses_holes
        is_pinned = holding.held_back is not None or is_over_budget
        if not holding.is_paused and (is_pinned or records >= share):
            holding.is_paused = True
            self._adapter.pause(holding.assignment)
        elif holding.is_paused and not is_pinned and records <= share // 2:
            holding.is_paused = False
            self._adapter.resume(holding.assignment)

    # -- taking in ------------------------------------------------------------------------

    def _take(self, run: Run) -> None:
        holding = self._holdings.get(run.assignment)
        if holding is None or holding.is_draining or holding.is_closed:
            # 1. A fetch is sent. 2. The partition is revoked or lost. 3. Its records come: they are of an epoch
            # that is over, and go to whoever holds the partition next.
            return
        if run.fault is not None:
            self._fault(holding, run, run.fault)
            return
        tracked = holding.track(run)
        self._add(holding, tracked.count, run.size)
        if tracked.plain:
            if run.messages:
                self._context.queue.put(holding, run.messages)
        else:
            self._sort_out(holding, run.messages, tracked)

    def _fault(self, holding: HeldPartition, run: Run, fault: Exception) -> None:
        """Handles a partition that could not be read, and that the adapter has paused.

        It is read again later, starts anew elsewhere, or ends the consumer.
        """
        partition = holding.assignment.partition
        if isinstance(fault, TransientAdapterError):
            self._totals.fetch_errors += 1
            self._events.add("fetch-error", error_text(fault), [partition])
            log.warning("%s: fetch failed, trying again: %s", partition, fault, extra=REPEATS)
            asyncio.get_running_loop().call_later(FIRST_BACKOFF, self._go_on, holding)
        elif isinstance(fault, PositionOutOfRangeError) and self._options.out_of_range != "fail":
            log.warning("%s: %s", partition, fault)
            # Any jump of position is a new epoch: an old ack must not move a new watermark.
            self._overtaken(holding)
            self._changed[holding] = None
        elif isinstance(fault, UnreadableRecordError) and run.messages and self._is_kept(run):
            log.error("%s; its bytes go to the dead letters", fault)
            self._dead_letter_unreadable(holding, run, fault)
        else:
            raise self._advise(fault) if run.messages else fault

    def _is_kept(self, run: Run) -> bool:
        """What cannot be read goes to the dead letters; the consumer does not stop there."""
        # 1. A queue's broker makes its last delivery. 2. The consumer would stop, and leave the group. 3. The broker
        # gives the record up, which nobody has: the next start would pass over it in silence.
        most = self._adapter.capabilities.max_deliveries
        count = max((run.deliveries or {}).values(), default=1)
        is_last = most is not None and count >= most
        return self._has_dead_letters and (is_last or self._options.unreadable == "dead_letter")

    def _advise(self, fault: Exception) -> Exception:
        """Says how to go on behind what cannot be read, of which the bytes are known."""
        missing = "unreadable='dead_letter'"
        if self._options.unreadable == "dead_letter":
            missing = "dead_letters=…"
        error = UnreadableRecordError(
            f"{fault}: fix it, or give the consumer {missing} to keep the bytes and go on behind them"
        )
        error.__cause__ = fault
        return error

    def _dead_letter_unreadable(
        self, holding: HeldPartition, run: Run, fault: UnreadableRecordError
    ) -> None:
        """It is tracked like a record, so that no position passes it before its dead letter does."""
        tracked = holding.track(run)
        self._add(holding, tracked.count, run.size)
        for message, arrival in tracked.arrivals(run.messages):  # those in flight are left out
            if arrival is Arrival.EXHAUSTED:
                holding.give_up(message.index, message, fault)
            else:
                holding.take_out(message.index, message, fault)
        self._go_on(holding)

    def _go_on(self, holding: HeldPartition) -> None:
        if not holding.is_paused and not holding.is_closed:
            self._adapter.resume(holding.assignment)

    @staticmethod
    def _give_up(holding: HeldPartition, message: Message) -> None:
        """Its deliveries were counted before it was fetched."""
        attempt = holding.blockers.get(message.position)
        if attempt is None:
            holding.give_up(message.index, message, RESTARTED)
        else:
            holding.give_up(message.index, Redelivery.of(message, attempt), BLOCKER)

    def _sort_out(self, holding: HeldPartition, messages: list[Message], tracked: Tracked) -> None:
        """Records that the checkpoint knows: held back, tried before, exhausted."""
        for message, arrival in tracked.arrivals(messages):
            if arrival is Arrival.EXHAUSTED:
                self._give_up(holding, message)
            elif arrival is Arrival.HELD:
                self._context.queue.hold(holding, message)
                holding.callbacks.reschedule(holding)
            else:
                holding.tried_before(message)
                self._context.queue.put(holding, [message])
