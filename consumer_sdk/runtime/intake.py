"""Fetches, tracks and queues records while there is room for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from consumer_sdk.abc import Adapter
from consumer_sdk.errors import PositionOutOfRangeError, TransientAdapterError
from consumer_sdk.records import Assignment, Message, Run, Tracked
from consumer_sdk.runtime.holding import Holding, Totals
from consumer_sdk.runtime.options import Options

__all__ = ["Intake", "Sink"]

log = logging.getLogger(__name__)

FIRST_POLL = 0.02
LONGEST_POLL = 0.5
"""Seconds between looks at a full window when nobody says that it has room again: only the first
ack after a flush does, since a counter on the path of every ack would cost more than this."""
FIRST_BACKOFF = 0.1
LONGEST_BACKOFF = 5.0
DEFAULT_IN_FLIGHT = 10_000


class Sink(Protocol):
    """Where tracked records wait to be handed out."""

    def put(self, holding: Holding, messages: list[Message]) -> None:
        """Queues new records, in order."""
        ...

    def hold(self, holding: Holding, message: Message) -> None:
        """Keeps the place of a retry that is not due yet."""
        ...

    def set_full(self, *, is_full: bool) -> None:
        """Whether no more is fetched until something is settled: then no batch waits for more."""
        ...


class Intake:
    """The fetch loop of one consumer.

    Back-pressure counts unsettled records and their bytes, in all and for each partition.
    Records that wait for a retry, or behind one, have a limit of their own, so that a
    population that keeps failing does not starve the rest.

    Args:
        sink: where tracked records go.
        start_anew: ends a holding whose position is no longer stored.
    """

    def __init__(
        self,
        adapter: Adapter,
        options: Options,
        holdings: Mapping[Assignment, Holding],
        totals: Totals,
        *,
        sink: Callable[[], Sink],
        start_anew: Callable[[Holding], None],
    ) -> None:
        self._start_anew = start_anew
        self._adapter = adapter
        self._options = options
        self._holdings = holdings
        self._totals = totals
        self._pauses_holes = options.hole_policy == "pause"
        self._sink = sink
        self._room = asyncio.Event()
        self.is_full = False
        self.max_in_flight = options.max_in_flight or DEFAULT_IN_FLIGHT

    def nudge(self) -> None:
        """Records were handed out or settled: there may be room again."""
        if self.is_full:
            self._room.set()

    async def run(self) -> None:
        """Fetches for ever.

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
                log.warning("fetch failed, trying again in %.1f s: %s", backoff, error)
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
        is_watched = any(holding.is_paused for holding in self._holdings.values())
        return await self._adapter.fetch(
            max_records=options.fetch_records,
            max_bytes=options.fetch_bytes,
            max_wait=min(poll, options.fetch_wait) if is_watched else options.fetch_wait,
        )

    # -- back-pressure --------------------------------------------------------------------

    async def _wait_for_room(self) -> None:
        poll = FIRST_POLL
        while not self._has_room():
            if not self.is_full:
                self._set_full(is_full=True)
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
        self._sink().set_full(is_full=is_full)

    def _has_room(self) -> bool:
        """Looks at every holding, and pauses and resumes partitions with hysteresis."""
        records = size = spared = 0
        share, most = self._share(), self._options.max_retrying
        for holding in self._holdings.values():
            tracker = holding.tracker
            unsettled, waiting = tracker.unsettled, tracker.retrying + holding.blocked
            records += unsettled
            spared += waiting
            size += tracker.unsettled_bytes
            self._pause_or_resume(holding, unsettled - min(waiting, most), share)
        # Once full, half of it has to go before the next fetch.
        factor = 0.5 if self.is_full else 1.0
        is_small = size < self._options.max_in_flight_bytes * factor
        return is_small and records - min(spared, most) < self.max_in_flight * factor

    def _share(self) -> int:
        """The records that one partition may hold, so that a slow one leaves room for others."""
        given = self._options.max_in_flight_per_partition
        return given or max(self.max_in_flight * 2 // (len(self._holdings) + 1), 1)

    def _pause_or_resume(self, holding: Holding, records: int, share: int) -> None:
        """Its records, its holes or its lag pause a partition; it takes all to resume it."""
        is_pinned = holding.is_over_lag or (holding.is_over_budget and self._pauses_holes)
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
            return  # fetched under an epoch that is over: it is redelivered to whoever holds it
        if run.fault is not None:
            self._fault(holding, run.fault)
            return
        tracked = holding.track(run)
        if tracked.plain:
            if run.messages:
                self._sink().put(holding, run.messages)
        else:
            self._sort_out(holding, run.messages, tracked)

    def _fault(self, holding: Holding, fault: Exception) -> None:
        """The adapter has paused the partition: it goes on later, starts anew, or all ends."""
        partition = holding.assignment.partition
        if isinstance(fault, TransientAdapterError):
            self._totals.fetch_errors += 1
            log.warning("%s: fetch failed, trying again: %s", partition, fault)
            asyncio.get_running_loop().call_later(FIRST_BACKOFF, self._go_on, holding)
        elif isinstance(fault, PositionOutOfRangeError) and self._options.out_of_range != "fail":
            log.warning("%s: %s", partition, fault)
            # Any jump of position is a new epoch: an old ack must not move a new watermark.
            self._start_anew(holding)
        else:
            raise fault

    def _go_on(self, holding: Holding) -> None:
        if not holding.is_paused and not holding.is_closed:
            self._adapter.resume(holding.assignment)

    def _sort_out(self, holding: Holding, messages: list[Message], tracked: Tracked) -> None:
        """Records that the checkpoint knows: settled, held back, tried before, exhausted."""
        settled, held, exhausted = set(tracked.settled), set(tracked.held), set(tracked.exhausted)
        for message in messages:
            index = message.index
            if index in settled:
                continue
            if index in exhausted:
                error = "the retry limit was reached before a restart; the error was not kept"
                holding.give_up(index, message, error)
            elif index in held:
                self._sink().hold(holding, message)
                holding.reschedule()
            elif index in tracked.tries:
                again = holding.tried_before(message, tracked.tries[index])
                self._sink().put(holding, [again])
            else:
                self._sink().put(holding, [message])
