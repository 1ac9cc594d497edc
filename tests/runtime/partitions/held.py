"""A held partition by itself, for tests of what is done with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from consumer_sdk.abc import AckTracker, Transactions
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Checkpoint,
    Message,
    Partition,
    Redelivery,
    Run,
)
from consumer_sdk.runtime import Ordering
from consumer_sdk.runtime.dispatch.lanes import Lanes
from consumer_sdk.runtime.partitions.held_partition import HeldPartition, PartitionCallbacks
from consumer_sdk.runtime.partitions.partition_state import ConsumerContext, MessageIndex
from consumer_sdk.runtime.partitions.queue import Lane
from consumer_sdk.testing import Simulation, simulate
from consumer_sdk.trackers import RetryPolicy, WatermarkTracker
from consumer_sdk.trackers.outputs import OutputBook

__all__ = ["ASSIGNMENT", "POLICY", "Clock", "Held", "in_loop", "unordered"]

ASSIGNMENT = Assignment(Partition("s", "0"), epoch=1)
POLICY = RetryPolicy(max_attempts=2, initial=1.0, jitter=0.0)


class Clock:
    """Stands still until it is set."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    wall = monotonic


class Held:
    """A held partition, of whose records each was handed out.

    Args:
        with_messages: it knows the message of each record.
        context: what it shares with others; by default a clock and lanes of its own.

    Attributes:
        lettered: the indices of records that were given up.
        rescheduled: how often something was said to be due earlier.
    """

    def __init__(
        self,
        count: int = 0,
        *,
        assignment: Assignment = ASSIGNMENT,
        tracker: AckTracker | None = None,
        with_messages: bool = False,
        transactions: Transactions | None = None,
        context: ConsumerContext | None = None,
    ) -> None:
        self.clock = Clock()
        self.lettered: list[int] = []
        self.rescheduled = 0
        tracker = tracker or WatermarkTracker(assignment, policy=POLICY)
        self.context = context or ConsumerContext(clock=self.clock, queue=Lanes(Ordering.PARTITION))
        self.index = MessageIndex(tracker, lambda _: None) if with_messages else None
        self.it = HeldPartition(
            assignment,
            tracker,
            self.context,
            PartitionCallbacks(
                dead_letter=lambda _, index, *_rest: self.lettered.append(index),
                reschedule=self._reschedule,
            ),
            messages=self.index,
        )
        self.context.transactions = transactions
        if transactions is not None:
            self.it.keep_outputs(OutputBook(Checkpoint()))
        self.messages: list[Message] = []
        self.fetch(*range(count))

    def _reschedule(self, _holding: HeldPartition) -> None:
        self.rescheduled += 1

    def fetch(self, *positions: int, times: tuple[int | None, ...] = ()) -> list[Message]:
        """Fetches records, and hands them out."""
        when = times or (None,) * len(positions)
        made = [
            Message.make(self.it.assignment, at, b"12345", timestamp=time)
            for at, time in zip(positions, when, strict=True)
        ]
        run = Run(self.it.assignment, made)
        self.it.track(run)
        self.messages += self.it.hand_out(run.messages)
        return list(run.messages)

    def wait_for(self, message: Message) -> Lane:
        """What comes after a record waits for its retry."""
        lane = self.it.lanes["partition"] = Lane(self.it, "partition", message)
        lane.queue.clear()
        lane.awaited = frozenset({message.position})
        return lane

    def flush(self) -> AckFlush:
        """What is settled so far."""
        flush = self.it.tracker.flush(self.clock.now, self.clock.now, force=True)
        assert flush is not None
        return flush

    def is_idle(self) -> bool:
        """See `HeldPartition.is_idle`."""
        return self.it.is_idle

    def is_finished(self) -> bool:
        """See `HeldPartition.is_finished`."""
        return self.it.is_finished

    def latest(self) -> int | None:
        """See `PartitionState.latest`."""
        return self.it.latest

    def waiter(self) -> asyncio.Future[None]:
        """Of the flush that carries what is settled so far."""
        waiter = self.it.until_flushed()
        assert waiter is not None
        return waiter

    def retry(self, seconds: float) -> list[Message]:
        """What is due after so long."""
        self.clock.now += seconds
        again: list[Message] = []
        for index, attempt, message in self.it.tracker.due(self.clock.now).ready:
            redelivery = Redelivery.of(message, attempt)
            redelivery.holder, redelivery.index = self.it, index
            again.append(redelivery)
        return again


def unordered(number: int) -> HeldPartition:
    """An empty partition whose records are in no order."""
    assignment = Assignment(Partition("s", str(number)), epoch=1)
    context = ConsumerContext(clock=Clock(), queue=Lanes(Ordering.NONE))
    callbacks = PartitionCallbacks(dead_letter=lambda *_: None, reschedule=lambda _: None)
    return HeldPartition(assignment, WatermarkTracker(assignment), context, callbacks)


def in_loop(test: Callable[[], Awaitable[None]]) -> None:
    """Runs a test on virtual time."""

    async def main(_: Simulation) -> None:
        await test()

    simulate(main)
