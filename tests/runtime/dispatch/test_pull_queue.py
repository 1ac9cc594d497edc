"""The queue of runs of a pull queue: its order, and what a retry's place costs."""

from __future__ import annotations

import asyncio
import math
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from random import Random
from typing import Any

import pytest

from consumer_sdk import Message
from consumer_sdk.runtime.dispatch import pull_queue
from consumer_sdk.runtime.dispatch.pull_queue import Batches, PullQueue
from consumer_sdk.runtime.dispatch.workers import TURN
from consumer_sdk.runtime.partitions.held_partition import HeldPartition
from consumer_sdk.testing import Simulation, SimulationLoop, simulate
from tests.runtime.partitions.held import unordered


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
    holdings = list(map(unordered, range(3)))
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
    queue, holding = _queue(), unordered(0)
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


# -- what waits, and of whom --------------------------------------------------------------------


def _two() -> tuple[PullQueue, HeldPartition, HeldPartition, list[Message], list[Message]]:
    """A queue with a run of three of each of two partitions, of which one record was handed out."""
    queue, first, second = _queue(), unordered(0), unordered(1)
    of_first = [_message(first, index) for index in range(3)]
    of_second = [_message(second, index) for index in range(3)]
    queue.put(first, list(of_first))
    queue.put(second, list(of_second))
    assert queue.pop() is of_first[0]
    return queue, first, second, of_first, of_second


def test_record_is_looked_for_it_is_queued_until_it_is_handed_out() -> None:
    """In the run that is being handed out and in those behind it, of its own partition; a look takes nothing."""
    queue, first, second, of_first, of_second = _two()
    queue.put(first, [_message(first, 7)])
    assert queue.find(first, 0) == ("handed out", None)
    assert queue.find(first, 2) == ("queued", of_first[2])
    assert queue.find(first, 7)[0] == "queued"
    assert queue.find(second, 0) == ("queued", of_second[0])
    assert queue.find(second, 7) == ("handed out", None)
    assert [queue.is_waiting(first, message) for message in of_first] == [False, True, True]
    assert [queue.is_waiting(second, message) for message in of_second] == [True] * 3
    assert queue.is_waiting(first, _message(first, 7))
    assert not queue.is_waiting(second, _message(second, 7))
    assert queue.key_of(first, 2) is None
    assert [m.index for m in queue.pop_batch(10)] == [1, 2, 0, 1, 2, 7]


def test_purge_takes_what_waits_of_its_partitions_and_leaves_the_rest() -> None:
    """Also what is left of the run that is being handed out; the rest is counted as before."""
    queue, first, second, of_first, of_second = _two()
    assert queue.purge([second]) == {second: of_second}
    assert queue.waiting == 2
    assert queue.pop() is of_first[1]
    queue.put(second, list(of_second))
    assert queue.purge([first]) == {first: of_first[2:]}
    assert not queue.find(first, 2)[1]
    assert queue.waiting == 3
    assert queue.pop_batch(10) == of_second
    assert queue.purge([first, second]) == {first: [], second: []}
    queue.abandon()  # nothing is being handed out
    assert queue.waiting == 0


def test_partitions_are_closed_nothing_of_theirs_is_handed_out() -> None:
    """Neither what is left of the run that is being handed out, nor what waits; a sweep returns that once."""
    queue, first, _, of_first, of_second = _two()
    queue.abandon()
    assert queue.pop() is of_first[1]
    queue.put(first, [_message(first, 7), _message(first, 8)])
    assert queue.sweep() == []
    assert queue.waiting == 6
    first.is_closed = True
    queue.abandon()
    assert queue.find(first, 2) == ("handed out", None)
    assert queue.waiting == 5
    (gone,) = queue.sweep()
    assert isinstance(gone, tuple)
    assert [message.index for message in gone[1]] == [7, 8]
    assert queue.waiting == 3
    assert queue.sweep() == []
    assert queue.pop_batch(10) == of_second


def test_restored_retry_is_held_once() -> None:
    """When it is nacked again, its retry goes ahead of all others, as any other's."""
    queue, _, second, of_first, of_second = _two()
    queue.hold(second, _message(second, 5))
    queue.put_back(second, again := _message(second, 5))
    assert queue.pop_batch(6) == [*of_first[1:], *of_second, again]
    queue.put(second, list(of_second))
    queue.put_back(second, again)
    assert queue.pop_batch(4) == [again, *of_second]


@pytest.mark.parametrize("is_closed", [False, True], ids=["gated", "closed"])
def test_gated_or_closed_queue_hands_nothing_out(*, is_closed: bool) -> None:
    """Neither of the run that is being handed out nor of others; after a gate all come in order."""
    queue, first, second, of_first, of_second = _two()
    if is_closed:
        queue.close()
    else:
        queue.set_gated(is_gated=True)
        assert queue.waiting == 0
    assert queue.pop() is None
    assert queue.pop_batch(9) == []
    assert queue.purge([second])[second] == of_second
    assert queue.find(first, 1) == ("queued", of_first[1])
    if not is_closed:
        queue.set_gated(is_gated=False)
        assert queue.waiting == 2
        assert queue.pop_batch(9) == of_first[1:]


@pytest.mark.parametrize("is_timed", [False, True])
def test_run_is_opened_its_records_that_are_settled_are_left_out(*, is_timed: bool) -> None:
    """With an ack timeout each is opened alone, so that its time begins when it is handed out."""
    opened: list[list[int]] = []
    rooms: list[int] = []

    def hand_out(_: HeldPartition, messages: list[Message]) -> list[Message]:
        opened.append([message.index for message in messages])
        return [message for message in messages if message.index % 3]

    async def make() -> PullQueue:
        watch: Any = None
        return PullQueue(hand_out, lambda: rooms.append(queue.count), watch, is_timed=is_timed)

    queue, holding = asyncio.run(make()), unordered(0)
    queue.put(holding, [_message(holding, index) for index in range(3)])
    queue.put(holding, [_message(holding, 3)])
    queue.put(holding, [_message(holding, 4)])
    assert queue.waiting == 5
    assert [message.index for message in queue.pop_batch(2)] == [1, 2]
    assert queue.waiting == 2
    assert [message.index for message in queue.pop_batch(2)] == [4]
    assert opened == ([[0], [1], [2], [3], [4]] if is_timed else [[0, 1, 2], [3], [4]])
    assert rooms == ([4, 3, 2, 1, 0] if is_timed else [2, 1, 0])
    assert queue.waiting == 0


# -- waiting ------------------------------------------------------------------------------------


class _Watch:
    """Allows all, and is told of what blocked the loop."""

    def __init__(self) -> None:
        self.until = math.inf
        self.asked = 0
        self.told: list[tuple[list[Message], float]] = []

    def allows(self) -> bool:
        self.asked += 1
        return True

    def blocked(self, messages: list[Message], seconds: float) -> None:
        self.told.append((list(messages), seconds))


def _waits(test: Callable[[PullQueue, _Watch, HeldPartition], Awaitable[None]]) -> None:
    """Runs a test with a queue on virtual time."""

    async def main(_: Simulation) -> None:
        watch: Any = _Watch()
        queue = PullQueue(lambda _, messages: messages, lambda: None, watch, is_timed=False)
        await test(queue, watch, unordered(0))

    simulate(main)


async def _rest() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_who_waits_is_woken_by_what_can_be_handed_out() -> None:
    """A record, the gate's opening, or the end; then no turn of the loop is needed for `TURN`."""

    async def test(queue: PullQueue, watch: _Watch, holding: HeldPartition) -> None:
        time = asyncio.get_running_loop().time
        assert queue.until < time()
        waiting = asyncio.create_task(queue.wait())
        await _rest()
        assert not waiting.done()
        queue.put(holding, [_message(holding, 0)])
        await waiting
        assert (watch.asked, queue.until) == (1, time() + TURN)
        await queue.wait()
        assert watch.asked == 1
        queue.set_gated(is_gated=True)
        waiting = asyncio.create_task(queue.wait())
        await _rest()
        assert not waiting.done()
        queue.set_gated(is_gated=False)
        await waiting
        assert queue.pop() is not None
        back = partial(queue.put_back, holding, _message(holding, 0))
        wakes: list[Callable[[], None]] = [back, queue.close, lambda: None]
        for wake in wakes:
            waiting = asyncio.create_task(queue.wait())
            await _rest()
            wake()
            await asyncio.wait_for(waiting, 1)
            queue.purge([holding])

    _waits(test)


def test_batch_waits_for_its_size_or_its_time_or_while_more_may_come() -> None:
    """The end, and a limit that stops the fetch, end the wait at once; at the end a failure is raised."""

    async def test(queue: PullQueue, _: _Watch, holding: HeldPartition) -> None:
        time = asyncio.get_running_loop().time
        queue.put(holding, [_message(holding, 0)])
        began = time()
        await queue.wait_for(1, began + 10)
        assert time() == began
        await queue.wait_for(2, began + 10)
        assert time() == began + 10
        waiting = asyncio.create_task(queue.wait_for(3, began + 20))
        await _rest()
        queue.put(holding, [_message(holding, 1)])
        await _rest()
        assert not waiting.done()
        queue.put(holding, [_message(holding, 2)])
        await waiting
        waiting = asyncio.create_task(queue.wait_for(4, began + 20))
        await _rest()
        queue.set_full(is_full=True)
        await waiting
        await queue.wait_for(4, began + 20)
        queue.set_full(is_full=False)
        waiting = asyncio.create_task(queue.wait_for(4, began + 20))
        await _rest()
        assert not waiting.done()
        queue.close()
        await waiting
        assert time() == began + 10

        def fail() -> None:
            raise LookupError

        with pytest.raises(LookupError):
            await anext(Batches(queue, 3, 0.0, fail))
        with pytest.raises(StopAsyncIteration):
            await anext(Batches(queue, 3, 0.0, lambda: None))

    _waits(test)


def test_pull_after_its_time_lets_the_loop_turn_once() -> None:
    """What was put meanwhile is found; a pull that is cut off in that turn gives the next one none."""

    async def test(queue: PullQueue, watch: _Watch, holding: HeldPartition) -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(queue.put, holding, [_message(holding, index) for index in range(4)])
        first = await queue.after_turn(queue.pop)
        assert first is not None
        assert first.index == 0
        assert (watch.asked, queue.until) == (1, loop.time() + TURN)
        watch.until = loop.time() + TURN / 2
        await queue.after_turn(queue.pop)
        assert queue.until == watch.until
        cut = asyncio.create_task(queue.after_turn(queue.pop))
        await asyncio.sleep(0)
        cut.cancel()
        await asyncio.wait([cut])
        assert cut.cancelled()
        assert watch.asked == 2
        pull = queue.after_turn(queue.pop)
        with pytest.raises(StopIteration) as ended:
            pull.send(None)
        assert ended.value.value.index == 2
        assert watch.asked == 3
        pull = queue.after_turn(queue.pop)
        assert pull.send(None) is None  # suspends again
        pull.close()

    _waits(test)


@pytest.mark.parametrize("size", [None, 2], ids=["messages", "batches"])
def test_loop_stood_still_before_who_pulls_and_blocks_it_is_told_of(
    monkeypatch: pytest.MonkeyPatch, size: int | None
) -> None:
    """Each of so many next pulls takes its turn, so that the step after it can be timed."""
    monkeypatch.setattr(pull_queue, "SUSPECTS", 3)

    async def test(queue: PullQueue, watch: _Watch, holding: HeldPartition) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulationLoop)
        queue.set_gated(is_gated=True)
        queue.set_gated(is_gated=False)
        messages = [_message(holding, index) for index in range(4)]
        queue.put(holding, list(messages))

        def pop() -> Any:
            return queue.pop_batch(size) if size else queue.pop()

        taken = messages[:size] if size else messages[:1]
        popped = await queue.after_turn(pop)
        assert popped == taken if size else popped is taken[0]
        assert queue.until == -math.inf
        loop.jump(5.0)
        await _rest()
        assert watch.told == [(taken, 5.0)]
        await queue.after_turn(pop)
        await _rest()
        assert len(watch.told) == 1
        queue.purge([holding])
        assert queue.until == -math.inf
        await queue.after_turn(queue.pop)
        assert queue.until == loop.time() + TURN
        assert watch.asked == 3
        loop.jump(5.0)
        await _rest()
        assert len(watch.told) == 1

    _waits(test)
