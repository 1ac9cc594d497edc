"""`Timers`: what is due comes back, in its order and in parts, and nothing of what a revoke drains."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from consumer_sdk.records import Assignment, Partition
from consumer_sdk.runtime import Ordering
from consumer_sdk.runtime.dispatch.lanes import Lanes
from consumer_sdk.runtime.options import LoopClock
from consumer_sdk.runtime.partitions.partition_state import ConsumerContext
from consumer_sdk.runtime.partitions.timers import SLICE, Timers
from consumer_sdk.trackers import RetryPolicy, WatermarkTracker
from tests.runtime.partitions.held import Held, in_loop

POLICY = RetryPolicy(max_attempts=None, initial=1.0, jitter=0.0)


class _Field:
    """Timers with partitions, each record of which is nacked."""

    def __init__(self) -> None:
        self.lanes = Lanes(Ordering.NONE)
        self.context = ConsumerContext(clock=LoopClock(), queue=self.lanes)
        self.timers = Timers(self.context)

    def held(self, *delays: float, ack_timeout: float | None = None, number: int = 0) -> Held:
        """A partition, of which each record waits for so long."""
        assignment = Assignment(Partition("s", str(number)), epoch=1)
        tracker = WatermarkTracker(assignment, policy=POLICY, ack_timeout=ack_timeout)
        held = Held(len(delays), assignment=assignment, tracker=tracker, context=self.context)
        for message, delay in zip(list(held.messages), delays, strict=True):
            message.nack(delay)
            self.timers.reschedule(held.it)
        return held

    def taken(self) -> list[tuple[str, int, int]]:
        """What came back: partition, position and attempt."""
        found = []
        while lane := self.lanes.take_one():
            message = lane.queue[0]
            found.append((message.partition.id, message.position, message.attempt))
        return found


def running(test: Callable[[_Field], Awaitable[None]]) -> None:
    """Runs a test beside the timers."""

    async def both() -> None:
        field = _Field()
        task = asyncio.create_task(field.timers.run())
        await asyncio.sleep(0)
        await test(field)
        assert not task.done()
        task.cancel()

    in_loop(both)


def test_retries_come_back_when_each_is_due() -> None:
    """Of all partitions by one sleep, however they were noted; a new one may be the first."""

    async def test(field: _Field) -> None:
        one, two, three = field.held(5.0), field.held(3.0, number=1), field.held(9.0, number=2)
        await asyncio.sleep(0.5)
        held = field.held(0.5, 1.0, 6.5, number=3)
        for moment, found in (
            (0.9, []),
            (1.1, [("3", 0, 2)]),
            (1.6, [("3", 1, 2)]),
            (3.1, [("1", 0, 2)]),
            (5.1, [("0", 0, 2)]),
            (9.1, [("2", 0, 2), ("3", 2, 2)]),
            (30.0, []),
        ):
            await asyncio.sleep(moment - asyncio.get_running_loop().time())
            assert sorted(field.taken()) == found
        assert field.context.totals.redelivered == 6
        assert [each.it.own.redelivered for each in (one, two, three, held)] == [1, 1, 1, 3]

    running(test)


def test_retries_that_are_due_together_come_back_in_order_ahead_of_others() -> None:
    """The first is handed out first; each change is noted for the fetch loop."""

    async def test(field: _Field) -> None:
        held = field.held(1.0, 1.0, 1.0)
        new = held.fetch(3)
        field.lanes.put(held.it, new)
        await asyncio.sleep(0.5)
        field.context.changed.clear()
        await asyncio.sleep(1)
        assert [position for _, position, _ in field.taken()] == [0, 1, 2, 3]
        assert held.it in field.context.changed

    running(test)


def test_redelivery_is_settled_by_its_own_message() -> None:
    """It belongs to the partition, and so do its next failures."""

    async def test(field: _Field) -> None:
        held = field.held(1.0)
        await asyncio.sleep(1.5)
        lane = field.lanes.take_one()
        assert lane is not None
        (again,) = lane.queue
        assert (again.holder, again.index, again.attempt) == (held.it, 0, 2)
        again.nack(1.0)
        field.timers.reschedule(held.it)
        await asyncio.sleep(1.5)
        assert field.taken() == [("0", 0, 3)]

    running(test)


def test_nothing_comes_back_while_a_revoke_drains_or_after_it() -> None:
    """The drain would wait for one delivery after another; the others go on."""

    async def test(field: _Field) -> None:
        draining, closed, other = (field.held(1.0, number=number) for number in range(3))
        draining.it.start_draining()
        closed.it.close()
        await asyncio.sleep(5)
        assert field.taken() == [("2", 0, 2)]
        assert draining.it.tracker.retrying == 1
        assert other.it.tracker.retrying == 0

    running(test)


def test_many_retries_come_back_in_parts() -> None:
    """The event loop has its turn after each part, also while there are more of one partition."""

    async def test(field: _Field) -> None:
        field.held(*[1.0] * (2 * SLICE), 2.0)
        field.held(*[1.0] * 10, number=1)
        await asyncio.sleep(1.0)
        turns = []
        for _ in range(50):
            turns.append(len(field.taken()))
            await asyncio.sleep(0)
        parts = [count for count in turns if count]
        assert sum(parts) == 2 * SLICE + 10
        assert len(parts) == 3
        assert max(parts) <= SLICE

    running(test)


def test_deliveries_that_take_too_long_end() -> None:
    """Each has failed by that, and is retried; it counts for its slice as retries do."""

    async def test(field: _Field) -> None:
        held = field.held(ack_timeout=5.0)
        held.fetch(0, 1)
        field.timers.reschedule(held.it)
        await asyncio.sleep(4.9)
        assert held.it.own.failed == 0
        await asyncio.sleep(0.2)
        assert held.it.own.failed == 2
        field.timers.reschedule(held.it)
        await asyncio.sleep(1)
        assert field.taken() == [("0", 0, 2), ("0", 1, 2)]

    running(test)
