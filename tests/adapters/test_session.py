"""What adapters that read ahead share: turns, waits, and the life of a session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any

import pytest

from consumer_sdk.adapters.session import ReadAheadSession, Turns, fetch
from consumer_sdk.errors import AdapterError
from consumer_sdk.records import Assignment, Message, Partition, Run
from consumer_sdk.testing import Simulation, simulate
from tests.runtime.event_loops import run_on


def _run(name: str, records: int, size: int) -> Run:
    own = Assignment(Partition("s", name), epoch=1)
    return Run(own, [Message.make(own, at, b"") for at in range(records)], size=size)


class _ReadAhead:
    """A partition with so many records; each is of ten bytes."""

    def __init__(self, name: str, records: int = 0) -> None:
        self.name, self.records = name, records
        self.asked: list[tuple[int, int]] = []

    @property
    def has_run(self) -> bool:
        return self.records > 0

    def take(self, max_records: int, max_bytes: int) -> Run:
        self.asked.append((max_records, max_bytes))
        taken = min(self.records, max_records)
        self.records -= taken
        return _run(self.name, taken, 10 * taken)


def _names(runs: list[Run]) -> list[tuple[str, int]]:
    return [(run.assignment.partition.id, len(run.messages)) for run in runs]


# -- turns ----------------------------------------------------------------------------------------


def test_each_partition_is_the_first_in_its_turn() -> None:
    """A busy one does not keep the others from being read."""
    turns = Turns()

    def take(name: str, _records: int, _size: int) -> Run:
        return _run(name, 1, 1)

    firsts = [_names(turns.take("abc", take, 1, 100)) for _ in range(6)]
    assert firsts == [[("b", 1)], [("c", 1)], [("a", 1)]] * 2
    assert _names(turns.take("abc", take, 9, 100)) == [("b", 1), ("c", 1), ("a", 1)]
    assert turns.take("", take, 9, 100) == []
    assert _names(turns.take("abc", take, 1, 100)) == [("c", 1)]


def test_runs_are_taken_within_limits_of_records_and_bytes() -> None:
    """Each is told what is left; one that has nothing counts for nothing."""
    asked: list[tuple[str, int, int]] = []

    def take(name: str, records: int, size: int) -> Run | None:
        asked.append((name, records, size))
        return None if name == "c" else _run(name, 2, 30)

    found = Turns().take("abcde", take, 5, 1000)
    assert asked == [("b", 5, 1000), ("c", 3, 970), ("d", 3, 970), ("e", 1, 940)]
    assert _names(found) == [("b", 2), ("d", 2), ("e", 2)]
    asked.clear()
    assert _names(Turns().take("abd", take, 4, 1000)) == [("b", 2), ("d", 2)]
    assert _names(Turns().take("abd", take, 100, 60)) == [("b", 2), ("d", 2)]
    assert Turns().take("abd", take, 0, 60) == Turns().take("abd", take, 60, 0) == []


# -- waits ----------------------------------------------------------------------------------------


def test_fetch_waits_for_news_and_no_longer_than_it_may() -> None:
    """News that come while it collects are not slept through."""

    async def main(simulation: Simulation) -> None:
        del simulation
        loop, news = asyncio.get_running_loop(), asyncio.Event()
        found: list[list[Run]] = []
        looks: list[float] = []

        async def collect() -> list[Run]:
            looks.append(loop.time())
            return found.pop(0) if found else []

        assert await fetch(collect, news, 2.0) == []
        assert looks == [0.0, 2.0]
        looks.clear()
        assert await fetch(collect, news, 0.0) == []
        assert looks == [2.0]

        looks.clear()
        some = [_run("a", 1, 1)]
        found[:] = [[], some]
        loop.call_later(0.5, news.set)
        assert await fetch(collect, news, 2.0) is some
        assert looks == [2.0, 2.5]

        looks.clear()
        news.set()  # of before: it is looked at once
        assert await fetch(collect, news, 1.0) == []
        assert looks == [2.5, 3.5]

        async def collect_while_more_comes() -> list[Run]:
            looks.append(loop.time())
            await asyncio.sleep(0.25)
            news.set()
            return some if len(looks) == 2 else []

        looks.clear()
        assert await fetch(collect_while_more_comes, news, 5.0) is some
        assert looks == [3.5, 3.75]
        found[:] = [[], some]
        loop.call_later(0.5, news.set)
        assert await fetch(collect, news, 2.0) is some
        assert not news.is_set()
        await asyncio.sleep(10)
        assert not news.is_set()  # no timer is left

    simulate(main)


# -- sessions -------------------------------------------------------------------------------------


class _Session(ReadAheadSession):
    """Runs one duty, and notes how it is closed."""

    def __init__(
        self,
        *partitions: _ReadAhead,
        duty: Callable[[], Coroutine[Any, Any, None]] | None = None,
        news: asyncio.Event | None = None,
    ) -> None:
        super().__init__("test", lambda: partitions, news)
        self.duty = duty or (lambda: asyncio.sleep(1000))
        self.closed = 0

    def _duties(self) -> Collection[Coroutine[Any, Any, None]]:
        return [self.duty()]

    async def _close(self) -> None:
        await asyncio.sleep(1)
        await self._end_tasks()
        self.closed += 1


def _simulated(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def main(_simulation: Simulation) -> None:
        await test()

    simulate(main)


def test_session_reads_what_is_ready_and_wakes_who_waits() -> None:
    """Each partition in its turn; its news may be shared with others."""

    async def test() -> None:
        first, empty, last = _ReadAhead("0", 3), _ReadAhead("1"), _ReadAhead("2", 3)
        news = asyncio.Event()
        session = _Session(first, empty, last, news=news)
        assert session.news is news
        session._begin()
        assert _names(await session.fetch(4, 100, 1.0)) == [("2", 3), ("0", 1)]
        assert first.asked == [(1, 70)]
        assert empty.asked == []
        assert _names(await session.fetch(4, 100, 1.0)) == [("0", 2)]
        asyncio.get_running_loop().call_later(0.5, news.set)
        empty.records = 1
        assert _names(await session.fetch(4, 100, 1.0)) == [("1", 1)]
        await session.aclose()

    _simulated(test)


@pytest.mark.parametrize("kind", ["asyncio", "eager"])
def test_duties_begin_in_the_session_once_it_knows_its_task(kind: str) -> None:
    """Also where a task begins before `create_task` returns; what they spawn is awaited."""

    async def main() -> None:
        begun: list[bool] = []

        async def duty() -> None:
            begun.append(session._main is not None)
            await session._spawn(asyncio.sleep(0))
            begun.append(True)

        session = _Session(duty=duty)
        session._begin()
        for _ in range(5):
            await asyncio.sleep(0)
        assert begun == [True, True]
        await session.run()

    run_on(kind, main)


def test_failure_comes_out_of_one_fetch_and_the_session_goes_on() -> None:
    """Whoever waits for records hears of it at once."""

    async def test() -> None:
        session = _Session(_ReadAhead("0"))
        session._begin()
        loop = asyncio.get_running_loop()
        loop.call_later(0.5, session._failed, AdapterError("refused"))
        with pytest.raises(AdapterError, match="refused"):
            await session.fetch(4, 100, 5.0)
        assert loop.time() == 0.5
        assert await session.fetch(4, 100, 1.0) == []
        await session.aclose()

    _simulated(test)


def test_duty_that_fails_ends_the_session_for_all_who_ask() -> None:
    """With its own error, each time; whoever waits for records hears of it at once."""

    async def fail() -> None:
        await asyncio.sleep(0.5)
        raise AdapterError("gone")

    async def test() -> None:
        session = _Session(_ReadAhead("0"), duty=fail)
        await session.run()  # not begun: there is nothing to wait for
        session.raise_error()
        session._begin()
        with pytest.raises(AdapterError, match="gone"):
            await session.fetch(4, 100, 5.0)
        assert asyncio.get_running_loop().time() == 0.5
        for _ in range(2):
            with pytest.raises(AdapterError, match="gone"):
                await session.run()
            with pytest.raises(AdapterError, match="gone"):
                session.raise_error()
        await session.aclose()

    _simulated(test)


def test_duty_that_ends_or_is_aborted_is_no_failure() -> None:
    """What waits for the end returns."""

    async def test() -> None:
        session = _Session(_ReadAhead("0"), duty=lambda: asyncio.sleep(1))
        session._begin()
        await session.run()
        assert asyncio.get_running_loop().time() == 1
        session.raise_error()
        aborted = _Session(_ReadAhead("0"))
        aborted.abort()  # not begun
        aborted._begin()
        await asyncio.sleep(1)
        aborted.abort()
        await aborted.run()
        aborted.raise_error()

    _simulated(test)


def test_session_is_closed_once_and_to_its_end() -> None:
    """A cancelled close goes on; a second one waits for the first, and both for what its tasks do."""
    ended: list[float] = []

    async def duty() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(2)
            ended.append(asyncio.get_running_loop().time())

    async def test() -> None:
        session = _Session(_ReadAhead("0"), duty=duty)
        session._begin()
        closing = asyncio.create_task(session.aclose())
        await asyncio.sleep(0.5)
        closing.cancel()
        await asyncio.wait({closing})
        assert closing.cancelled()
        await session.aclose()
        await session.aclose()
        assert (session.closed, ended) == (1, [3.0])
        assert asyncio.get_running_loop().time() == 3
        unopened = _Session(_ReadAhead("0"))
        await unopened.aclose()
        assert unopened.closed == 1

    _simulated(test)
