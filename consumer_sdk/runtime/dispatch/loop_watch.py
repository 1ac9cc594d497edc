"""Notices that the event loop was blocked, and hands out no record until it is known who owns the partitions.

While the loop stands still, because a handler blocks it or the process was stopped, no heartbeat is
sent and no lease renewed; after a session others have the partitions. The broker's client learns
that from its next heartbeat, up to seconds after the loop turns again. In between, a record that is
handed out would be processed beside its new owner. So if time has jumped, and the adapter cannot
say that it still holds its partitions, the gate is closed until it can. The watch looks again until
the adapter has had an answer: a session that has not ended yet may end before the delayed heartbeat
arrives.

An outage of the broker does not close the gate: the loop turns, and the broker gives no partition
to other members either.

The time alone does not tell which handler has blocked the loop, and timing each step of each
handler costs too much. So steps are timed only after the loop was blocked for a session. From then
on the watch knows which delivery blocks it again.

When pulling, only the first step of the user's task after a pull can be timed: see `Step`. A block
that comes later, or in another task, is attributed to no record, because a record must not fail for
another.
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
    """Watches the time for one consumer, if other members may take over its partitions.

    Args:
        context: what it holds, and the queue that is gated.

    Attributes:
        is_needed: others may.
        until: the time after which `look` has to be called before records are handed out.
        is_gated: whether no record may be handed out.
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
        """Watches the time and the gate, until it is cancelled."""
        while self.is_needed:
            self.look()
            await asyncio.sleep(PACE_WHILE_GATED if self.is_gated else PACE)

    def allows(self) -> bool:
        """Whether records may be handed out now."""
        return asyncio.get_running_loop().time() < self.until or self.look()

    def look(self) -> bool:
        """Closes the gate if the loop was blocked for too long, and opens it when the adapter allows.

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
        """A step of the handler of these messages took that long."""
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

    The loop calls ready callbacks in order. The task's wake-up and a look at the clock are
    scheduled one right after the other. So no step of another task comes between, and none is
    counted.

    Args:
        blocked: told of the messages, and the seconds, if it took long.
    """

    def __init__(self, blocked: Callable[[Sequence[Message], float], None]) -> None:
        self._blocked = blocked
        self._time = asyncio.get_running_loop().time
        self._messages: Sequence[Message] = ()
        self._began = math.inf

    async def begin(self) -> None:
        """Suspends the task, and begins the step. After a cancellation there is no step to time."""
        loop = asyncio.get_running_loop()
        woken = loop.create_future()
        loop.call_soon(self._wake, woken)
        await woken

    def _wake(self, woken: asyncio.Future[None]) -> None:
        if not woken.done():
            woken.set_result(None)
            asyncio.get_running_loop().call_soon(self._ended)

    def took(self, messages: Sequence[Message]) -> None:
        """Says which messages the task was handed."""
        self._messages, self._began = messages, self._time()

    def _ended(self) -> None:
        if (seconds := self._time() - self._began) > GAP:
            self._blocked(self._messages, seconds)
