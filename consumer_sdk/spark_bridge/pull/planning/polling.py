"""Polling the broker for news: not too often, not too long at a time, and through an outage.

Spark's default trigger asks for the latest offset 90 times a second, and stopping a query waits for the
answer. So Spark gets each answer within half a second. The broker is sent four requests a second while
nothing happens, and is asked at once while records come in. A question that takes several requests is
asked the less often, but every two seconds at least. An outage is no news, until it has lasted too long.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

from consumer_sdk.errors import TransientAdapterError
from consumer_sdk.spark_bridge.pull.options.options import PATIENCE
from consumer_sdk.spark_bridge.pull.planning.admission import Limit

__all__ = ["PATIENCE", "Poller", "patiently"]


_ANSWER_SECONDS = 0.5
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.25
"""Seconds between two questions, for each request that one takes."""
_MOST_PAUSE = 2.0

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
Offset: TypeAlias = dict[str, Any]
Ask: TypeAlias = Callable[[Offset, Limit], Awaitable[Offset]]


async def patiently(work: Callable[[], Awaitable[_T]], patience: float = PATIENCE) -> _T:
    """The result of ``work``, tried again while the broker does not answer.

    Raises:
        TransientAdapterError: it has not for ``patience`` seconds.
    """
    loop = asyncio.get_running_loop()
    began, pause = loop.time(), 0.1
    while True:
        try:
            async with asyncio.timeout_at(began + patience):
                return await work()
        except (TransientAdapterError, TimeoutError) as error:
            if loop.time() + pause > began + patience:
                raise _given_up(patience, error) from error
            _log.info("the broker did not answer, and is asked again: %s", error)
        await asyncio.sleep(pause)
        pause = min(2 * pause, 2.0)


class Poller:
    """Asks where the next batch ends. Everything runs in one event loop.

    Args:
        ask: asks the broker; answers the start itself when there is nothing new.
        patience: seconds of an outage after which the query fails.
        cost: how many requests a question is now.
    """

    def __init__(
        self, ask: Ask, *, patience: float = PATIENCE, cost: Callable[[], int] = lambda: 1
    ) -> None:
        self._ask = ask
        self._cost = cost
        self._patience = patience
        self._pause = 0.0
        self._begins = 0.0
        self._is_first = True
        self._asking: tuple[tuple[Offset, Limit], asyncio.Task[Offset]] | None = None
        self._unanswered_since: float | None = None

    async def end(self, start: Offset, limit: Limit, *, is_final: bool) -> Offset:
        """Where the batch from ``start`` ends; ``start`` if there is no news yet.

        Args:
            start: where it begins.
            limit: Spark's.
            is_final: "no news" ends the run: it has to be true, however long that takes.

        Raises:
            TransientAdapterError: the broker has not answered for too long.
        """
        # With Trigger.Once, the first answer decides whether anything is read at all.
        if is_final or self._is_first:
            found = await patiently(lambda: self._ask(start, limit), self._patience)
            self._is_first = False
            return found
        return await self._quickly(start, limit)

    async def aclose(self) -> None:
        """Cancels a question that the broker has not answered yet."""
        if self._asking is not None:
            task = self._asking[1]
            task.cancel()
            await asyncio.wait([task])

    async def _quickly(self, start: Offset, limit: Limit) -> Offset:
        task = await self._question(start, limit)
        await asyncio.wait([task], timeout=_ANSWER_SECONDS)
        if not task.done():
            if asyncio.get_running_loop().time() >= self._begins + _ANSWER_SECONDS:
                self._outage(TimeoutError("no answer yet"))
            return start
        self._asking = None
        try:
            found = task.result()
        except TransientAdapterError as error:
            self._outage(error)
            self._pause = self._longest
            return start
        self._unanswered_since = None
        is_news = found != start
        self._pause = 0.0 if is_news else self._next_pause()
        return found

    @property
    def _longest(self) -> float:
        return min(_LONGEST_PAUSE * self._cost(), _MOST_PAUSE)

    def _next_pause(self) -> float:
        return min(max(2 * self._pause, _FIRST_PAUSE * self._cost()), self._longest)

    async def _question(self, start: Offset, limit: Limit) -> asyncio.Task[Offset]:
        """The question that is open, if it is this one; else a new one."""
        if self._asking is not None:
            asked, task = self._asking
            if asked == (start, limit):
                return task
            await self.aclose()
        self._begins = asyncio.get_running_loop().time() + self._pause
        task = asyncio.create_task(self._ask_later(self._pause, start, limit))
        self._asking = (start, limit), task
        return task

    async def _ask_later(self, pause: float, start: Offset, limit: Limit) -> Offset:
        await asyncio.sleep(pause)
        return await self._ask(start, limit)

    def _outage(self, error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        if self._unanswered_since is None:
            _log.info("the broker has not answered yet: %s", error)
            self._unanswered_since = now
        elif now - self._unanswered_since > self._patience:
            raise _given_up(self._patience, error) from error


def _given_up(patience: float, error: Exception) -> TransientAdapterError:
    return TransientAdapterError(
        f"the broker has not answered for {patience:g} s ({error}): start the query again when it "
        f"does; it goes on where Spark's checkpoint says. Longer outages: option maxOutage"
    )
