"""The hole budget: how much, and for how long, unsettled records may pin a partition's position.

Theory of operation. One unsettled record holds the watermark, however many records behind it are
settled. That has costs: a restart repeats records that the checkpoint cannot name, a flush grows
with every hole (100 000 of them block the event loop for 15-100 ms), and the broker keeps data that
it could delete. So the partitions are looked at once a second, never on the path of an ack.
Partitions with too few unsettled records to be over their budget are not looked at closely.

Over the budget is over either limit; back under it is under half of both, so that a partition at
its limit does not go to and fro. Pausing stops the fetch alone: handlers, retries, dead letters,
flushes and drains go on, and each of them can only close holes.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable

from consumer_sdk.records import Explanation
from consumer_sdk.runtime.options import Options
from consumer_sdk.runtime.partitions.held_partition import HeldPartition
from consumer_sdk.runtime.partitions.partition_state import ConsumerContext

__all__ = ["HoleBudget"]

log = logging.getLogger(__name__)

PACE = 1.0
"""Seconds between looks."""
PACE_OF_GIVING_UP = 0.05
"""The same while records are given up: one at a time, for each may have been the last too many."""
SLICE = 250
"""Partitions that are looked at closely before the event loop has its turn."""
BACK = 0.5
"""The share of its budget at which a partition is back under it."""

ADVICE = {
    "warn": "settle that record: is its handler stuck, or its ack forgotten?",
    "pause": "settle that record (is its handler stuck, or its ack forgotten?); until then the "
    "partition is not fetched",
    "dead_letter": "its oldest records go to the dead letters until it is back under it",
}


class HoleBudget:
    """Looks after the holes of one consumer.

    Args:
        options: ``max_holes``, ``max_hole_age`` and ``hole_policy``.
        context: the holdings, whose holes these are; their queue, since what nobody was handed is not
            given up; and who is told of alarms.
        unsettled: how many records all holdings have in flight; never too few.
    """

    def __init__(
        self,
        options: Options,
        context: ConsumerContext,
        *,
        unsettled: Callable[[], int],
    ) -> None:
        self._context = context
        self._events = context.log.events
        self._options = options
        self._unsettled = unsettled
        self._over: set[HeldPartition] = set()
        self._most = math.inf if options.max_holes is None else options.max_holes
        self._longest = math.inf if options.max_hole_age is None else options.max_hole_age
        self._limits = f"max_holes={options.max_holes}, max_hole_age={options.max_hole_age}"
        # Below a hole there is an unsettled record: so few cannot be too many holes.
        self._few = self._most if options.max_hole_age is None else 0

    async def run(self) -> None:
        """Looks once a second, until it is cancelled."""
        pace = PACE
        while True:
            await asyncio.sleep(pace)
            pace = PACE_OF_GIVING_UP if await self._look_at_all() else PACE

    async def _look_at_all(self) -> bool:
        """Whether a record was given up."""
        has_given_up = False
        for looks, holding in enumerate(self._with_many(), 1):
            if not (holding.is_draining or holding.is_closed):
                has_given_up |= self._look(holding)
            if looks % SLICE == 0:
                await asyncio.sleep(0)
        return has_given_up

    def _with_many(self) -> list[HeldPartition]:
        self._over = {holding for holding in self._over if not holding.is_closed}
        if not self._over and self._unsettled() <= self._few:
            return []
        return [
            holding for holding in self._context.holdings.values() if not self._has_few(holding)
        ]

    def _has_few(self, holding: HeldPartition) -> bool:
        """What was counted before the last fetch is enough to know: it is acked since, if anything."""
        return not holding.is_over_budget and holding.counted[0] <= self._few

    def _look(self, holding: HeldPartition) -> bool:
        was_over = holding.is_over_budget
        if not was_over and holding.tracker.unsettled <= self._few:
            return False
        found = holding.tracker.explain(self._options.clock.monotonic())
        holding.is_over_budget = self._exceeds(holding, found, BACK if was_over else 1.0)
        if holding.is_over_budget != was_over:
            holding.note_change()
            (self._over.add if holding.is_over_budget else self._over.discard)(holding)
            self._tell(holding, found)
        if not self._options.gives_up_holes or not self._exceeds(holding, found, 1.0):
            return False
        return self._give_up(holding, found)

    def _exceeds(self, holding: HeldPartition, found: Explanation, share: float) -> bool:
        # Ranges of a checkpoint that fetching has yet to reach are no holes in what is held: a
        # pause for their sake would never end.
        holes = min(found.holes, found.unsettled)
        # An overtaken partition waits for each record in hand, also with none settled behind it.
        age = found.age if found.holes or holding.is_overtaken else 0.0
        return holes > self._most * share or age > self._longest * share

    def _tell(self, holding: HeldPartition, found: Explanation) -> None:
        partition = holding.assignment.partition
        if holding.is_over_budget:
            self._context.totals.hole_alarms += 1
            advice = ADVICE[self._options.hole_policy]
            self._events.add("hole-alarm", f"over {self._limits}: {found}", [partition])
            log.warning(
                "%s is over its hole budget (%s): %s; %s", partition, self._limits, found, advice
            )
        else:
            self._events.add("hole-alarm-over", str(found), [partition])
            log.info("%s is back under its hole budget: %s", partition, found)

    def _give_up(self, holding: HeldPartition, found: Explanation) -> bool:
        """The oldest unsettled record goes to the dead letters, if user code has had it."""
        if found.index is None or holding.messages is None:
            return False
        message = holding.messages.get(found.index)
        if message is None or self._context.queue.is_waiting(holding, message):
            return False
        why = f"over the hole budget ({self._limits}): {found}"
        return holding.take_out(found.index, message, why)
