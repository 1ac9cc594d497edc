"""A process that ends, forks or collects garbage around an open Pulsar consumer.

``python -m tests.integration.pulsar_exits SHAPE SERVICE_URL TOPIC``; says "good" when all went as it should.
A shape is how the process ends and when: ``leave-working``, or so many seconds after the consumer has
begun to open, ``leave-0.1``.

One that takes longer than `LONG` writes the stacks of its threads to standard error, and again after as much.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import os
import sys
import threading
import warnings
from collections.abc import Callable

from consumer_sdk import Consumer, Message, Ordering
from consumer_sdk.adapters import PulsarAdapter
from consumer_sdk.errors import ConsumerClosedError
from tests.integration.pulsar_field import GROUP

__all__ = ["LONG", "SHAPES"]

LONG = 60.0
"""Seconds after which an exit has to explain itself. Most take less than three."""

ENOUGH = 10
"""Records that are acked when a consumer is at work."""


class Exit:
    """What the process is to end with.

    Args:
        seconds: after the consumer has begun to open; None: when it is at work.
    """

    def __init__(self, service_url: str, topic: str, seconds: float | None) -> None:
        self._service_url = service_url
        self._topic = topic
        self._seconds = seconds
        self._is_at_work = threading.Event()
        self._left: list[object] = []

    def consumer(self) -> Consumer:
        """One of its own client."""
        adapter = PulsarAdapter(
            self._topic,
            service_url=self._service_url,
            subscription=GROUP,
            type="shared",
            receiver_queue=2 * ENOUGH,  # the rest is for the other processes
        )
        return Consumer(adapter, flush_interval=0)

    async def run(self, consumer: Consumer) -> None:
        """Handles records for ever."""
        handled: list[Message] = []

        async def handle(message: Message) -> None:
            handled.append(message)
            await asyncio.sleep(0.005)
            if len(handled) > ENOUGH:
                self._is_at_work.set()

        await consumer.run(handle, concurrency=2, ordering=Ordering.NONE, handle_signals=False)

    async def pull(self, consumer: Consumer) -> None:
        """Acks records for ever."""
        async with consumer:
            async for message in consumer:
                message.ack()
                await asyncio.sleep(0.005)
                self._is_at_work.set()

    def wait(self) -> None:
        """Until the time has come."""
        self._is_at_work.wait(60 if self._seconds is None else self._seconds)

    async def begin(self, consumer: Consumer) -> None:
        """Until the time has come: some records are acked, and the flush of that is under way."""
        opening = asyncio.create_task(consumer._open())
        self._left.append(opening)
        if self._seconds is not None:
            await asyncio.sleep(self._seconds)
            return
        await opening
        messages = aiter(consumer)
        for _ in range(ENOUGH):
            (await anext(messages)).ack()
        await asyncio.sleep(0.01)


def _good() -> None:
    sys.stdout.write("good")
    sys.stdout.flush()


def leave(exit_: Exit) -> None:
    """Everything is open."""
    consumer = exit_.consumer()
    asyncio.new_event_loop().run_until_complete(exit_.begin(consumer))
    _good()
    sys.exit(0)


def close(exit_: Exit) -> None:
    """As it should be."""
    asyncio.run(_closed(exit_))
    _good()


async def _closed(exit_: Exit) -> None:
    consumer = exit_.consumer()
    await exit_.begin(consumer)
    await consumer.aclose()


def forget(exit_: Exit) -> None:
    """The loop is closed in order, and the consumer is not."""
    asyncio.run(exit_.begin(exit_.consumer()))
    _good()


def close_loop(exit_: Exit) -> None:
    """The loop goes while the client has callbacks to make."""
    consumer, loop = exit_.consumer(), asyncio.new_event_loop()
    loop.run_until_complete(exit_.begin(consumer))
    loop.close()
    threading.Event().wait(0.5)  # they are made now
    _good()


def collect(exit_: Exit) -> None:
    """The consumer is collected in another thread, and so is the native client."""
    holder, loop = [exit_.consumer()], asyncio.new_event_loop()
    loop.run_until_complete(exit_.begin(holder[0]))
    loop.close()
    holder.clear()
    thread = threading.Thread(target=gc.collect)
    thread.start()
    thread.join()
    threading.Event().wait(0.5)
    _good()


def daemon_run(exit_: Exit) -> None:
    """A handler runs in a daemon thread."""
    _in_daemon(lambda: exit_.run(exit_.consumer()))
    exit_.wait()
    _good()


def daemon_pull(exit_: Exit) -> None:
    """Records are pulled in a daemon thread."""
    _in_daemon(lambda: exit_.pull(exit_.consumer()))
    exit_.wait()
    _good()


def daemons(exit_: Exit) -> None:
    """Several daemon threads, each with a consumer."""
    for _ in range(3):
        _in_daemon(lambda: exit_.run(exit_.consumer()))
    exit_.wait()
    _good()


def _in_daemon(work: Callable[[], object]) -> None:
    threading.Thread(target=lambda: asyncio.run(work()), daemon=True).start()  # type: ignore[arg-type]  # a coroutine


def stop_loop(exit_: Exit) -> None:
    """``loop.stop()`` under `asyncio.run`, which cancels everything then."""
    with contextlib.suppress(RuntimeError):
        asyncio.run(_when_due(exit_, lambda loop: loop.stop()))
    _good()


def stop_and_leave(exit_: Exit) -> None:
    """The loop is stopped, and nothing is cancelled."""
    loop = asyncio.new_event_loop()
    exit_._left.append(loop.create_task(_when_due(exit_, lambda loop: loop.stop())))
    loop.run_forever()
    _good()


def leave_by_a_callback(exit_: Exit) -> None:
    """`sys.exit` somewhere in the loop."""
    _good()
    asyncio.run(_when_due(exit_, lambda _: sys.exit(0)))


async def _when_due(exit_: Exit, end: Callable[[asyncio.AbstractEventLoop], None]) -> None:
    loop = asyncio.get_running_loop()

    def wait() -> None:
        exit_.wait()
        loop.call_soon_threadsafe(end, loop)

    threading.Thread(target=wait).start()
    await exit_.run(exit_.consumer())


def cancel(exit_: Exit) -> None:
    """`Consumer.run` is cancelled, and the program ends."""
    asyncio.run(_cancelled(exit_))
    _good()


async def _cancelled(exit_: Exit) -> None:
    running = asyncio.create_task(exit_.run(exit_.consumer()))
    await asyncio.to_thread(exit_.wait)
    running.cancel()
    await asyncio.wait({running})


def fork(exit_: Exit) -> None:
    """The child may not use it, and ends; the parent goes on."""
    asyncio.run(_forked(exit_))


async def _forked(exit_: Exit) -> None:
    consumer = exit_.consumer()
    await exit_.begin(consumer)
    child = os.fork()
    if child == 0:
        os._exit(0 if _is_refused(consumer) else 1)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    messages = aiter(consumer)
    for _ in range(ENOUGH):
        (await anext(messages)).ack()
    await consumer.flush()
    await consumer.aclose()
    assert status == 0, f"the child: {status}"
    _good()


def _is_refused(consumer: Consumer) -> bool:
    try:
        aiter(consumer)
    except ConsumerClosedError as error:
        return "parent process" in str(error)
    return False


HOWS: tuple[Callable[[Exit], None], ...] = (
    *(close, leave, forget, close_loop, collect, daemon_run, daemon_pull, daemons),
    *(stop_loop, stop_and_leave, leave_by_a_callback, cancel),
)
SHAPES: dict[str, tuple[Callable[[Exit], None], float | None]] = {
    f"{how.__name__}-{'working' if seconds is None else seconds}": (how, seconds)
    for seconds in (None, 0.02, 0.2)
    for how in HOWS
}
SHAPES["fork-working"] = (fork, None)

if __name__ == "__main__":
    # At exit too: a thread of its own writes, and stops only when the interpreter itself is gone.
    faulthandler.enable()
    faulthandler.dump_traceback_later(LONG, repeat=True)
    warnings.simplefilter("ignore")  # nothing is closed, on purpose
    shape, service_url, topic = sys.argv[1:]
    found, when = SHAPES[shape]
    found(Exit(service_url, topic, when))
