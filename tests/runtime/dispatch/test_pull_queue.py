"""The queue of runs of a pull queue: its order, and what a retry's place costs."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from itertools import count
from random import Random
from typing import Any

import pytest

from consumer_sdk import Message
from consumer_sdk.records import Assignment, Partition
from consumer_sdk.runtime.dispatch.lanes import Lanes, Ordering
from consumer_sdk.runtime.dispatch.pull_queue import PullQueue
from consumer_sdk.runtime.partitions.held_partition import HeldPartition, PartitionCallbacks
from consumer_sdk.runtime.partitions.partition_state import ConsumerContext
from consumer_sdk.trackers import WatermarkTracker


def _holding(number: int) -> HeldPartition:
    assignment = Assignment(Partition("s", str(number)), epoch=1)
    context = ConsumerContext(clock=_Clock(), queue=Lanes(Ordering.NONE))
    callbacks = PartitionCallbacks(dead_letter=lambda *_: None, reschedule=lambda _: None)
    return HeldPartition(assignment, WatermarkTracker(assignment), context, callbacks)


class _Clock:
    def monotonic(self) -> float:
        return 0.0

    wall = monotonic


def _message(holding: HeldPartition, index: int) -> Message:
    message = Message.make(holding.assignment, index, b"")
    message.index = index
    return message


def _queue(*, is_timed: bool = False) -> PullQueue:
    async def make() -> PullQueue:
        watch: Any = None  # who waits asks it
        return PullQueue(lambda _, messages: messages, lambda: None, watch, is_timed=is_timed)

    return asyncio.run(make())


class _Model:
    """The same queue as one list of runs, which is searched from its front."""

    def __init__(self) -> None:
        self.runs: deque[tuple[HeldPartition, list[Message]]] = deque()

    def put(self, holding: HeldPartition, messages: list[Message]) -> None:
        self.runs.append((holding, messages))

    def put_back(self, holding: HeldPartition, message: Message, *, is_held: bool) -> None:
        before = (
            at
            for at, (owner, messages) in enumerate(self.runs, 1)
            if is_held and owner is holding and messages[0].index < message.index
        )
        self.runs.insert(max(before, default=0), (holding, [message]))

    def pop(self) -> Message | None:
        if not self.runs:
            return None
        holding, (message, *rest) = self.runs.popleft()
        if rest:
            self.runs.appendleft((holding, rest))
        return message

    def purge(self, holdings: list[HeldPartition]) -> None:
        self.runs = deque(each for each in self.runs if each[0] not in holdings)


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_queued_comes_out_in_the_order_of_the_model(seed: int) -> None:
    """New runs, retries held and not, gates and purges, of several partitions."""
    random, numbers = Random(seed), count()
    queue, model = _queue(is_timed=bool(seed % 2)), _Model()
    holdings = list(map(_holding, range(3)))
    owners = dict(zip((h.assignment for h in holdings), holdings, strict=True))
    held: list[tuple[HeldPartition, Message]] = []
    out: list[tuple[HeldPartition, Message]] = []

    def take(most: int) -> None:
        for _ in range(random.randrange(most)):
            message = queue.pop()
            assert message is model.pop()
            if message is not None:
                out.append((owners[message.assignment], message))

    for _ in range(400):
        holding = random.choice(holdings)
        match random.randrange(8):
            case 0 | 1:
                messages = [_message(holding, next(numbers)) for _ in range(random.randint(1, 4))]
                queue.put(holding, list(messages))
                model.put(holding, messages)
            case 2 | 3:
                held.append((holding, _message(holding, next(numbers))))
                queue.hold(*held[-1])
            case (4 | 5) as kind if pool := (held, out)[kind - 4]:
                each = pool.pop(random.randrange(len(pool)))
                queue.set_gated(is_gated=False)  # what was opened is a run again
                queue.put_back(*each)
                model.put_back(*each, is_held=pool is held)
            case 6 if not random.randrange(10):
                queue.purge([holding])
                model.purge([holding])
            case _:
                take(6)
    while model.runs:
        assert queue.waiting
        take(20)
    assert not queue.waiting
    assert queue.pop() is None


def _calls_for(retries: int) -> int:
    """Of handing back so many restored retries that are due together, as `Timers` does."""
    queue, holding = _queue(), _holding(0)
    messages = [_message(holding, index) for index in range(retries)]
    for message in messages:
        queue.hold(holding, message)
    called = 0

    def look(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal called
        called += event in {"call", "c_call"}

    sys.setprofile(look)
    for at in range(0, retries, 50):
        for message in reversed(messages[at : at + 50]):
            queue.put_back(holding, message)
    sys.setprofile(None)
    assert list(queue.pop_batch(retries)) == messages
    return called


def test_place_of_a_restored_retry_costs_the_same_among_many() -> None:
    """Twenty times as many that are due together cost little more for each."""
    assert _calls_for(1000) < 3 * 20 * _calls_for(50)
