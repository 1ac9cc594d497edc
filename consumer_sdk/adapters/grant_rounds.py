"""Asks the owner where grants start, for each adapter: one question at a time, which a revoke can end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Generic

from consumer_sdk.abc import AssignmentOwner
from consumer_sdk.adapters.assignment_book import Answer, AssignmentBook, G, GrantState
from consumer_sdk.errors import FencedError, TransientAdapterError, TransientStoreError
from consumer_sdk.log_limits import REPEATS

__all__ = ["GrantRounds"]

log = logging.getLogger(__name__)

FIRST_BACKOFF = 0.2
LONGEST_BACKOFF = 5.0
TRANSIENT = (TransientAdapterError, TransientStoreError, FencedError)
"""What passes: the owner is asked again, and the user hears of it in the log alone."""


class GrantRounds(Generic[G]):
    """Grants what is in the book, round by round; tells the owner of what is taken away.

    Args:
        grant_all: one round: calls `ask` for what is offered, and opens, or has opened, what has a start.
            What it raises is tried again after a back-off. It may be cancelled at any await.
        failed: told of an error that does not pass; it is to come out of fetch.
        budget: seconds that a revoke may take, with the end of a question.
    """

    def __init__(
        self,
        owner: AssignmentOwner,
        book: AssignmentBook[G],
        grant_all: Callable[[], Coroutine[Any, Any, None]],
        *,
        failed: Callable[[Exception], None],
        budget: float,
    ) -> None:
        self._owner = owner
        self._book = book
        self._grant_all = grant_all
        self._failed = failed
        self._work = asyncio.Event()
        self._round: asyncio.Task[None] | None = None
        self._ended: asyncio.Task[None] | None = None
        self._asked: Sequence[G] = ()
        self._backoff = FIRST_BACKOFF
        self.budget = budget

    # -- granting -----------------------------------------------------------------------

    def wake(self) -> None:
        """There is something to grant."""
        self._work.set()

    def wake_later(self) -> None:
        """The same after a while, which is longer each time until something is started."""
        asyncio.get_running_loop().call_later(self._backoff, self._work.set)
        self._backoff = min(self._backoff * 2, LONGEST_BACKOFF)

    async def run(self) -> None:
        """Grants what there is to grant, for ever."""
        while True:
            await self._work.wait()
            self._work.clear()
            task = self._round = asyncio.create_task(self._grant_all(), name="granting")
            try:
                await asyncio.wait({task})
            finally:
                await self.end()
                self._look_at(task)

    def _look_at(self, task: asyncio.Task[None]) -> None:
        """What it was ended with is no failure; any other cancellation is the owner's own."""
        if not task.done() or (task.cancelled() and task is self._ended):
            return
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._complain(error)
        if error is not None or task.cancelled():
            self.wake_later()

    def _complain(self, error: BaseException) -> None:
        if isinstance(error, TRANSIENT):
            log.warning("partitions are not granted yet, trying again: %s", error, extra=REPEATS)
        elif isinstance(error, Exception):
            self._failed(error)
        else:
            raise error

    async def ask(self, grants: Iterable[G]) -> Answer[G]:
        """Has the owner decide where those start that are still offered."""
        asked = self._asked = [g for g in grants if g.state is GrantState.OFFERED]
        if not asked:
            return Answer([], [], [])
        for grant in asked:  # a question that failed may have paused it; this one decides that anew
            grant.is_paused = False
        try:
            starts = await self._owner.assigned([grant.assignment for grant in asked])
        finally:
            self._asked = ()
        answer = self._book.answer(asked, starts)
        if answer.late:
            self._owner.lost([grant.assignment for grant in answer.late])
        if answer.started:
            self._backoff = FIRST_BACKOFF
        return answer

    # -- taking away --------------------------------------------------------------------

    async def end(self) -> None:
        """Ends the round that is under way. What is still offered is asked for in the next one."""
        task = self._round
        if task is not None and not task.done():
            # Once: a second cancellation would cut off what the owner does about the first.
            if task is not self._ended:
                self._ended = task
                task.cancel()
            await asyncio.wait({task}, timeout=self.budget)

    async def revoke(self, grants: Sequence[G]) -> list[G]:
        """Has the owner drain and flush, and closes them; a question about them is ended first.

        Returns:
            those that were held to the end: the others were lost meanwhile.
        """
        deadline = asyncio.get_running_loop().time() + self.budget
        self._book.drain(grants)
        try:
            if any(grant.state is GrantState.DRAINING for grant in self._asked):
                await self.end()
                self.wake()  # the others are asked for again
            await self._owner.revoked([grant.assignment for grant in grants], deadline=deadline)
        finally:
            ended = self._book.close(grants)
        return ended

    def lose(self, grants: Iterable[G]) -> None:
        """They are gone already, whatever the owner is doing with them."""
        ended = self._book.close(grants)
        if ended:
            self._owner.lost([grant.assignment for grant in ended])
