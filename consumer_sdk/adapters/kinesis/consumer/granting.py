"""Asks the owner where the shards that were taken are to be read from."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from consumer_sdk.abc import AssignmentOwner
from consumer_sdk.adapters.kinesis.consumer.grants import Grant, GrantState
from consumer_sdk.errors import TransientAdapterError, TransientStoreError
from consumer_sdk.log_limits import REPEATS
from consumer_sdk.records import Assignment, Start

__all__ = ["Granting"]

log = logging.getLogger(__name__)

FIRST_BACKOFF = 0.1
LONGEST_BACKOFF = 5.0


class Granting:
    """One question at a time, for all that wait for an answer.

    Args:
        grants: all, as they are at any time.
        started: told of each that the owner has granted, with its start.
        declined: told of each that it has not.
        failed: told why the owner could not answer, unless that may pass.
    """

    def __init__(
        self,
        owner: AssignmentOwner,
        grants: Callable[[], Collection[Grant]],
        *,
        started: Callable[[Grant, Start], None],
        declined: Callable[[Grant], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._owner = owner
        self._grants = grants
        self._started = started
        self._declined = declined
        self._failed = failed
        self._offered = asyncio.Event()
        self._asking: asyncio.Task[Mapping[Assignment, Start]] | None = None
        self._asked: Sequence[Grant] = ()

    def wake(self) -> None:
        """There are new ones."""
        self._offered.set()

    async def run(self) -> None:
        """Asks for ever."""
        backoff = FIRST_BACKOFF
        while True:
            self._offered.clear()
            offered = [grant for grant in self._grants() if grant.state is GrantState.OFFERED]
            if not offered:
                await self._offered.wait()
            elif await self._ask(offered):
                backoff = FIRST_BACKOFF
            else:
                await asyncio.sleep(backoff)
                backoff = min(backoff * 2, LONGEST_BACKOFF)

    async def _ask(self, offered: Sequence[Grant]) -> bool:
        """False: to be asked again after a while."""
        self._asked = offered
        self._asking = asyncio.ensure_future(
            self._owner.assigned([grant.assignment for grant in offered])
        )
        try:
            await asyncio.wait({self._asking})
        finally:
            asking, self._asking, self._asked = self._asking, None, ()
            await _ended(asking)
        if asking.cancelled():
            return True  # by `withdraw`: some are not offered any more
        if (error := asking.exception()) is not None:
            self._complain(error)
            return False
        self._answer(offered, asking.result())
        return True

    def _complain(self, error: BaseException) -> None:
        if isinstance(error, TransientAdapterError | TransientStoreError):
            log.warning("the start of shards could not be decided yet: %s", error, extra=REPEATS)
        elif isinstance(error, Exception):
            self._failed(error)
        else:
            raise error

    def _answer(self, offered: Sequence[Grant], starts: Mapping[Assignment, Start]) -> None:
        for grant in offered:
            start = starts.get(grant.assignment)
            if grant.state is not GrantState.OFFERED:
                self._owner.lost([grant.assignment])  # while the owner was thinking
            elif start is None:
                self._declined(grant)
            else:
                self._started(grant, start)

    async def withdraw(self, grant: Grant) -> None:
        """Ends the question about a grant that is to be given up; the others are asked again."""
        while grant in self._asked and self._asking is not None:
            asking = self._asking
            asking.cancel()
            await asyncio.wait({asking})
            await asyncio.sleep(0)  # whoever asked is to see it


async def _ended(task: asyncio.Task[Mapping[Assignment, Start]]) -> None:
    """Cancels a question that is still open, and waits until it has ended; never raises for it."""
    if not task.done():
        task.cancel()
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            continue
    if not task.cancelled():
        task.exception()  # it was looked at, says asyncio
