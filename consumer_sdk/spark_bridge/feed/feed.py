"""Writes the records of a running consumer as segments, which Spark reads.

The asyncio side only collects messages into groups; one named thread does all file work
(`FeedWriter`). While that thread commits one group, the next one fills.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self, final

from consumer_sdk.errors import ConfigurationError, ConsumerClosedError
from consumer_sdk.records import Message, Position
from consumer_sdk.records.messages import UNBOUND
from consumer_sdk.spark_bridge.arrow import import_pyarrow
from consumer_sdk.spark_bridge.errors import FeedError, FeedRecordError, TransientFeedError
from consumer_sdk.spark_bridge.feed.files import Files, PosixFiles
from consumer_sdk.spark_bridge.feed.fsspec_files import files_on
from consumer_sdk.spark_bridge.feed.pending import Entry, Pending, size_of
from consumer_sdk.spark_bridge.feed.segments import place_text
from consumer_sdk.spark_bridge.feed.stats import FeedStats
from consumer_sdk.spark_bridge.feed.writer import FeedWriter, Retention

__all__ = ["SparkFeed"]

log = logging.getLogger(__name__)

# Handlers that wait for a commit put no more records: when no new one came for this long, it is of no
# use to wait longer for more.
_QUIET = 0.002
# But a slow trickle must not make a segment of every record.
_WORTH_A_SEGMENT = 64
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
# How often it looks what Spark has committed; and how often at most while records wait for that.
_GARBAGE_SECONDS = 5.0
_LONGEST_LOOK = 0.5
# The index of a message that settles nothing, and that nobody waits for.
_OVER = -2


@final
class SparkFeed:
    """Writes a consumer's records to a directory of Arrow segments, each record once.

    ::

        async with SparkFeed("/data/landing/orders") as feed:
            await consumer.run(feed.put, concurrency=500)      # or a handler that awaits it

    The feed recognises a record by its stream, partition and position. It drops a record that is
    put again, after a crash or a redelivery, by this process or another one. Several processes may
    feed one directory. A stream's name stands for one stream: records of another broker, or of a
    stream that was deleted and made again, need a directory of their own, because the same
    positions are other records there.

    Records are grouped: a group becomes a segment when it holds ``max_rows`` or ``max_bytes``,
    when its oldest record has waited ``max_wait``, or when it holds some dozens of records and
    no further one comes.

    Segments are kept, unless Spark's queries have reader names (``?retention=committed&reader=…``).
    Then an open feed deletes the segments that every such query has committed, ``keep_for`` seconds
    after it has seen that. A query that starts later starts at the first segment that is left. A
    query without a reader name keeps no segment from being deleted, and gets an error when a
    segment that it still needs is gone. A reader that is gone for good keeps every segment, until
    somebody deletes ``readers/NAME.json``.

    With a limit for the backlog, `put` waits while the feed is full, until Spark has committed some
    segments. The consumer pauses by its own limits of records in flight, and counts no attempt. A
    writer checks the limit before each segment, so each writer may exceed it by one segment. Without any
    reader the whole feed counts as backlog.

    Integer positions are recognised for ever. Each other position costs memory, and is recognised
    until its stream has records that are ``remember`` seconds newer. So an outage makes the feed
    forget nothing. The clocks of writers may differ by as much.

    The directory must be on one file system with hard links and ``flock`` that every writer
    and, for Spark, every executor can reach; or give ``filesystem`` one of fsspec's that can
    create a file only if there is none.

    Args:
        path: the directory; made if it does not exist.
        max_rows: records in a segment.
        max_bytes: bytes of keys and values in a segment; a single larger record is allowed.
        max_wait: seconds that a record may wait until its segment is written.
        encode_position: gives positions other than integers a text form, the same one in every
            run: an adapter's ``encode_position``. Called on the feed's thread. By default text
            stays as it is and the parts of a tuple are joined with ``:``.
        max_backlog_rows: records that may wait for Spark; None for any number.
        max_backlog_bytes: likewise, bytes of segments.
        keep_for: seconds that a segment is kept after this feed saw that Spark has committed it.
        remember: seconds for which positions that are not integers are recognised.
        filesystem: where ``path`` is; None for a local path.
        group_access: the directory's group may read and write the feed too, such as a query
            that runs as another user. By default only this user may: files are 0600 in folders
            of 0700, since they hold the records' values. A local path only.

    Raises:
        ConfigurationError: an option cannot work.
        MissingExtraError: pyarrow is not installed.

    Concurrency: any number of tasks of the event loop that opened it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_rows: int = 50_000,
        max_bytes: int = 32 * 2**20,
        max_wait: float = 0.2,
        encode_position: Callable[[Position], str] = place_text,
        max_backlog_rows: int | None = None,
        max_backlog_bytes: int | None = None,
        keep_for: float = 300.0,
        remember: float = 3600.0,
        filesystem: Any = None,
        group_access: bool = False,
    ) -> None:
        _check_counts(max_rows=max_rows, max_bytes=max_bytes)
        _check_counts(max_backlog_rows=max_backlog_rows, max_backlog_bytes=max_backlog_bytes)
        _check_seconds(max_wait=max_wait, keep_for=keep_for, remember=remember)
        import_pyarrow()
        files = _files(path, filesystem, group_access=group_access)
        self._writer = FeedWriter(files, encode_position, Retention(keep_for, remember))
        self._max_wait = max_wait
        self._most = (max_backlog_rows or math.inf, max_backlog_bytes or math.inf)
        self._is_full = self._is_told = False
        self._garbage_due_at = 0.0
        self._pending = Pending(max_rows, max_bytes)
        self._changed = asyncio.Event()
        self._closing = False
        self._pump: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Opens the directory.

        Raises:
            ConfigurationError: the directory cannot be made or written, or is something else.
            FeedFormatError: a manifest is damaged or missing.
        """
        if self._closing or self._pump is not None:
            raise ConsumerClosedError(f"{self!r} was opened before: make another SparkFeed")
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="consumer-sdk-feed")
        try:
            await self._loop.run_in_executor(self._thread, self._writer.open)
        except BaseException:
            self._thread.submit(self._writer.close)
            self._thread.shutdown(wait=False)
            raise
        self._garbage_due_at = self._loop.time()
        self._pump = self._loop.create_task(self._run(), name="consumer-sdk-feed")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def put(self, message: Message) -> None:
        """Returns when the record is durable in a segment; with a full backlog, that takes long.

        Raises:
            TransientFeedError: the file system refused the write (because the disk is full, for
                example), and still did so when the feed was closed. Until then the record waits,
                so that the consumer pauses and counts no attempt.
            FeedRecordError: this record cannot be stored.
            FeedFormatError: another writer's manifest is damaged.
            FeedError: the feed has ended by itself, with the cause.
            ConsumerClosedError: the feed is not open, belongs to another event loop, or was
                closed while its backlog was full: the record is not stored.

        Cancellation: the record may get stored or not. The consumer delivers it again, since
        nothing has acked it; put again, it is in the feed once.
        """
        await self._submit((message,), size_of(message))

    async def write(self, messages: Sequence[Message]) -> None:
        """Returns when all of ``messages`` are durable; they may be spread over segments.

        Raises, and cancellation: as `put`. `FeedRecordError` names all that cannot be stored, and
        the others are durable; with any other error some of them may be stored: write all of them
        again. A consumer's batch is for `put_many`, which fails no record for another.
        """
        if faults := await self._store_all(messages):
            raise FeedRecordError.of(faults)

    async def put_many(self, batch: Sequence[Message]) -> None:
        """Returns when the batch is durable: what `put` promises for each of its records.

        ::

            await consumer.run(feed.put_many, batch_size=2_000)

            async for batch in consumer.batches():
                await feed.put_many(batch)
                batch.ack()

        The batch is stored as a whole, each partition in its order. Only records that cannot be
        stored are nacked. The consumer's retry policy retries and dead-letters them, and an ack of
        the batch leaves them out.

        Raises:
            FeedRecordError: some records cannot be stored, and come from no consumer that could
                nack them; the others are durable.
            TransientFeedError, FeedFormatError, FeedError, ConsumerClosedError: as `put`. Some
                records may be stored.

        Cancellation: as `put`. Nothing is acked, and each record that is put again is there once.
        """
        faults = await self._store_all(batch)
        if foreign := [fault for fault in faults if not _fail(*fault)]:
            raise FeedRecordError.of(foreign)

    def stats(self) -> FeedStats:
        """A snapshot of the counters; in any thread."""
        writer, seen, now = self._writer, self._writer.seen, time.time()
        unread = seen.unread
        return FeedStats(
            written=writer.written,
            dropped=writer.dropped,
            pending=self._pending.rows,
            segments=seen.segments,
            backlog_rows=unread.rows,
            backlog_bytes=unread.size,
            committed=seen.committed,
            is_full=self._is_full,
            directory=str(writer.directory),
            is_open=self._pump is not None and not self._pump.done(),
            backlog_segments=unread.segments,
            backlog_age=_age(unread.at, now) if unread.segments else 0.0,
            segment_age=_age(seen.at, now),
        )

    def measured(self) -> tuple[FeedStats, ...]:
        """What `telemetry.collector` and `telemetry.otel` read."""
        return (self.stats(),)

    async def aclose(self) -> None:
        """Makes what is pending durable, then releases the directory. Idempotent.

        With a full backlog, what is pending is refused instead: its consumer delivers it again.

        Raises:
            FeedError: the feed had ended by itself, with the cause.

        Cancellation: what was handed to the thread is still finished there.
        """
        self._closing = True
        self._changed.set()
        if self._pump is not None:
            await asyncio.wait([self._pump])
            self._check_pump(self._pump)

    async def _store_all(self, messages: Sequence[Message]) -> list[tuple[Message, str]]:
        """Returns those that cannot be stored, and why, when all others are durable."""
        call: list[asyncio.Future[None]] = []
        for part, size in self._pending.parts(messages):
            call.append(self._submit(part, size, call))
        faults: list[tuple[Message, str]] = []
        for error in await asyncio.gather(*call, return_exceptions=True):
            if isinstance(error, FeedRecordError) and error.records:
                faults += error.records
            elif error is not None:
                raise error
        return faults

    def _submit(
        self, messages: Sequence[Message], size: int, call: Sequence[asyncio.Future[None]] = ()
    ) -> asyncio.Future[None]:
        if self._pump is not None and self._pump.done():
            self._check_pump(self._pump)
        if self._closing or self._pump is None or self._pump.done():
            raise ConsumerClosedError(f"{self!r} is not open: use it inside `async with`")
        if asyncio.get_running_loop() is not self._loop:
            raise ConsumerClosedError(f"{self!r} belongs to another event loop")
        was_small = self._pending.rows < _WORTH_A_SEGMENT
        entry = Entry(messages, size, self._loop.time(), self._loop.create_future(), call)
        self._pending.add(entry)
        if was_small:
            self._changed.set()
        return entry.answer

    def _check_pump(self, pump: asyncio.Task[None]) -> None:
        if not pump.cancelled() and (cause := pump.exception()) is not None:
            raise FeedError(
                f"{self!r} has ended by itself: {cause!r}. That is a defect of this SDK; records "
                "that were not stored are delivered again to a consumer that is started anew"
            ) from cause

    async def _run(self) -> None:
        try:
            while self._pending or not self._closing:
                await self._wait_for_company()
                await self._collect_garbage()
                if not await self._has_room():
                    return
                if group := self._pending.take():
                    await self._commit(group)
        finally:
            # Also when it ends by itself: what is put from now on would wait for ever.
            self._closing = True
            while self._pending:
                self._refuse(self._pending.take())
            closed = self._thread.submit(self._writer.close)
            self._thread.shutdown(wait=False)
            await asyncio.wrap_future(closed)

    async def _wait_for_company(self) -> None:
        """Returns when what is pending should be committed."""
        pending = self._pending
        while not (self._closing or pending.is_full):
            left = self._left()
            if (left is not None and left <= 0) or self._is_garbage_due:
                return
            rows = pending.rows
            if rows < _WORTH_A_SEGMENT:
                idle = self._garbage_due_at - self._loop.time()
                await self._change(idle if left is None else min(left, idle))
                continue
            await asyncio.sleep(_QUIET)
            if rows == pending.rows:
                return

    @property
    def _is_garbage_due(self) -> bool:
        return self._loop.time() >= self._garbage_due_at

    async def _collect_garbage(self) -> None:
        """Looks now and then, also while nothing comes, what Spark has committed and may go."""
        if self._is_garbage_due and not self._closing:
            await self._in_thread(self._writer.collect_garbage)
            self._garbage_due_at = self._loop.time() + _GARBAGE_SECONDS

    async def _has_room(self) -> bool:
        """Waits until the backlog is below its limits; False if the feed is closed before."""
        pause, must_wait = _FIRST_PAUSE, False
        try:
            while self._pending and self._exceeds():
                if self._closing:
                    return False
                self._pending.drop_cancelled()
                if must_wait:
                    self._tell_full()
                    self._changed.clear()
                    await self._change(pause)
                    pause = min(pause * 2, _LONGEST_LOOK)
                # The first look is for what Spark has committed since the last one.
                self._is_full = must_wait = True
                await self._in_thread(self._writer.collect_garbage)
            if self._pending and pause == _FIRST_PAUSE:
                self._is_told = False
        finally:
            self._is_full = False
        return True

    def _tell_full(self) -> None:
        """Once, until there has been room without waiting."""
        if self._is_told:
            return
        self._is_told = True
        name = self._writer.slowest
        why = f"the reader {name!r} is the last one" if name else "no reader is registered"
        log.warning("%r is full, records wait for Spark: %s", self, why)

    def _exceeds(self) -> bool:
        unread, (most_rows, most_bytes) = self._writer.seen.unread, self._most
        return unread.rows >= most_rows or unread.size >= most_bytes

    async def _in_thread(self, work: Callable[[], None]) -> None:
        await self._loop.run_in_executor(self._thread, work)

    def _left(self) -> float | None:
        """Seconds until the oldest record has waited long enough; None without one."""
        oldest = self._pending.oldest
        return None if oldest is None else oldest + self._max_wait - self._loop.time()

    async def _change(self, seconds: float | None) -> None:
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def _commit(self, group: Sequence[Entry]) -> None:
        messages = [entry.messages for entry in group]
        faults: Sequence[Exception | None]
        try:
            faults = await self._store(messages)
        except asyncio.CancelledError:
            # The thread still finishes the group, which then is durable though its callers hear
            # that it is not. They put it again, and its positions are recognised.
            self._refuse(group)
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the callers get it
            faults = [error] * len(group)
        for entry, fault in zip(group, faults, strict=True):
            entry.settle(fault)

    async def _store(self, messages: Sequence[Sequence[Message]]) -> Sequence[Exception | None]:
        """Commits; while the file system refuses, tries again until the feed is closed.

        If the handlers got the refusal, they would use up the attempts of sound records, which
        would go to the dead letters.
        """
        pause = _FIRST_PAUSE
        while True:
            try:
                return await self._loop.run_in_executor(self._thread, self._writer.commit, messages)
            except TransientFeedError as error:
                if self._closing:
                    raise
                log.warning("records wait, trying again in %.1f s: %s", pause, error)
                self._changed.clear()
                await self._change(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    def _refuse(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            entry.settle(ConsumerClosedError(f"{self!r} was closed before this was stored"))

    def __repr__(self) -> str:
        return f"<SparkFeed {self._writer.directory} pending={self._pending.rows}>"

    def __del__(self) -> None:
        if getattr(self, "_pump", None) is not None and not self._closing:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2)


def _age(at: int, now: float) -> float | None:
    """Seconds since a time in milliseconds, which another machine's clock may have told."""
    return max(0.0, now - at / 1000) if at else None


def _fail(message: Message, reason: str) -> bool:
    """Fails the delivery of this record alone; False if it comes from no consumer."""
    if message.holder is UNBOUND:
        return False
    if not message.nack(reason=reason) and message.index >= 0:
        # 1. This delivery was over before, by its ack timeout for one; so the nack did nothing.
        # 2. Another delivery of the record will come.
        # 3. The caller acks its batch, with this message in it, and that would settle the record.
        # So an ack must not find the record.
        message.index = _OVER
    return True


def _files(path: str | os.PathLike[str], filesystem: Any, *, group_access: bool) -> Files:
    text = _path_text(path)
    if filesystem is None:
        return PosixFiles(Path(text).absolute(), group_access=group_access)
    if group_access:
        raise ConfigurationError(
            "SparkFeed(group_access=True) is for a local path: a filesystem has its own rules"
        )
    return files_on(filesystem, text)


def _path_text(path: object) -> str:
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not text or not isinstance(text, str):
        raise ConfigurationError(f"SparkFeed(path): {path!r} is not the path of a directory")
    if text.startswith(("feed:", "feed+")):
        raise ConfigurationError(
            f"SparkFeed(path): {path!r} is a URL, which Spark reads from; give the directory "
            "alone, such as /data/landing/orders, and filesystem= where that is not local"
        )
    return text


def _check_counts(**counts: int | None) -> None:
    for name, value in counts.items():
        is_off = value is None and name.startswith("max_backlog")
        if not is_off and (type(value) is not int or value < 1):
            raise ConfigurationError(f"SparkFeed({name}={value!r}): use an integer of at least 1")


def _check_seconds(**seconds: float) -> None:
    for name, value in seconds.items():
        if type(value) not in {int, float} or not 0 <= value < math.inf:
            raise ConfigurationError(f"SparkFeed({name}={value!r}): use seconds, 0 or more")
