"""`Consumer`: what a user of the SDK holds in hand."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import warnings
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, final

from consumer_sdk.abc import Adapter, CheckpointStore, Clock, DeadLetters
from consumer_sdk.errors import ConfigurationError, ConsumerClosedError
from consumer_sdk.records import Explanation, Message, Partition, Start
from consumer_sdk.records.tokens import Bytes
from consumer_sdk.runtime.engine import Engine
from consumer_sdk.runtime.hooks import Hooks
from consumer_sdk.runtime.inbox import Batches, Inbox
from consumer_sdk.runtime.lanes import Ordering
from consumer_sdk.runtime.options import LoopClock, Options, parse_start
from consumer_sdk.runtime.stats import ConsumerStats
from consumer_sdk.runtime.workers import BatchWorkers, Workers
from consumer_sdk.trackers import Receipts, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Consumer"]


@final
class Consumer:
    """Consumes one subscription, at least once.

    Nothing is checkpointed over a record that is not settled, whatever fails, is cancelled or
    killed. Cancelling an await of this class loses no record. A consumer is opened once, by
    ``async with`` or by `run`, and belongs to the event loop and process that opened it.

    Args:
        adapter: the broker's adapter, or a URL such as ``kafka://host:9092/orders?group=billing``.
        store: where checkpoints are kept; the broker's own positions if None.
        retry: back-off and limit of failed deliveries.
        dead_letters: where records go that reach the limit or are rejected; the adapter's own
            destination if None.
        start: where to begin without a checkpoint: ``"earliest"``, ``"latest"`` (resolved once
            and made durable), `AtTime` or `AtPosition`.
        restart: ``"resume"`` from the checkpoint, or ``"from_start"``: an ``application_id`` that
            the checkpoint does not name begins at ``start``, once. A position that another
            program has set in the broker comes before both.
        application_id: names what is running, in each checkpoint; 1 to 100 characters.
        out_of_range: what to do when the broker no longer stores the checkpoint's position:
            ``"fail"``, ``"earliest"`` or ``"latest"`` (logged and counted in `stats`).
        max_lag: positions that a partition may be behind the end; None for no limit. For brokers
            whose positions are whole numbers.
        lag_policy: what to do with one that starts beyond: ``"warn"``, ``"pause"`` it until
            `resume`, or ``"skip"`` to the end. Each is logged, and what is skipped is counted in
            `stats`. One that falls behind later is logged.
        flush_interval: seconds between flushes of acks; 0 for at once.
        flush_count: so many acks of a queue's partition are flushed before their time.
        ack_timeout: when pulling, seconds from hand-out after which a delivery has failed; in
            `run`, of a message with an open tree, from its handler's return.
        drain_timeout: seconds that `aclose` waits for what is in flight.
        max_in_flight: unsettled records before fetching stops; default 10 000, and at least
            ten for each handler of `run`, if the broker sends as many.
        max_in_flight_per_partition: the same for one partition; default a fair share.
        max_in_flight_bytes: the same in bytes, estimated from the mean size of a partition's
            records.
        max_retrying: records waiting for or behind a retry that do not count as in flight.
        max_holes: unsettled stretches below settled records that a partition may have; None for
            no limit.
        max_hole_age: seconds for which an unsettled record may pin its partition's position
            while others behind it are settled; None for no limit.
        hole_policy: what to do with a partition over either limit: ``"pause"`` its fetch until it
            is back under half of both, ``"warn"`` only, or ``"dead_letter"`` its oldest
            unsettled record, one after another. Each is logged and counted in `stats`.
        fetch_records, fetch_bytes, fetch_wait: limits of one fetch; seconds for the wait.
        trees: False turns `Message.tree` off: it acks the message at once, and its branches do
            nothing (Storm without ackers).
        name_branches: `Branch.open_branches` works, for debugging; costs a dict for each tree.
        hooks: told what becomes of each message; see `Hooks`.
        clock: where time comes from; for tests.

    Raises:
        ConfigurationError: an option that cannot work.
    """

    def __init__(
        self,
        adapter: Adapter | str,
        *,
        store: CheckpointStore | None = None,
        retry: RetryPolicy | None = None,
        dead_letters: DeadLetters | None = None,
        start: Start | str = "earliest",
        restart: str = "resume",
        application_id: str | None = None,
        out_of_range: str = "fail",
        max_lag: int | None = None,
        lag_policy: str = "warn",
        flush_interval: float = 0.1,
        flush_count: int = 1000,
        ack_timeout: float | None = None,
        drain_timeout: float = 5.0,
        max_in_flight: int | None = None,
        max_in_flight_per_partition: int | None = None,
        max_in_flight_bytes: int = 64 * 1024 * 1024,
        max_retrying: int = 10_000,
        max_holes: int | None = 10_000,
        max_hole_age: float | None = None,
        hole_policy: str = "pause",
        fetch_records: int = 500,
        fetch_bytes: int = 8 * 1024 * 1024,
        fetch_wait: float = 0.5,
        trees: bool = True,
        name_branches: bool = False,
        hooks: Hooks | None = None,
        clock: Clock | None = None,
    ) -> None:
        options = Options(
            retry=retry or RetryPolicy(),
            start=parse_start(start),
            restart=restart,
            application_id=application_id,
            out_of_range=out_of_range,
            max_lag=max_lag,
            lag_policy=lag_policy,
            flush_interval=flush_interval,
            flush_count=flush_count,
            ack_timeout=ack_timeout,
            drain_timeout=drain_timeout,
            max_in_flight=max_in_flight,
            max_in_flight_per_partition=max_in_flight_per_partition,
            max_in_flight_bytes=max_in_flight_bytes,
            max_retrying=max_retrying,
            max_holes=max_holes,
            max_hole_age=max_hole_age,
            hole_policy=hole_policy,
            fetch_records=fetch_records,
            fetch_bytes=fetch_bytes,
            fetch_wait=fetch_wait,
            trees=trees,
            name_branches=name_branches,
            hooks=hooks,
            clock=clock or LoopClock(),
        )
        self._engine = Engine(_adapter(adapter), store, dead_letters, options)
        self._options = options
        self._inbox: Inbox | None = None
        self._workers: Workers | None = None
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closing = False
        _consumers.add(self)

    # -- life -----------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def _open(self) -> None:
        self._check_process()
        if self._loop is not None:
            raise ConsumerClosedError("a consumer is opened once; make a new one")
        loop = asyncio.get_running_loop()
        self._loop, self._is_closing = loop, True  # nothing to close until it is open
        await self._engine.open()
        self._is_closing = False

    async def aclose(self) -> None:
        """Stops, drains, flushes and leaves; idempotent: a second call waits for the first.

        Handlers that still run after ``drain_timeout`` are cancelled, and have as long again to
        end; their records stay unsettled and are redelivered. Every step is taken even if one before it fails.

        Raises:
            Exception: the first error of a step; or what made the consumer stop by itself,
                unless an iterator or `run` has raised it already.

        Cancellation: closing goes on to its end, and the cancellation is raised then.
        """
        self._check_process()
        if self._loop is None:
            return
        if self._is_closing:
            await self._engine.closed()
            return
        self._check()
        self._is_closing = True
        self.stop()
        await self._engine.close(self._workers)

    def stop(self) -> None:
        """Asks for the end: `run` returns and iterators end. May be called from a handler."""
        self._engine.stop()
        if self._inbox is not None:
            self._inbox.close()

    def _check(self) -> None:
        self._check_process()
        if self._loop is None:
            raise ConsumerClosedError("the consumer is not open; use 'async with consumer:'")
        if self._loop is not asyncio.get_running_loop():
            raise ConsumerClosedError("the consumer belongs to another event loop; make one here")

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ConsumerClosedError(
                "the consumer belongs to the parent process; make one in this process"
            )

    def __del__(self) -> None:
        if getattr(self, "_loop", None) is not None and not self._is_closing:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=1)

    def _forbid(self) -> None:
        for holding in self._engine.holdings.values():
            holding.forbid()

    # -- pulling --------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Message]:
        self._start_pulling()
        return self

    async def __anext__(self) -> Message:
        inbox = self._inbox or self._start_pulling()
        while True:
            message = inbox.pop()
            if message is not None:
                return message
            if inbox.is_closed:
                self._engine.raise_failure()
                raise StopAsyncIteration
            await inbox.wait()

    def batches(self, *, max_messages: int = 500, max_wait: float = 0.2) -> Batches:
        """Batches of up to ``max_messages``, in order within each partition.

        Args:
            max_messages: messages in a batch, at most.
            max_wait: seconds that the first message waits for the rest.
        """
        if max_messages < 1 or not max_wait >= 0:
            raise ConfigurationError(
                f"batches(max_messages={max_messages!r}, max_wait={max_wait!r}): give at least 1, "
                f"and seconds"
            )
        return Batches(self._start_pulling(), max_messages, max_wait, self._engine.raise_failure)

    def _start_pulling(self) -> Inbox:
        self._check()
        if self._inbox is None:
            engine = self._engine
            is_timed = self._options.ack_timeout is not None
            self._inbox = Inbox(engine.hand_out, engine.nudge, is_timed=is_timed)
            engine.start(self._inbox, self._inbox.close)
        return self._inbox

    # -- running --------------------------------------------------------------------------

    async def run(
        self,
        handler: Callable[[Any], Awaitable[None]],
        *,
        concurrency: int = 100,
        ordering: Ordering = Ordering.KEY,
        batch_size: int | None = None,
        batch_wait: float = 0.2,
        handle_signals: bool = True,
    ) -> None:
        """Calls ``handler`` for every message until `stop`, a signal, or cancellation.

        The handler's return acks, but for a message with an open tree (`Message.tree`), which its
        tree acks; an exception nacks (`Retry` and `Reject` choose), and what it settles itself
        stands. Opens the consumer, and closes it in the end, unless that was
        done around it.

        Args:
            handler: ``async def handler(message)``, or ``handler(batch)`` with a ``batch_size``.
            concurrency: handlers running at once, at most.
            ordering: which records run one after another.
            batch_size: records in a batch, at most; None for one message a call.
            batch_wait: seconds that the first record of a batch waits for the rest.
            handle_signals: SIGTERM and SIGINT end the run (main thread only).

        Raises:
            ConfigurationError: an option that cannot work.
            ConsumerSdkError: what made the consumer stop by itself.

        Cancellation: drains and flushes first.
        """
        workers = self._make_workers(handler, concurrency, ordering, batch_size, batch_wait)
        # Around the drain too: a second signal is not to cut it short, for it bounds itself.
        with self._signals(enabled=handle_signals):
            if self._loop is None:
                async with self:
                    await self._run(workers)
            else:
                self._check()
                await self._run(workers)

    async def _run(self, workers: Workers) -> None:
        if self._inbox is not None or self._workers is not None:
            raise ConfigurationError("run() needs a consumer that nobody pulls from or runs yet")
        self._workers = workers
        engine = self._engine
        engine.start(workers.lanes, lambda: None)
        await engine.stopped()
        engine.raise_failure()

    def _make_workers(
        self,
        handler: Callable[[Any], Awaitable[None]],
        concurrency: int,
        ordering: Ordering,
        batch_size: int | None,
        batch_wait: float,
    ) -> Workers:
        call = handler if inspect.isroutine(handler) else getattr(handler, "__call__", None)  # noqa: B004 - the function behind a callable object
        if inspect.isfunction(call) and not inspect.iscoroutinefunction(call):
            raise ConfigurationError(
                f"run({handler!r}): the handler must be 'async def'; wrap a blocking one in "
                f"asyncio.to_thread"
            )
        if concurrency < 1 or not isinstance(ordering, Ordering):
            raise ConfigurationError(
                f"run(concurrency={concurrency!r}, ordering={ordering!r}): give 1 or more, and an "
                f"Ordering"
            )
        if batch_size is not None and (batch_size < 1 or not batch_wait >= 0):
            raise ConfigurationError(
                f"run(batch_size={batch_size!r}, batch_wait={batch_wait!r}): give 1 or more, and "
                f"seconds"
            )
        engine = self._engine
        engine.allow(concurrency * (batch_size or 1), ordering)
        if batch_size is None:
            return Workers(
                handler, concurrency, ordering, has_left=engine.nudge, crashed=engine.fail
            )
        return BatchWorkers(
            handler,
            concurrency,
            ordering,
            size=batch_size,
            wait=batch_wait,
            has_left=engine.nudge,
            crashed=engine.fail,
        )

    @contextmanager
    def _signals(self, *, enabled: bool) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        added = []
        if enabled:
            for number in (signal.SIGTERM, signal.SIGINT):
                try:
                    loop.add_signal_handler(number, self.stop)
                except (NotImplementedError, RuntimeError, ValueError):
                    break  # not the main thread, or a loop without signals
                added.append(number)
        try:
            yield
        finally:
            for number in added:
                loop.remove_signal_handler(number)

    # -- looking --------------------------------------------------------------------------

    async def flush(self) -> None:
        """Returns when everything settled so far is durable.

        Except, without a store, what is settled above more holes than the broker's commit has
        room for: it is delivered again after a crash. `Message.durable` waits for that too.

        Raises:
            PartitionLostError: a partition was lost meanwhile; it is redelivered.
            ConsumerSdkError: what made the consumer stop by itself.
        """
        self._check()
        await self._engine.flush()

    def settle(self, receipts: Receipts | Bytes) -> int:
        """Applies what became of branches in other processes; see `Branch.token`.

        In any order, and any number of times: what was applied before, or belongs to a tree that
        is over, or not to this consumer, is ignored, and counted in `stats`. From another thread:
        ``loop.call_soon_threadsafe(consumer.settle, receipts)``.

        Returns:
            how many branches that changed something.

        Raises:
            TokenFormatError: these are not the bytes of receipts; nothing was applied.
        """
        self._check()
        if not isinstance(receipts, Receipts):
            receipts = Receipts.from_bytes(receipts)
        return self._engine.settle(receipts)

    def resume(self, partition: Partition) -> bool:
        """Fetches a partition that ``lag_policy="pause"`` holds back.

        It stays so for this consumer, also when the partition moves away and comes back.

        Returns:
            False if it is not held, or not held back.
        """
        self._check()
        return self._engine.resume(partition)

    def stats(self) -> ConsumerStats:
        """A snapshot of what the consumer has done and holds; zeros before it is opened."""
        return self._engine.stats()

    def explain(self, partition: Partition | None = None) -> Mapping[Partition, Explanation]:
        """What pins the watermark of each held partition, or of the one given.

        The first unsettled record's position, age, attempts and state, how many holes lie above
        it, and what is unsettled in records and bytes; printed, it is one line. It costs a walk
        over the holes.
        """
        return {
            a.partition: holding.explain()
            for a, holding in self._engine.holdings.items()
            if partition in (None, a.partition)
        }

    async def lag(self) -> Mapping[Partition, int | None]:
        """How far behind the end each held partition's fetch position is."""
        self._check()
        return await self._engine.lag()


def _adapter(adapter: Adapter | str) -> Adapter:
    if isinstance(adapter, Adapter):
        return adapter
    from consumer_sdk.adapters import open_url

    return open_url(adapter)


_consumers: weakref.WeakSet[Consumer] = weakref.WeakSet()


def _forbid_all() -> None:
    for consumer in list(_consumers):
        consumer._forbid()  # noqa: SLF001 - same module


os.register_at_fork(after_in_child=_forbid_all)
