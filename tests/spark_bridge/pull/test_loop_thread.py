"""Claims about the event loop that plain methods share."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from consumer_sdk.errors import TransientAdapterError
from consumer_sdk.spark_bridge.pull.connections import LoopThread, of_this_process

PATIENCE = 300.0
"""Seconds after which a call hangs; a busy machine may stand still for some."""


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopThread]:
    """Give a thread, and end it."""
    monkeypatch.setattr("consumer_sdk.spark_bridge.pull.connections._STOP_SECONDS", PATIENCE)
    thread = LoopThread()
    yield thread
    thread.stop()


async def double(number: int) -> int:
    """Return it doubled, after a turn of the loop."""
    await asyncio.sleep(0)
    return 2 * number


class Parts:
    """An asynchronous iterator that knows how far it came and whether it was closed."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.made = 0
        self.is_closed = False

    async def __call__(self) -> AsyncIterator[int]:
        try:
            async with asyncio.timeout(300):  # has to be left in the task that entered it
                for number in range(self.count):
                    self.made += 1
                    yield number
                    await asyncio.sleep(0)
        finally:
            self.is_closed = True


def test_a_thread_that_is_not_asked_does_not_start(loop: LoopThread) -> None:
    """Trap 17: making one starts nothing; a call does."""
    assert not loop.is_started
    assert loop.call(double(2), timeout=PATIENCE) == 4
    assert loop.is_started


async def test_a_call_from_a_running_loop_is_answered(loop: LoopThread) -> None:
    """Trap 16: notebooks and UDFs have a loop of their own in the calling thread."""
    assert loop.call(double(2), timeout=PATIENCE) == 4
    assert list(loop.iterate(Parts(3), timeout=PATIENCE)) == [0, 1, 2]


def test_an_error_of_the_work_is_raised_in_the_caller(loop: LoopThread) -> None:
    """It flies unchanged."""

    async def fail() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        loop.call(fail(), timeout=PATIENCE)


def test_work_that_takes_too_long_is_cancelled(loop: LoopThread) -> None:
    """The error may pass, and nothing goes on behind the caller's back."""
    ended: list[str] = []

    async def hang() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("cancelled")

    with pytest.raises(TransientAdapterError, match="has not answered within"):
        loop.call(hang(), timeout=0.01)
    assert ended == ["cancelled"]


def test_a_timeout_of_the_work_itself_flies_unchanged(loop: LoopThread) -> None:
    """Only the caller's bound is translated."""

    async def fail() -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        loop.call(fail(), timeout=PATIENCE)


def test_iterating_yields_each_part_once_and_closes_the_iterator(loop: LoopThread) -> None:
    """In order, to the end."""
    parts = Parts(100)
    assert list(loop.iterate(parts, timeout=PATIENCE)) == list(range(100))
    assert parts.is_closed


def test_iterating_reads_one_part_ahead_and_no_more(loop: LoopThread) -> None:
    """While the caller works on one part, the next one is made, and memory stays bounded."""
    parts = Parts(100)
    found = loop.iterate(parts, timeout=PATIENCE)
    next(found)
    for _ in range(50):
        loop.call(double(1), timeout=PATIENCE)
    assert parts.made == 2
    found.close()


def test_closing_an_iteration_early_closes_the_iterator(loop: LoopThread) -> None:
    """Trap 16: ``limit(1)`` and killed tasks leave nothing open."""
    parts = Parts(100)
    found = loop.iterate(parts, timeout=PATIENCE)
    next(found)
    found.close()
    assert parts.is_closed


def test_an_error_of_the_iterator_comes_after_the_parts_before_it(loop: LoopThread) -> None:
    """No part is lost, none is made up."""

    async def failing() -> AsyncIterator[int]:
        yield 1
        raise KeyError("mine")

    found = loop.iterate(failing, timeout=PATIENCE)
    assert next(found) == 1
    with pytest.raises(KeyError, match="mine"):
        next(found)


def test_an_iterator_that_stalls_is_given_up(loop: LoopThread) -> None:
    """Trap 18: a broker that sends nothing fails the task, and does not hang it."""
    ended: list[str] = []

    async def stalling() -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.sleep(3600)
        finally:
            ended.append("closed")

    found: list[int] = []
    with pytest.raises(TransientAdapterError, match="has not answered within"):
        # On a busy machine it may be the first part that does not come in time.
        found.extend(loop.iterate(stalling, timeout=0.05))
    assert found in ([], [1])
    assert ended == ["closed"]


def test_a_thousand_batches_leave_one_thread_and_no_task(loop: LoopThread) -> None:
    """Trap 16: nothing leaks, also when every other batch is closed early."""
    loop.call(double(1), timeout=PATIENCE)
    before = loop_threads()
    for number in range(1000):
        found = loop.iterate(Parts(3), timeout=PATIENCE)
        next(found)
        if number % 2:
            found.close()
        else:
            assert list(found) == [1, 2]
    assert loop_threads() == before
    assert loop.call(open_tasks(), timeout=PATIENCE) == 1  # the one that counts


def loop_threads() -> set[threading.Thread]:
    """Those of this kind; what else the process has comes and goes."""
    return {each for each in threading.enumerate() if each.name == "consumer_sdk broker loop"}


async def open_tasks() -> int:
    """Return how many tasks the loop has."""
    await asyncio.sleep(0)
    return len(asyncio.all_tasks())


def test_a_forked_child_gets_a_loop_of_its_own() -> None:
    """Trap 17: its parent's thread does not exist there."""
    parent = of_this_process()
    assert parent.loop.call(double(1), timeout=PATIENCE) == 2
    child = os.fork()
    if not child:
        process = of_this_process()
        is_right = process is not parent and process.loop.call(double(3), timeout=PATIENCE) == 6
        os._exit(0 if is_right else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    parent.loop.stop()


def test_a_stopped_thread_leaves_nothing_and_can_start_again() -> None:
    """What was running is cancelled; the loop is closed, or this would warn."""
    loop = LoopThread()
    before = loop_threads()
    running = loop.post(asyncio.sleep(3600))
    loop.call(double(1), timeout=PATIENCE)
    loop.stop()
    assert running.cancelled()
    assert loop_threads() == before
    assert loop.call(double(1), timeout=PATIENCE) == 2
    loop.stop()
    gc.collect()


def test_a_caller_is_answered_within_milliseconds(loop: LoopThread) -> None:
    """A call costs two thread switches, not a poll interval."""
    loop.call(double(1), timeout=PATIENCE)
    times = []
    for _ in range(100):
        began = time.perf_counter()
        loop.call(double(1), timeout=60)
        times.append(time.perf_counter() - began)
    assert min(times) < 0.01  # of many: others may be using the machine
