"""Acks of a pulling query: what Spark has done, made durable outside of Spark.

Spark's checkpoint alone decides what is read. The group's position at the broker, and the checkpoint
store if one is set, only hear of it, for lag tools, and for whoever reads on without Spark. So an ack
may come late, and its failure is no reason to stop a query, unless the user wants it to be one.

- `Acks` sees to it that the newest position of each partition gets written. Acks are cumulative: what
  comes while a write is in the air replaces what failed in it. One write is in the air at a time.
- `AckTargets` writes: the store first, then the group. A store that knows of another position, ahead or
  behind, is written over. What it has is read in one case only (`stored_positions`): to find where a
  new query with ``startingOffsets=committed`` begins.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from consumer_sdk.errors import AdapterError, ConsumerSdkError, StoreError
from consumer_sdk.range_reads import RangeReader
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Checkpoint,
    Outcome,
    OutcomeKind,
    Partition,
    Position,
)
from consumer_sdk.spark_bridge.pull.connections import Connections
from consumer_sdk.spark_bridge.pull.options.options import PullOptions

if TYPE_CHECKING:
    from consumer_sdk.abc import CheckpointStore

__all__ = ["AckTargets", "Acks", "Write", "stored_positions"]

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
        """Everything below ``positions`` is done. A lower position than before is of a log made again."""
        for partition, position in positions.items():
            known = self._acks.get(partition)
            if known is None or position < known.done:
                # 1. A write of position 1000 is in the air.
                # 2. The topic is made again, and Spark is done with position 7 of the new one.
                # 3. The write is answered: 1000 is durable.
                # The answer goes to the `_Ack` that was flushed, so that 7 stays open. The new one
                # has an assignment of its own, which a store is to be told of before it takes 7.
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
        """Cancels the write that is in the air; what is not durable yet is given up."""
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


# -- where acks are made durable -----------------------------------------------------------


class AckTargets:
    """The store and the group of one query.

    Args:
        options: which group and which store.
        connections: where readers come from.
    """

    def __init__(self, options: PullOptions, connections: Connections) -> None:
        self._options = options
        self._connections = connections
        self._store: CheckpointStore | None = None
        self._claimed: set[Assignment] = set()

    async def write(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        """The store first, then the group; what either of them refused is the outcome."""
        try:
            async with self._connections.borrowed(self._options) as reader:
                stored = await self._save(reader, flushes)
                committed = await self._commit(reader, flushes)
        except (ConsumerSdkError, OSError) as error:
            return [Outcome.retry(error) for _ in flushes]
        return [_worse(*each) for each in zip(stored, committed, strict=True)]

    async def aclose(self) -> None:
        """Closes the store."""
        store, self._store = self._store, None
        self._claimed.clear()
        if store is not None:
            await store.aclose()

    async def _commit(self, reader: RangeReader, flushes: Sequence[AckFlush]) -> list[Outcome]:
        if self._options.group is None:
            return [Outcome.durable() for _ in flushes]
        positions = {each.assignment.partition: each.checkpoint.start for each in flushes}
        # What the query no longer reads stays where it was last committed.
        chosen = {each: at for each, at in positions.items() if reader.is_chosen(each)}
        outcomes = {**dict.fromkeys(positions, Outcome.durable()), **await reader.commit(chosen)}
        return [outcomes[partition] for partition in positions]

    async def _save(self, reader: RangeReader, flushes: Sequence[AckFlush]) -> list[Outcome]:
        if self._options.store is None or self._options.group is None:
            return [Outcome.durable() for _ in flushes]
        try:
            return await self._save_in(self._options.store, self._options.group, flushes, reader)
        except StoreError as error:
            await self.aclose()
            return [Outcome.retry(error) for _ in flushes]

    async def _save_in(
        self, url: str, group: str, flushes: Sequence[AckFlush], reader: RangeReader
    ) -> list[Outcome]:
        store = await self._opened(url)
        new = [f.assignment for f in flushes if f.assignment not in self._claimed]
        if new:
            # Their fence is None: this query takes over, whoever wrote before.
            await store.claim(group, new)
            self._claimed.update(new)
        from consumer_sdk.abc import StoreItem

        items = [StoreItem(each.assignment, _text(reader, each)) for each in flushes]
        return await store.save(group, items)

    async def _opened(self, url: str) -> CheckpointStore:
        if self._store is None:
            from consumer_sdk.stores import store_from_url

            store = store_from_url(url)
            await store.open()
            self._store = store
        return self._store


def _text(reader: RangeReader, flush: AckFlush) -> str:
    from consumer_sdk.checkpoints.json import encode_checkpoint

    text, _ = encode_checkpoint(
        flush.checkpoint,
        broker=reader.broker,
        partition=flush.assignment.partition,
        encode_position=reader.encode_position,
    )
    return text


_BADNESS = (
    OutcomeKind.DURABLE,
    OutcomeKind.SENT,
    OutcomeKind.GONE,
    OutcomeKind.FENCED,
    OutcomeKind.RETRY,
)


def _worse(one: Outcome, other: Outcome) -> Outcome:
    return max(one, other, key=lambda outcome: _BADNESS.index(outcome.kind))


async def stored_positions(
    options: PullOptions, reader: RangeReader, partitions: Collection[Partition]
) -> dict[Partition, Position]:
    """Where the group stands by its checkpoint store; only partitions that it knows.

    Raises:
        StoreError: the store cannot be read. That never means "nothing is stored".
    """
    if options.store is None or options.group is None:
        return {}
    from consumer_sdk.stores import store_from_url

    store = store_from_url(options.store)
    await store.open()
    try:
        texts = await store.peek(options.group, list(partitions))
    finally:
        await store.aclose()
    known = {partition: text for partition, text in texts.items() if text is not None}
    found = {partition: _start(reader, partition, text) for partition, text in known.items()}
    return {partition: at for partition, at in found.items() if at is not None}


def _start(reader: RangeReader, partition: Partition, text: str) -> Position | None:
    from consumer_sdk.checkpoints.json import decode_checkpoint

    return decode_checkpoint(
        text,
        broker=reader.broker,
        partition=partition,
        identity=None,
        decode_position=reader.decode_position,
    ).start
