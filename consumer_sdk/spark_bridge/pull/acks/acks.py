"""Acks of a pulling query: what Spark has done, made durable outside of Spark.

Spark's checkpoint alone decides what is read. The group's position at the broker and the
checkpoint store only hear of it, for lag tools, and for whoever reads on without Spark. So an ack
may come late, and its failure is no reason to stop a query, unless the user wants it to be one.

Acks are cumulative: of each partition the newest position counts alone, and what comes while a
write is in the air replaces what failed in it. One write is in the air at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from consumer_sdk.errors import AdapterError
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Checkpoint,
    Outcome,
    OutcomeKind,
    Partition,
    Position,
)

__all__ = ["Acks", "Write"]

Write = Callable[[Sequence[AckFlush]], Awaitable[list[Outcome]]]
"""Makes flushes durable; one outcome for each. What it raises counts as a failure of all."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Ack:
    """Where one partition stands.

    Attributes:
        assignment: of its own for each time that the log was made.
        done: everything below this position is done.
        answered: the last position that a write had an answer for; None before the first one.
        flushes: how many there were.
    """

    assignment: Assignment
    done: Position
    answered: Position | None = None
    flushes: int = 0

    @property
    def is_open(self) -> bool:
        return bool(self.done != self.answered)

    def flush(self) -> AckFlush:
        self.flushes += 1
        return AckFlush(self.assignment, self.flushes, Checkpoint(resume=self.done))


class Acks:
    """What is done, on its way to be durable. Everything runs in one event loop.

    Args:
        write: where it is made durable.
    """

    def __init__(self, write: Write) -> None:
        self._write = write
        self._acks: dict[Partition, _Ack] = {}
        self._epochs = count(1)
        self._writing: asyncio.Task[None] | None = None
        self._problem: Exception | None = None

    def done(self, positions: Mapping[Partition, Position]) -> None:
        """Everything below ``positions`` is done. One that goes back is of a log made again."""
        for partition, position in positions.items():
            known = self._acks.get(partition)
            if known is None or position < known.done:
                # Another assignment. A write of the old log may be in the air, and is not to be
                # taken for an answer to this position: its answer finds its own `_Ack`.
                assignment = Assignment(partition, next(self._epochs))
                self._acks[partition] = _Ack(assignment, position)
            else:
                known.done = position
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
        return any(ack.is_open for ack in self._acks.values())

    async def _write_all(self) -> None:
        pause = _FIRST_PAUSE
        while acks := [ack for ack in self._acks.values() if ack.is_open]:
            flushes = [ack.flush() for ack in acks]
            outcomes = await self._written(flushes)
            if not self._apply(acks, flushes, outcomes):
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _written(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        try:
            return await self._write(flushes)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing is known to be durable
            _log.debug("an ack failed unexpectedly", exc_info=True)
            return [Outcome.retry(error) for _ in flushes]

    def _apply(
        self, acks: Sequence[_Ack], flushes: Sequence[AckFlush], outcomes: Sequence[Outcome]
    ) -> bool:
        """Takes the answers in; False: some have to be tried again.

        A refusal is an answer: what was refused would be refused again, and waits for the next ack.
        """
        problem = None
        for ack, flush, outcome in zip(acks, flushes, outcomes, strict=True):
            problem = _problem(flush, outcome) or problem
            if outcome.kind is not OutcomeKind.RETRY:
                # `ack.done` may have moved on since the flush was made: that is written next.
                ack.answered = flush.checkpoint.start
        self._report(problem)
        return all(outcome.kind is not OutcomeKind.RETRY for outcome in outcomes)

    def _report(self, problem: Exception | None) -> None:
        """Says once that acks fail, and once that they work again."""
        if problem is not None and self._problem is None:
            _log.warning("%s; the query goes on, and the ack is tried again", problem)
        elif problem is None and self._problem is not None:
            _log.info("acks are durable again")
        self._problem = problem


def _problem(flush: AckFlush, outcome: Outcome) -> Exception | None:
    if outcome.is_done:
        return None
    why = outcome.error or outcome.kind.value
    partition = flush.assignment.partition
    return AdapterError(f"the ack of {partition} up to {flush.checkpoint.start} failed: {why}")
