"""The hole budget: how much, and for how long, unsettled records may pin a partition's position.

Theory of operation. One record that nobody settles holds the watermark, however many settle
behind it. It costs: a restart repeats what a checkpoint cannot name, a flush grows with every
hole (100 000 of them block the event loop for 15-100 ms), and the broker keeps what it could have
deleted. So the partitions are looked at once a second, never on the path of an ack, and those
without enough unsettled records to be over their budget not even closely.

Over the budget is over either limit; back under it is under half of both, so that a partition at
its limit does not go to and fro. Pausing stops the fetch alone: handlers, retries, dead letters,
flushes and drains go on, and each of them can only close holes.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from typing import Protocol

from consumer_sdk.records import Assignment, Explanation, Message
from consumer_sdk.runtime.holding import Holding, Totals
from consumer_sdk.runtime.options import Options

__all__ = ["HoleBudget", "KnowsWaiting"]

log = logging.getLogger(__name__)

PACE = 1.0
"""Seconds between looks."""
PACE_OF_GIVING_UP = 0.05
"""The same while records are given up: one at a time, for each may have been the last too many."""
BACK = 0.5
"""The share of its budget at which a partition is back under it."""

ADVICE = {
    "warn": "settle that record: is its handler stuck, or its ack forgotten?",
    "pause": "settle that record (is its handler stuck, or its ack forgotten?); until then the "
    "partition is not fetched",
    "dead_letter": "its oldest records go to the dead letters until it is back under it",
}


class KnowsWaiting(Protocol):
    """Where records wait to be handed out."""

    def is_waiting(self, holding: Holding, message: Message) -> bool:
        """The record waits for user code to take it."""
        ...


class HoleBudget:
    """Looks after the holes of one consumer.

    Args:
        options: ``max_holes``, ``max_hole_age`` and ``hole_policy``.
        holdings: whose holes.
        totals: where alarms are counted.
        queues: where records wait; what nobody was handed is not given up.
    """

    def __init__(
        self,
        options: Options,
        holdings: Mapping[Assignment, Holding],
        totals: Totals,
        queues: Callable[[], KnowsWaiting],
    ) -> None:
        self._options = options
        self._holdings = holdings
        self._totals = totals
        self._queues = queues
        self._most = math.inf if options.max_holes is None else options.max_holes
        self._longest = math.inf if options.max_hole_age is None else options.max_hole_age
        self._limits = f"max_holes={options.max_holes}, max_hole_age={options.max_hole_age}"
        # Below a hole there is an unsettled record: so few cannot be too many holes.
        self._few = self._most if options.max_hole_age is None else 0

    async def run(self) -> None:
        """Looks, for ever."""
        pace = PACE
        while True:
            await asyncio.sleep(pace)
            pace = PACE_OF_GIVING_UP if self._look_at_all() else PACE

    def _look_at_all(self) -> bool:
        """Whether a record was given up."""
        held = [h for h in self._holdings.values() if not h.is_draining]
        return any([self._look(holding) for holding in held])  # noqa: C419 - at each of them

    def _look(self, holding: Holding) -> bool:
        was_over = holding.is_over_budget
        if not was_over and holding.tracker.unsettled <= self._few:
            return False
        found = holding.tracker.explain(self._options.clock.monotonic())
        holding.is_over_budget = self._exceeds(found, BACK if was_over else 1.0)
        if holding.is_over_budget != was_over:
            self._tell(holding, found)
        if not self._options.gives_up_holes or not self._exceeds(found, 1.0):
            return False
        return self._give_up(holding, found)

    def _exceeds(self, found: Explanation, share: float) -> bool:
        # Ranges of a checkpoint that fetching has yet to reach are no holes in what is held: a
        # pause for their sake would never end.
        holes = min(found.holes, found.unsettled)
        age = found.age if found.holes else 0.0
        return holes > self._most * share or age > self._longest * share

    def _tell(self, holding: Holding, found: Explanation) -> None:
        partition = holding.assignment.partition
        if holding.is_over_budget:
            self._totals.hole_alarms += 1
            advice = ADVICE[self._options.hole_policy]
            log.warning(
                "%s is over its hole budget (%s): %s; %s", partition, self._limits, found, advice
            )
        else:
            log.info("%s is back under its hole budget: %s", partition, found)

    def _give_up(self, holding: Holding, found: Explanation) -> bool:
        """The oldest unsettled record goes to the dead letters, if user code has had it."""
        if found.index is None or holding.unsettled is None:
            return False
        message = holding.unsettled.get(found.index)
        if message is None or self._queues().is_waiting(holding, message):
            return False
        why = f"over the hole budget ({self._limits}): {found}"
        return holding.take_out(found.index, message, why)
