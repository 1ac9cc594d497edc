"""Sees that the event loop stood still, and keeps records back until it is known whose they are.

While the loop stands still, because a handler blocks it or the process was stopped, no heartbeat is
sent and no lease renewed; after a session others have the partitions. The broker's client learns
that from its next heartbeat, up to seconds after the loop turns again. In between, a record that
is handed out is processed beside its new owner. So: time that has jumped, and an adapter that
cannot say that what it holds is still held, close the gate until the adapter can. That is looked at
from the jump on until the adapter has heard something: a session that still lasts may end before that,
and the heartbeat that was put off may come too late.

An outage of the broker closes no gate: the loop turns, and nobody else is told anything either.

Which handler has blocked the loop cannot be told from the time alone, and a look at the clock for
each step of each handler costs too much. So steps are timed once the loop has stood still for a
session; from then on the delivery that does it again is known.

When pulling, nobody sees the steps of the user's task but the first one after a pull: see `Step`. What
blocks the loop later, or in other tasks, is nobody's fault: a record must not fail for another.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Generator, Sequence
from types import coroutine
from typing import Any

from consumer_sdk.abc import Adapter
from consumer_sdk.records import Message
from consumer_sdk.runtime.partitions.partition_state import ConsumerContext

__all__ = ["LoopWatch", "Step", "timed"]

log = logging.getLogger(__name__)

PACE = 0.5
"""Seconds between looks."""
PACE_WHILE_GATED = 0.05
GAP = 1.0
"""Seconds between two looks, or for one step of a handler, that the loop does not take by itself."""


class LoopWatch:
    """Looks at the time for one consumer, if others may take over what it holds.

    Args:
        context: what it holds, and the queue that is gated.

    Attributes:
        is_needed: others may.
        until: who hands out records later than this has to look first.
        is_gated: nothing is handed out.
        times_steps: the steps of handlers are to be timed.
    """

    def __init__(self, adapter: Adapter, context: ConsumerContext) -> None:
        self.is_needed = type(adapter).held_until is not Adapter.held_until
        self._adapter = adapter
        self._context = context
        self._seen = math.inf
        # The last time that it stood still: for so long, and what the adapter knew when it went on.
        self._gap, self._known = 0.0, -math.inf
        self.until = math.inf
        self.is_gated = self.times_steps = False

    async def run(self) -> None:
        """Looks at the time, and at the gate, until it is cancelled."""
        while self.is_needed:
            self.look()
            await asyncio.sleep(PACE_WHILE_GATED if self.is_gated else PACE)

    def allows(self) -> bool:
        """Whether records may be handed out now."""
        return asyncio.get_running_loop().time() < self.until or self.look()

    def look(self) -> bool:
        """Closes the gate if the loop stood still for too long, and opens it again.

        Returns:
            whether records may be handed out.
        """
        now = asyncio.get_running_loop().time()
        gap, self._seen = now - self._seen, now
        held_until = self._adapter.held_until()
        if gap > GAP:
            self._gap, self._known = gap, held_until
        has_heard = held_until != self._known
        if self.is_gated:
            if now < held_until:
                self._open()
        elif now >= held_until and not has_heard:
            self._close()
        look = now + GAP if has_heard else min(now + GAP, held_until)
        self.until = -math.inf if self.is_gated else look
        return not self.is_gated

    def _close(self) -> None:
        log.warning(
            "the event loop stood still for %.1f s, and the broker has answered no heartbeat for as "
            "long as it waits for one: others may have the partitions, and no record is handed out "
            "before it has answered. Either a handler blocked the loop (run what blocks in "
            "asyncio.to_thread), or the process was stopped",
            self._gap,
        )
        self.is_gated = self.times_steps = True
        self._context.queue.set_gated(is_gated=True)

    def _open(self) -> None:
        """Whatever is held now is certain; what was lost took its memory of the blame along."""
        for holding in self._context.holdings.values():
            holding.blamed.clear()
        self.is_gated = False
        self._context.queue.set_gated(is_gated=False)

    def blocked(self, messages: Sequence[Message], seconds: float) -> None:
        """A step of their handler took so long."""
        was_gated = self.is_gated
        self.look()
        if was_gated or not self.is_gated:
            return
        holdings = self._context.holdings
        for message in messages:
            holding = holdings.get(message.assignment)
            if holding is not None:
                holding.blamed[message.position] = message.attempt
                log.warning(
                    "%s: what handles %r, attempt %d, blocked the event loop for %.1f s; that is a "
                    "failed delivery if the partition is lost by it (run what blocks in "
                    "asyncio.to_thread)",
                    *(message.partition, message.position, message.attempt, seconds),
                )


@coroutine
def timed(
    handling: Awaitable[object], blocked: Callable[[float], None]
) -> Generator[Any, None, object]:
    """Awaits a handler step by step.

    Args:
        blocked: told of each step that took long, with its seconds.
    """
    time = asyncio.get_running_loop().time
    steps: Any = handling.__await__()
    error: BaseException | None = None
    while True:
        began = time()
        try:
            awaited = steps.send(None) if error is None else steps.throw(error)
        except StopIteration as ended:
            return ended.value
        finally:
            if (seconds := time() - began) > GAP:
                blocked(seconds)
        error = None
        try:
            yield awaited
        except BaseException as raised:  # noqa: BLE001 - the handler's, a cancellation for one
            error = raised


class Step:
    """The step of a task that pulls, from where it is handed messages to where it suspends next.

    The loop calls what is ready in order. The task's wake-up and a look at the clock are put there
    one right behind the other: no step of another task comes between, and none is counted here.

    Args:
        blocked: told of the messages, and the seconds, if it took long.
    """

    def __init__(self, blocked: Callable[[Sequence[Message], float], None]) -> None:
        self._blocked = blocked
        self._time = asyncio.get_running_loop().time
        self._messages: Sequence[Message] = ()
        self._began = math.inf

    async def begin(self) -> None:
        """Suspends the task, and begins the step. Cancellation: there is none to time."""
        loop = asyncio.get_running_loop()
        woken = loop.create_future()
        loop.call_soon(self._wake, woken)
        await woken

    def _wake(self, woken: asyncio.Future[None]) -> None:
        if not woken.done():
            woken.set_result(None)
            asyncio.get_running_loop().call_soon(self._ended)

    def took(self, messages: Sequence[Message]) -> None:
        """These are what the task was handed."""
        self._messages, self._began = messages, self._time()

    def _ended(self) -> None:
        if (seconds := self._time() - self._began) > GAP:
            self._blocked(self._messages, seconds)
