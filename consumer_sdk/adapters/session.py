"""What adapters that read ahead share: how a fetch waits, whose turn it is, their tasks and their end."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from consumer_sdk.records import Run

__all__ = ["ReadAheadSession", "Turns", "fetch"]

T = TypeVar("T")


class Turns:
    """Whose turn it is to come first."""

    def __init__(self) -> None:
        self._turn = 0

    def take(
        self,
        ready: Sequence[T],
        take: Callable[[T, int, int], Run | None],
        max_records: int,
        max_bytes: int,
    ) -> list[Run]:
        """The next runs, within limits of records and (soft) bytes.

        Args:
            ready: partitions of which something may be taken.
            take: what is next of one, within limits; one record at least, if there is one.
        """
        if ready:
            self._turn = (self._turn + 1) % len(ready)
        runs: list[Run] = []
        for partition in (*ready[self._turn :], *ready[: self._turn]):
            if max_records <= 0 or max_bytes <= 0:
                break
            run = take(partition, max_records, max_bytes)
            if run is not None:
                runs.append(run)
                max_records -= len(run.messages)
                max_bytes -= run.size
        return runs


async def fetch(
    collect: Callable[[], Awaitable[list[Run]]], news: asyncio.Event, max_wait: float
) -> list[Run]:
    """What ``collect`` has, waiting up to ``max_wait`` seconds for some.

    Args:
        news: set whenever there may be something.

    Cancellation: loses nothing if that of ``collect`` does not.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + max_wait
    while True:
        # Cleared first: news that come while something is collected are not slept through.
        news.clear()
        runs = await collect()
        if runs or loop.time() >= until:
            return runs
        timer = loop.call_at(until, news.set)
        try:
            await news.wait()
        finally:
            timer.cancel()


class Partition(Protocol):
    """Something that is read ahead."""

    @property
    def has_run(self) -> bool:
        """`take` has something."""
        ...

    def take(self, max_records: int, max_bytes: int) -> Run:
        """The next run."""
        ...


class ReadAheadSession(ABC):
    """From open to close.

    Args:
        name: of its tasks.
        partitions: those held, as they are at any time.
        news: one that others share; by default its own.

    Attributes:
        news: set when there may be something to fetch.
    """

    def __init__(
        self,
        name: str,
        partitions: Callable[[], Iterable[Partition]],
        news: asyncio.Event | None = None,
    ) -> None:
        self.news = asyncio.Event() if news is None else news
        self._name = name
        self._partitions = partitions
        self._turns = Turns()
        self._error: Exception | None = None
        self._tasks = asyncio.TaskGroup()
        self._main: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    # -- tasks --------------------------------------------------------------------------

    @abstractmethod
    def _duties(self) -> Collection[Coroutine[Any, Any, None]]:
        """What is to be done until the end."""

    def _begin(self) -> None:
        self._main = asyncio.create_task(self._live(), name=self._name)
        self._main.add_done_callback(lambda _: self.news.set())

    async def _live(self) -> None:
        if self._main is None:  # an eager task: the adapter does not say yet that it is open
            await asyncio.sleep(0)
        async with self._tasks:
            for duty in self._duties():
                _ = self._spawn(duty)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._tasks.create_task(work)

    async def run(self) -> None:
        """Waits for the end.

        Raises:
            ConsumerSdkError: what has ended it.
        """
        if self._main is not None:
            await asyncio.wait({self._main})
            self._raise_end()

    def _raise_end(self) -> None:
        if self._main is not None and self._main.done() and not self._main.cancelled():
            error: BaseException | None = self._main.exception()
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            if error is not None:
                raise error

    # -- fetching -----------------------------------------------------------------------

    def _failed(self, error: Exception) -> None:
        """It comes out of the next fetch, once."""
        self._error = error
        self.news.set()

    async def fetch(self, max_records: int, max_bytes: int, max_wait: float) -> list[Run]:
        """The next runs, each partition in its turn; waits for some without polling."""

        async def collect() -> list[Run]:
            self.raise_error()
            ready = [partition for partition in self._partitions() if partition.has_run]
            return self._turns.take(ready, _take, max_records, max_bytes)

        return await fetch(collect, self.news, max_wait)

    def raise_error(self) -> None:
        """Raises what has failed, once, or what has ended it."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        self._raise_end()

    # -- the end ------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Gives everything up, in order. Idempotent; once begun, it goes on to its end."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name=f"{self._name} close")
        await asyncio.shield(self._closing)

    @abstractmethod
    async def _close(self) -> None:
        """The steps of `aclose`."""

    async def _end_tasks(self) -> None:
        if self._main is not None:
            self.abort()
            await asyncio.gather(self._main, return_exceptions=True)

    def abort(self) -> None:
        """Ends the tasks where they are, as a death of the process would: nothing is given up."""
        if self._main is not None:
            self._main.cancel()


def _take(partition: Partition, max_records: int, max_bytes: int) -> Run:
    return partition.take(max_records, max_bytes)
