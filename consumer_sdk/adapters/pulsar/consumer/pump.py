"""Receives from one native consumer in a thread, and hands what comes over to the event loop.

The client's asyncio front loses a message with each receive that is cancelled, and wakes the loop for each
message. Here no wait for the client can be cancelled: the thread receives batches, makes messages
of them, and wakes the loop once for each batch. The loop pauses the thread while there is no room.
Then the broker's flow control stops sending, because the client gives it no more permits.

How a batch is handed over:
1. The thread takes a slot (`_untaken`), waits for memory (`ReadAheadBudget.enter`), and receives.
2. The budget counts what has come (`Turn.end`) before the loop hears of it.
3. The thread posts the batch to the loop (`_tell`), and begins again. With `POSTED` batches posted it waits
   for a slot: a loop that is blocked would otherwise fill the memory.
4. The loop gives the slot back (`_take`), and delivers the batch. The owner of the pump checks that
   this native consumer still belongs to the partition.
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
from consumer_sdk.adapters.pulsar.consumer.read_ahead_budget import FREE, ReadAheadBudget, Turn
from consumer_sdk.adapters.pulsar.options import POSTED

__all__ = ["Pump"]

HOLD = 0.005
"""Seconds between two looks whether the thread still receives."""


class Pump:
    """The thread that receives from one native consumer.

    Args:
        consumer: the client's consumer, with a batch receive policy.
        name: of the topic, for the thread's name.
        deliver: called in the loop with each batch, in parts whose positions ascend.
        failed: called in the loop with the error of a receive; the thread has ended then.
        budget: of memory, which all partitions share; None: there is no limit.

    Concurrency: belongs to an event loop, but for what runs in the thread.
    """

    def __init__(
        self,
        consumer: Any,
        name: str,
        deliver: Callable[[list[Delivery]], None],
        failed: Callable[[Exception], None],
        budget: ReadAheadBudget | None = None,
    ) -> None:
        self._consumer = consumer
        self._loop = asyncio.get_running_loop()
        self._deliver = deliver
        self._failed = failed
        self._budget = budget
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
        """The thread receives whatever the client has."""
        return self._may_run.is_set()

    def go(self) -> None:
        """Has the thread receive, since there is room."""
        if not self._may_run.is_set():
            self._may_run.set()

    def rest(self) -> None:
        """Has the thread stop receiving, since there is no room; the batch that is on its way still comes."""
        self._may_run.clear()

    async def hold(self) -> None:
        """Rests, and returns when nothing more comes, so that no batch of before a seek comes after it.

        Cancellation: the pump rests.
        """
        self.rest()
        # An event that the thread sets when it is idle would not do:
        # 1. the thread sees that it may not run, and posts that it is idle;
        # 2. the loop lets it run again, and it receives; the loop holds it once more;
        # 3. the post of step 1 arrives, and a batch is still on its way.
        # So the loop looks at what the thread does now.
        while self._is_receiving:  # noqa: ASYNC110 - see above
            await asyncio.sleep(HOLD)
        await asyncio.sleep(0)  # the loop runs what the thread has posted before that

    def stop(self) -> None:
        """Ends the thread, soon. Close the native consumer to end it at once."""
        self._is_stopped = True  # before it is woken, or it would go on
        self._may_run.set()
        self._untaken.release()  # it may wait for a slot, which a busy loop gives back late

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
            # Set before `_deliver_next` looks whether it may receive. The other way round:
            # 1. the thread sees that it may; 2. `hold` takes that back, and finds nobody receiving;
            # 3. the thread receives, and a batch of before the seek comes out after it.
            self._is_receiving = True
            try:
                has_come = turn is not None and self._deliver_next(turn)
                if not has_come:
                    self._untaken.release()
            except Exception as error:  # noqa: BLE001 - the client's errors have no common base
                self._is_stopped = True
                self._tell(self._failed, translate(error, self._thread.name))
            finally:
                self._is_receiving = False
            if turn is not None:
                self._stay_away(turn, has_come=has_come)

    def _stay_away(self, turn: Turn, *, has_come: bool) -> None:
        """Lets other partitions receive for a while; nothing is reserved meanwhile."""
        self._in_vain = 0 if has_come else self._in_vain + 1
        if (seconds := turn.pause(self._in_vain)) and not self._is_over():
            sleep(seconds)

    def _enter(self) -> Turn | None:
        return FREE if self._budget is None else self._budget.enter(self._is_over)

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
        # `receive` returns with the first message at once; a batch waits until it is full or its time is over.
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
