"""When the flusher writes: intervals, back-offs, rests, and the parts of a large flush."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from consumer_sdk.abc import CheckpointStore
from consumer_sdk.errors import TransientAdapterError
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Capabilities,
    Checkpoint,
    Outcome,
    Partition,
    Run,
)
from consumer_sdk.runtime import Ordering
from consumer_sdk.runtime.dispatch.lanes import Lanes
from consumer_sdk.runtime.flusher import Flusher
from consumer_sdk.runtime.options import LoopClock
from consumer_sdk.runtime.partitions.partition_state import ConsumerContext
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing import SimulationLoop
from consumer_sdk.trackers import WatermarkTracker
from consumer_sdk.trackers.outputs import OutputBook
from tests.runtime.consumer_options import options_of
from tests.runtime.partitions.held import Held, in_loop


class Adapter:
    """Notes when it is told of how many partitions; fails so often."""

    broker = "memory"
    group = "g"

    def __init__(self) -> None:
        self.capabilities = Capabilities()
        self.told: list[tuple[float, int]] = []
        self.failures = 0
        self.meanwhile: Callable[[], object] = lambda: None

    @staticmethod
    def encode_position(position: int) -> str:
        """Its text."""
        return str(position)

    async def commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        """Takes them, or not."""
        self.meanwhile()
        self.told.append((round(asyncio.get_running_loop().time(), 4), len(flushes)))
        if self.failures:
            self.failures -= 1
            return [Outcome.retry(TransientAdapterError("down")) for _ in flushes]
        return [Outcome.durable() for _ in flushes]


class Expensive(WatermarkTracker):
    """Whose flush takes so long to make: nothing else happens meanwhile.

    Attributes:
        is_full: it has so much to flush that it is due, as the tracker of a queue may be.
    """

    seconds = 0.0
    is_full = False

    @property
    def flush_due(self) -> float | None:
        """At once, if it is full."""
        due = super().flush_due
        return -math.inf if self.is_full and due is not None else due

    def flush(self, now: float, wall: float, *, force: bool = False) -> AckFlush | None:
        """As always, and time passes."""
        if self.seconds:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, SimulationLoop)
            loop.jump(self.seconds)
        return super().flush(now, wall, force=force)


class Field:
    """A flusher with partitions."""

    def __init__(
        self,
        interval: float,
        store: CheckpointStore | None = None,
        capabilities: Capabilities | None = None,
    ) -> None:
        self.adapter, self.interval = Adapter(), interval
        self.adapter.capabilities = capabilities or Capabilities()
        self.context = ConsumerContext(clock=LoopClock(), queue=Lanes(Ordering.NONE))
        adapter: Any = self.adapter
        self.flusher = Flusher(
            adapter,
            store,
            options_of(clock=LoopClock(), flush_interval=interval),
            self.context,
            fenced=lambda *_: None,
            finished=lambda _: None,
        )
        self.helds: list[Held] = []

    def held(self, count: int) -> Held:
        """A partition with records."""
        assignment = Assignment(Partition("s", str(len(self.helds))), epoch=1)
        tracker = Expensive(
            assignment, wake=lambda: self.flusher.wake(held.it), flush_interval=self.interval
        )
        held = Held(count, assignment=assignment, tracker=tracker, context=self.context)
        self.context.holdings[assignment] = held.it
        self.helds.append(held)
        return held

    @property
    def told(self) -> list[tuple[float, int]]:
        """What was written since somebody looked last."""
        told, self.adapter.told = self.adapter.told, []
        return told


def running(test: Callable[[Field], Awaitable[None]], *, interval: float = 1.0) -> None:
    """Runs a test beside the flusher."""

    async def both() -> None:
        field = Field(interval)
        task = asyncio.create_task(field.flusher.run())
        await asyncio.sleep(0)
        await test(field)
        assert not task.done()
        task.cancel()

    in_loop(both)


def test_partition_is_flushed_at_once_and_then_once_in_an_interval() -> None:
    """What is acked in between waits; what is not acked costs nothing."""

    async def test(field: Field) -> None:
        held = field.held(100)
        field.held(10)
        for message in held.messages[:30]:
            message.ack()
            await asyncio.sleep(0.1)
        await asyncio.sleep(10)
        assert field.told == [(0.0, 1), (1.0, 1), (2.0, 1), (3.0, 1)]

    running(test)


def test_partitions_that_are_due_within_half_an_interval_share_a_flush() -> None:
    """One that is due later has its own."""

    async def test(field: Field) -> None:
        helds = [field.held(2) for _ in range(3)]
        for held in helds:
            held.messages[0].ack()
            await asyncio.sleep(0.3)
        assert field.told == [(0.0, 1), (0.3, 1), (0.6, 1)]
        for held in helds:
            held.messages[1].ack()
        await asyncio.sleep(10)
        assert field.told == [(1.0, 2), (1.6, 1)]

    running(test)


def test_flush_that_is_wanted_now_takes_all_that_are_dirty() -> None:
    """Also those that are not due for long; afterwards each has its interval again."""

    async def test(field: Field) -> None:
        helds = [field.held(3) for _ in range(3)]
        for held in helds:
            held.messages[0].ack()
        await asyncio.sleep(1)
        assert len(field.told) == 1
        for held in helds[:2]:
            held.messages[1].ack()
        await asyncio.sleep(1)
        assert field.told == []
        field.flusher.force()
        await asyncio.sleep(1)
        assert field.told == [(2.0, 2)]
        helds[0].messages[2].ack()
        await asyncio.sleep(50)
        assert field.told == []
        await asyncio.sleep(60)
        assert field.told == [(102.0, 1)]

    running(test, interval=100.0)


def test_record_that_is_acked_while_a_wanted_flush_is_written_is_flushed_later() -> None:
    """Its partition was in a part of that flush that is written; other parts are not yet."""

    async def test(field: Field) -> None:
        helds = [field.held(2) for _ in range(60)]
        for held in helds:
            held.messages[0].ack()
        field.adapter.meanwhile = helds[0].messages[1].ack
        field.flusher.force()
        await asyncio.sleep(10)
        assert field.told == [(0.0, 50), (0.0, 10), (1.0, 1)]

    running(test)


def test_flush_that_is_wanted_when_nothing_is_dirty_is_over() -> None:
    """What is acked after it waits for its interval."""

    async def test(field: Field) -> None:
        held = field.held(3)
        held.messages[0].ack()
        await asyncio.sleep(1)
        field.flusher.force()
        await asyncio.sleep(1)
        held.messages[1].ack()
        await asyncio.sleep(1)
        assert field.told == [(0.0, 1)]
        await asyncio.sleep(100)
        assert field.told == [(100.0, 1)]

    running(test, interval=100.0)


def test_partition_that_has_much_to_flush_does_not_wait() -> None:
    """It is written at once, without those that have time; and once."""

    async def test(field: Field) -> None:
        full, other = field.held(3), field.held(3)
        for held in (full, other):
            held.messages[0].ack()
        await asyncio.sleep(1)
        for held in (full, other):
            held.messages[1].ack()
        await asyncio.sleep(1)
        assert isinstance(full.it.tracker, Expensive)
        full.it.tracker.is_full = True
        field.flusher.hurry(full.it)
        await asyncio.sleep(1)
        full.it.tracker.is_full = False
        assert field.told[1:] == [(2.0, 1)]
        full.messages[2].ack()
        await asyncio.sleep(1)
        assert field.told == []
        await asyncio.sleep(100)
        assert field.told == [(100.0, 2)]

    running(test, interval=100.0)


def test_flush_that_fails_is_tried_again_later_and_later() -> None:
    """Up to five seconds; a success ends that."""

    async def test(field: Field) -> None:
        held = field.held(3)
        field.adapter.failures = 10
        held.messages[0].ack()
        await asyncio.sleep(60)
        times = [time for time, _ in field.told]
        gaps = [round(after - before, 3) for before, after in pairwise(times)]
        assert gaps == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0], abs=0.02)
        field.adapter.failures = 1
        held.messages[1].ack()
        await asyncio.sleep(1)
        assert [round(time - 60, 2) for time, _ in field.told] == [0.0, 0.05]

    running(test, interval=0.01)


def test_flush_that_is_expensive_rests_twenty_times_as_long() -> None:
    """Counted from its beginning; it is not forced by that."""

    async def test(field: Field) -> None:
        held = field.held(4)
        assert isinstance(held.it.tracker, Expensive)
        held.it.tracker.seconds = 0.2
        held.messages[0].ack()
        await asyncio.sleep(0)
        held.messages[1].ack()
        await asyncio.sleep(20)
        assert [time for time, _ in field.told] == pytest.approx([0.2, 4.2])

    running(test, interval=0.1)


def test_large_flush_is_written_in_parts() -> None:
    """Fifty at first; then as many as were made in three milliseconds, up to two hundred and fifty."""

    async def test(field: Field) -> None:
        helds = [field.held(3) for _ in range(350)]
        for number, parts in enumerate(([50, 250, 50], [250, 100])):
            for held in helds:
                held.messages[number].ack()
            field.flusher.force()
            await asyncio.sleep(1)
            assert [count for _, count in field.told] == parts
        for held in helds:
            assert isinstance(held.it.tracker, Expensive)
            held.it.tracker.seconds = 0.001
            held.messages[2].ack()
        field.flusher.force()
        await asyncio.sleep(100)
        assert [count for _, count in field.told] == [250, *[4] * 25]

    running(test, interval=1000.0)


def test_partition_that_is_closed_is_flushed_no_more() -> None:
    """It waits for its interval when it is lost; the others are not held up."""

    async def test(field: Field) -> None:
        lost, other = field.held(2), field.held(2)
        for held in (lost, other):
            held.messages[0].ack()
        await asyncio.sleep(0.5)
        for held in (lost, other):
            held.messages[1].ack()
        lost.it.close()
        await asyncio.sleep(5)
        assert [count for _, count in field.told] == [2, 1]

    running(test)


@pytest.mark.parametrize("wants_ends", [False, True])
def test_partition_that_was_read_to_its_end_has_ended_when_that_is_durable(
    *, wants_ends: bool
) -> None:
    """The broker is told after the store, if it wants to know. Before the end it is told nothing."""

    async def test() -> None:
        store = MemoryStore()
        field = Field(
            0.1, store, Capabilities(commits=False, metadata_size=0, wants_ends=wants_ends)
        )
        tasks = [
            asyncio.create_task(work) for work in (field.flusher.run(), field.flusher.run_commits())
        ]
        held = field.held(2)
        await store.open()
        await store.claim("g", [held.it.assignment])
        held.messages[0].ack()
        await asyncio.sleep(1)
        held.it.track(Run(held.it.assignment, [], ended=True))
        await asyncio.sleep(1)
        assert (held.it.has_ended, field.told) == (False, [])
        held.messages[1].ack()
        await asyncio.sleep(1)
        assert held.it.has_ended
        assert [count for _, count in field.told] == ([1] if wants_ends else [])
        for task in tasks:
            task.cancel()

    in_loop(test)


@pytest.mark.parametrize("has_outputs", [False, True])
def test_memory_of_outputs_is_looked_at_again_when_they_are_written(*, has_outputs: bool) -> None:
    """It held the fetch up; what has none has nothing to look at."""

    async def test(field: Field) -> None:
        held = field.held(0)
        if has_outputs:
            held.it.keep_outputs(OutputBook(Checkpoint()))
        (message,) = held.fetch(0)
        message.ack()
        field.context.changed.clear()
        await asyncio.sleep(1)
        assert (held.it in field.context.changed) == has_outputs

    running(test)
