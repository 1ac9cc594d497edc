"""Takes partitions away from their owner: with a drain, or at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from consumer_sdk.adapters.assignment_book import AssignmentBook
from consumer_sdk.adapters.grant_rounds import GrantRounds
from consumer_sdk.adapters.kafka.consumer.grants import Grant

__all__ = ["Failures", "Revoking"]

log = logging.getLogger(__name__)

OVERRUN = 0.5
"""Seconds past its deadline after which a revoke is no longer waited for."""


class Failures:
    """Errors that happened where nobody listens; fetch raises them.

    Args:
        wake: called when there is one.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._error: BaseException | None = None

    def keep(self, error: BaseException) -> None:
        """Keeps the first error until it is raised."""
        log.error("%r", error, exc_info=error)
        if self._error is None:
            self._error = error
        self._wake()

    def raise_kept(self) -> None:
        """Raises what was kept, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error


class Revoking:
    """The owner's side of losing partitions, kept from harming the client."""

    def __init__(
        self, rounds: GrantRounds[Grant], grants: AssignmentBook[Grant], failures: Failures
    ) -> None:
        self._rounds = rounds
        self._grants = grants
        self._failures = failures

    async def revoke_all(self) -> None:
        """Ends the granting first. Whoever comes second finds nothing left."""
        await self._rounds.end()
        await self.revoke(list(self._grants))

    async def revoke_some(self, grants: Sequence[Grant], *, ends_round: bool) -> None:
        """The same of a part of what is held; the rest goes on.

        Args:
            ends_round: the granting may be revoking one of them itself, and is begun anew.
        """
        if ends_round:
            await self._rounds.end()
            self._rounds.wake()
        await self.revoke([grant for grant in grants if not grant.is_closed])

    async def revoke(self, grants: Sequence[Grant]) -> None:
        """Lets the owner drain and flush, then closes the grants: their commits are refused.

        Bounded: an owner that overruns has lost them.
        """
        if grants and not await self._contain(self._rounds.revoke(grants)):
            names = [str(grant.assignment.partition) for grant in grants]
            log.error("the drain did not end in time: %s", names)
            self.lose(grants)

    def lose(self, grants: Sequence[Grant]) -> None:
        """They are gone already, whatever the owner is doing with them."""
        try:
            self._rounds.lose(grants)
        except Exception as error:  # noqa: BLE001 - the client would swallow it
            self._failures.keep(error)

    async def _contain(self, work: Coroutine[Any, Any, object]) -> bool:
        """Runs the owner's code in a task of its own; False when it overran.

        Nothing that it does, not even a CancelledError, ends the client's coordination task.
        """
        task = asyncio.ensure_future(work)
        done, _pending = await asyncio.wait({task}, timeout=self._rounds.budget + OVERRUN)
        if not done:
            task.cancel()
            return False
        if not task.cancelled() and (error := task.exception()):
            self._failures.keep(error)
        return True
