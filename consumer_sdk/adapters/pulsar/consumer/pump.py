"""Receives from one native consumer, in a thread of its own.

The client's asyncio front loses a message with each receive that is cancelled, and pays a wake-up
of the loop for each message. Here nothing that waits for the client can be cancelled: the thread
receives batches, makes messages of them, and wakes the loop once for each batch. It stops when it
is told that there is no room, and the broker's own flow control does the rest.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from time import sleep
from typing import Any

import _pulsar

from consumer_sdk.adapters.pulsar.client.faults import translate
from consumer_sdk.adapters.pulsar.client.interpreter_exit import inside
from consumer_sdk.adapters.pulsar.consumer.messages import Delivery, Unpacker
from consumer_sdk.adapters.pulsar.consumer.room import FREE, Room, Turn
from consumer_sdk.adapters.pulsar.options import POSTED

__all__ = ["Pump"]

HOLD = 0.005
"""Seconds between two looks whether the thread still receives."""


class Pump:
    """The thread.

    Args:
        consumer: the client's consumer, with a batch receive policy.
        deliver: called in the loop with each batch, in parts that ascend.
        failed: called in the loop with what a receive raised; then it has stopped.
        room: in memory, which it shares with others; None: there is no limit.

    Concurrency: belongs to a loop, but for what runs in the thread.
    """

    def __init__(
        self,
        consumer: Any,
        name: str,
        deliver: Callable[[list[Delivery]], None],
        failed: Callable[[Exception], None],
        room: Room | None = None,
    ) -> None:
        self._consumer = consumer
        self._loop = asyncio.get_running_loop()
        self._deliver = deliver
        self._failed = failed
        self._room = room
        self._may_run = threading.Event()
        self._untaken = threading.Semaphore(POSTED)
        self._in_vain = 0
        self._unpacker = Unpacker()
        self._is_stopped = False
        self._is_receiving = False
        self._thread = threading.Thread(target=self._run, name=f"pulsar {name}", daemon=True)
        self._thread.start()

    # In the loop ---------------------------------------------------------------------------

    @property
    def is_going(self) -> bool:
        """Whatever the client has is received."""
        return self._may_run.is_set()

    def go(self) -> None:
        """There is room: receive."""
        if not self._may_run.is_set():
            self._may_run.set()

    def rest(self) -> None:
        """There is no room; the batch that is being received still comes."""
        self._may_run.clear()

    async def hold(self) -> None:
        """Rests, and returns when nothing more comes.

        An event that the thread sets cannot tell: (1) the thread sees that it may not run, and
        posts that it is idle; (2) it may run again, and receives; (3) the post arrives. A batch
        of before a seek would come out after it.
        """
        self.rest()
        while self._is_receiving:  # noqa: ASYNC110 - see above
            await asyncio.sleep(HOLD)
        await asyncio.sleep(0)  # what the thread has posted before comes first

    def stop(self) -> None:
        """Ends the thread, soon. Close the consumer to end it at once."""
        self._is_stopped = True
        self._may_run.set()
        self._untaken.release()

    def _take(self, deliveries: list[Delivery]) -> None:
        self._untaken.release()
        self._deliver(deliveries)

    # In the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_stopped:
            self._may_run.wait()
            self._untaken.acquire()
            turn = self._enter()
            has_come = False
            self._is_receiving = True  # before it looks whether it may, or `hold` could miss it
            try:
                has_come = turn is not None and self._deliver_next(turn)
                if not has_come:
                    self._untaken.release()
            except Exception as error:  # noqa: BLE001 - the client's errors have no base of use
                self._is_stopped = True
                self._tell(self._failed, translate(error, self._thread.name))
            finally:
                self._is_receiving = False
            if turn is not None:
                self._stay_away(turn, has_come=has_come)

    def _stay_away(self, turn: Turn, *, has_come: bool) -> None:
        """Others receive meanwhile; nothing is reserved."""
        self._in_vain = 0 if has_come else self._in_vain + 1
        if (seconds := turn.pause(self._in_vain)) and not self._is_over():
            sleep(seconds)

    def _enter(self) -> Turn | None:
        return FREE if self._room is None else self._room.enter(self._is_over)

    def _is_over(self) -> bool:
        return self._is_stopped or not self._may_run.is_set()

    def _deliver_next(self, turn: Turn) -> bool:
        deliveries: list[Delivery] = []
        try:
            if not self._is_over():
                deliveries = self._receive(turn)
        finally:
            turn.end(deliveries)
        if deliveries:
            self._tell(self._take, deliveries)
        return bool(deliveries)

    def _receive(self, turn: Turn) -> list[Delivery]:
        # The first message wakes at once; a batch waits until it is full, or its time over.
        batch: list[Any] = []
        with inside:
            try:
                first = self._consumer.receive(turn.poll)
            except _pulsar.Timeout:
                return []
            if turn.more(first.length()):
                with suppress(_pulsar.Timeout):
                    batch = self._consumer.batch_receive()
        return self._unpacker.messages_of(first, batch)

    def _tell(self, what: Callable[..., None], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(what, *arguments)
        except RuntimeError:  # the loop was closed: nobody is left to hear
            self._is_stopped = True
