"""Acks of a pulling query: what Spark has done, made durable outside of Spark.

Spark's checkpoint alone decides what is read. The group's position at the broker and the
checkpoint store only hear of it, for lag tools, and for whoever reads on without Spark. So an ack
may come late, and its failure is no reason to stop a query, unless the user wants it to be one.

Theory: each partition has one of the SDK's log trackers. Acks are cumulative, so that a tracker
is told of runs without records, whose next position is where Spark stands; what fails is put back
and merged with what came since. One write is in the air at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count

from consumer_sdk.abc import AckTracker
from consumer_sdk.errors import AdapterError
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Outcome,
    OutcomeKind,
    Partition,
    Position,
    Run,
)
from consumer_sdk.trackers import WatermarkTracker

__all__ = ["Acks", "Write"]

Write = Callable[[Sequence[AckFlush]], Awaitable[list[Outcome]]]
"""Makes flushes durable; one outcome for each. What it raises counts as a failure of all."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0

_log = logging.getLogger(__name__)


class Acks:
    """What is done, on its way to be durable. Everything runs in one event loop.

    Args:
        write: where it is made durable.
    """

    def __init__(self, write: Write) -> None:
        self._write = write
        self._tracked: dict[Partition, tuple[AckTracker, Assignment]] = {}
        self._done: dict[Partition, Position] = {}
        self._epochs = count(1)
        self._writing: asyncio.Task[None] | None = None
        self._problem: Exception | None = None

    def done(self, positions: Mapping[Partition, Position]) -> None:
        """Everything below ``positions`` is done. One that goes back is of a log made again."""
        now = asyncio.get_running_loop().time()
        for partition, position in positions.items():
            if position < self._done.get(partition, position):
                self._tracked.pop(partition, None)  # would take acks for old until it is passed
            self._done[partition] = position
            tracker, assignment = self._tracker(partition)
            tracker.track(Run(assignment, next_position=position), now)
        if self._is_dirty and (self._writing is None or self._writing.done()):
            self._writing = asyncio.create_task(self._write_all())

    async def settle(self, patience: float) -> Exception | None:
        """Waits until everything is durable; at most ``patience`` seconds.

        Returns:
            None once it is; else why it is not yet, or not at all.
        """
        if self._writing is None:
            return None
        await asyncio.wait([self._writing], timeout=patience)
        if self._writing.done():
            return self._problem
        return self._problem or TimeoutError(f"no answer within {patience:g} s")

    async def aclose(self) -> None:
        """Gives up what is not durable yet."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait([self._writing])

    @property
    def _is_dirty(self) -> bool:
        return any(tracker.is_dirty for tracker, _ in self._tracked.values())

    async def _write_all(self) -> None:
        pause = _FIRST_PAUSE
        while flushes := self._flushes():
            outcomes = await self._written([flush for _, flush in flushes])
            if not self._apply(flushes, outcomes):
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _written(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        try:
            return await self._write(flushes)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing is known to be durable
            _log.debug("an ack failed unexpectedly", exc_info=True)
            return [Outcome.retry(error) for _ in flushes]

    def _flushes(self) -> list[tuple[AckTracker, AckFlush]]:
        now = asyncio.get_running_loop().time()
        # The wall clock is of use to retries alone, of which there are none.
        found = ((t, t.flush(now, 0.0, force=True)) for t, _ in self._tracked.values())
        return [(tracker, flush) for tracker, flush in found if flush is not None]

    def _apply(
        self, flushes: Sequence[tuple[AckTracker, AckFlush]], outcomes: Sequence[Outcome]
    ) -> bool:
        """Takes the answers in; False: some have to be tried again.

        What was refused would be refused again: it waits for the next ack.
        """
        problem = None
        for (tracker, flush), outcome in zip(flushes, outcomes, strict=True):
            problem = _problem(flush, outcome) or problem
            tracker.flushed(flush, outcome)
        self._report(problem)
        return all(outcome.kind is not OutcomeKind.RETRY for outcome in outcomes)

    def _report(self, problem: Exception | None) -> None:
        """Says once that acks fail, and once that they work again."""
        if problem is not None and self._problem is None:
            _log.warning("%s; the query goes on, and the ack is tried again", problem)
        elif problem is None and self._problem is not None:
            _log.info("acks are durable again")
        self._problem = problem

    def _tracker(self, partition: Partition) -> tuple[AckTracker, Assignment]:
        if partition not in self._tracked:
            assignment = Assignment(partition, next(self._epochs))
            tracker = WatermarkTracker(assignment, keeps_ranges=False)
            self._tracked[partition] = tracker, assignment
        return self._tracked[partition]


def _problem(flush: AckFlush, outcome: Outcome) -> Exception | None:
    if outcome.is_done:
        return None
    why = outcome.error or outcome.kind.value
    partition = flush.assignment.partition
    return AdapterError(f"the ack of {partition} up to {flush.checkpoint.start} failed: {why}")
