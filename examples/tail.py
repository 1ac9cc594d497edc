"""A consumer of your own, built from a tracker and a store: it follows a file, and handles each line.

python examples/tail.py app.log --store app.db

A line's position is the offset of its first byte. Each line is handled at least once, up to four lines at
a time, in any order. After a restart, handled lines are not handled again. A line that fails three times
goes to ``app.log.dead``. It runs until SIGTERM or Ctrl-C. After a ``kill -9`` no line is lost, and lines
that were handled in the last tenth of a second are handled again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from consumer_sdk import (
    FencedError,
    Message,
    Partition,
    PositionOutOfRangeError,
    RetryPolicy,
    WatermarkTracker,
)
from consumer_sdk.abc import StoreItem
from consumer_sdk.records import Arrival, Assignment, Redelivery, Run, VerdictKind
from consumer_sdk.stores import LocalStore
from consumer_sdk.trackers import decode_checkpoint, encode_checkpoint

BROKER, GROUP = "file", "tail"
PAUSE = 0.05
"""Seconds between looks at the file, the retries and the acks."""
READ_BYTES = 65536
MAX_UNSETTLED = 1000


class Tail:
    """Follows one file. A store keeps its checkpoint, under the file's path."""

    def __init__(
        self, path: Path, store: LocalStore, handle: Callable[[Message], Awaitable[None]]
    ) -> None:
        self._dead = path.with_name(f"{path.name}.dead")
        self._file = path.open("rb")
        self._store = store
        self._handle = handle
        self._slots = asyncio.Semaphore(4)
        self._tasks: set[asyncio.Task[None]] = set()
        self._assignment = Assignment(Partition(BROKER, str(path.resolve())), epoch=1)
        # Another file at this path has another number: the checkpoint is not used for it.
        self._identity = str(os.fstat(self._file.fileno()).st_ino)
        self._tracker = WatermarkTracker(
            self._assignment,
            policy=RetryPolicy(max_attempts=3, initial=0.1),
            flush_interval=0.1,
            identity=self._identity,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Follows the file until ``stop`` is set, then finishes the lines that are being handled."""
        await self._restore()
        while not stop.is_set():
            self._take_retries()
            if self._tracker.unsettled < MAX_UNSETTLED:
                self._take(self._read())
            await self._flush()
            await asyncio.sleep(PAUSE)
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self._flush(force=True)
        self._tracker.close()

    async def _restore(self) -> None:
        """Claims the checkpoint, so that a former owner can no longer write it."""
        text = (await self._store.claim(GROUP, [self._assignment]))[self._assignment]
        if not isinstance(text, str):
            return  # the first start: from the beginning
        checkpoint = decode_checkpoint(
            text,
            broker=BROKER,
            partition=self._assignment.partition,
            identity=self._identity,
            decode_position=int,
        )
        start = checkpoint.start or 0
        if start > os.fstat(self._file.fileno()).st_size:
            raise PositionOutOfRangeError(f"{self._file.name} was cut below {start}")
        self._tracker.restore(checkpoint, time.monotonic(), time.time(), durable=True)
        self._file.seek(start)

    def _read(self) -> Run:
        """Reads the next whole lines, without a last line that is still being written."""
        run, position = Run(self._assignment, ascends=True), self._file.tell()
        for line in self._file.readlines(READ_BYTES):
            if not line.endswith(b"\n"):
                break
            run.messages.append(Message.make(self._assignment, position, line[:-1]))
            position += len(line)
            run.size += len(line)
        self._file.seek(position)
        run.next_position = position
        return run

    def _take(self, run: Run) -> None:
        """Tracks lines. Those that the checkpoint has as settled are dropped, and failures keep their count."""
        tracked = self._tracker.track(run, time.monotonic())
        for message, arrival in tracked.arrivals(tracked.bind(run.messages)):
            if arrival is Arrival.DELIVER:
                self._start(message)
            elif arrival is Arrival.EXHAUSTED:
                self._give_up(message)

    def _take_retries(self) -> None:
        for _index, attempt, message in self._tracker.due(time.monotonic()).ready:
            self._start(Redelivery.of(message, attempt))

    def _start(self, message: Message) -> None:
        task = asyncio.create_task(self._deliver(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, message: Message) -> None:
        try:
            async with self._slots:
                await self._handle(message)
        except Exception:  # noqa: BLE001 - whatever it is, the tracker counts it
            now = time.monotonic()
            verdict = self._tracker.nack(message.index, message.attempt, now, item=message)
            if verdict.kind is VerdictKind.DEAD_LETTER:
                self._give_up(message)
        else:
            self._tracker.ack(message.index)

    def _give_up(self, message: Message) -> None:
        """Writes the dead letter to the disk, and then settles the record."""
        with self._dead.open("ab") as dead:
            dead.write((message.value or b"") + b"\n")
            dead.flush()
            os.fsync(dead.fileno())
        self._tracker.dead_lettered(message.index)

    async def _flush(self, *, force: bool = False) -> None:
        flush = self._tracker.flush(time.monotonic(), time.time(), force=force)
        if flush is None:
            return
        text, covered = encode_checkpoint(
            flush.checkpoint,
            broker=BROKER,
            partition=self._assignment.partition,
            encode_position=str,
            max_size=self._store.max_size,
        )
        (outcome,) = await self._store.save(GROUP, [StoreItem(self._assignment, text)])
        if outcome.is_done:
            outcome = replace(outcome, covered=covered)
        self._tracker.flushed(flush, outcome)  # what failed goes into the next flush
        if isinstance(outcome.error, FencedError):
            raise outcome.error  # another process follows this file now


async def show(message: Message) -> None:
    """Handles a line: prints it."""
    line = (message.value or b"").decode()
    if line.startswith("bad"):
        raise ValueError(line)
    print(f"{message.position} {line}", flush=True)


async def main() -> None:
    """Reads the command line and follows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--store", default="tail.db", help="the SQLite file of the checkpoint")
    options = parser.parse_args()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    store = LocalStore(options.store)
    try:
        await store.open()
        await Tail(options.file, store, show).run(stop)
    finally:
        await store.aclose()


if __name__ == "__main__":
    asyncio.run(main())
