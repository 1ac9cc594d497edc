"""`Consumer`: the class that users of the SDK make, run and pull from."""

from __future__ import annotations

import asyncio
import inspect
import os
import warnings
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, nullcontext
from typing import Any, Literal, Self, TypeAlias, TypeVar, final, overload
from urllib.parse import parse_qsl

from consumer_sdk.abc import Adapter, CheckpointStore, Clock, DeadLetters, Transactions
from consumer_sdk.errors import ConfigurationError, ConsumerClosedError
from consumer_sdk.options import (
    COUNT,
    FLAG,
    NAME,
    SECONDS,
    SECONDS_OR_0,
    endless,
    given_fields,
    instance,
    optional,
)
from consumer_sdk.records import AtTime, Batch, Explanation, Message, Partition, Start
from consumer_sdk.records.tokens import Bytes
from consumer_sdk.runtime.compatibility import (
    check_ordering,
    check_transactions,
    in_flight_of,
)
from consumer_sdk.runtime.dispatch.decoding import Decode, prepared_handler
from consumer_sdk.runtime.dispatch.handlers import (
    Middleware,
    RunsHandlers,
    check_handler,
    wrap_handler,
)
from consumer_sdk.runtime.dispatch.lanes import Ordering
from consumer_sdk.runtime.dispatch.pull_queue import Batches, PullQueue
from consumer_sdk.runtime.dispatch.workers import BatchWorkers, Workers
from consumer_sdk.runtime.engine import Engine
from consumer_sdk.runtime.hooks import Hooks
from consumer_sdk.runtime.observer import STALLED, explain, health, looking, snapshot
from consumer_sdk.runtime.observing.health import Health, State
from consumer_sdk.runtime.observing.snapshots import Snapshot
from consumer_sdk.runtime.observing.stats import ConsumerStats
from consumer_sdk.runtime.options import (
    HolePolicy,
    LagPolicy,
    Options,
    OutOfRange,
    Restart,
    RunOptions,
    StartName,
    Unreadable,
    parse_ordering,
    parse_start,
)
from consumer_sdk.runtime.signals import stopped_by_signals
from consumer_sdk.trackers import Receipts, RetryPolicy

__all__ = ["Consumer", "check_run"]

PARTITION = instance(Partition, "a Partition(stream, id), such as message.partition")
Given = TypeVar("Given")
Around: TypeAlias = Callable[
    [Callable[[Given], Awaitable[object]]], Callable[[Given], Awaitable[object]]
]
"""Middleware of handlers of messages, or of batches."""
OrderingName = Literal["none", "key", "partition"]

ADAPTER = instance(Adapter, "an adapter such as KafkaAdapter(…), or a URL such as kafka://…")
STORE = optional(instance(CheckpointStore, "a store such as LocalStore(…), a URL of one"))
DEAD_LETTERS = optional(
    instance(DeadLetters, "a destination such as KafkaDeadLetters(…), a URL of one")
)


@final
class Consumer(RunsHandlers):
    """Consumes one subscription, at least once.

    No checkpoint passes a record that is not settled, whatever fails, is cancelled or is killed.
    Cancelling an await of this class loses no record. A consumer is opened once, by ``async with``
    or by `run`, and belongs to the event loop and process that opened it.

    Args:
        adapter: the broker's adapter, or a URL such as ``kafka://host:9092/orders?group=billing``.
        store: where checkpoints are kept, also as a URL such as ``sqlite:///var/lib/state.db``.
            None: the broker keeps the position.
        retry: back-off and limit of failed deliveries; `RetryPolicy()` if None.
        dead_letters: where records go that reach the limit or are rejected, also as a URL such as
            ``kafka://host:9092/dlq``. None: the adapter's own destination.
        decode: makes `Message.body` from a record's value, such as `json.loads`, or one of
            `consumer_sdk.decoders`. A value that it cannot decode is rejected.
        start: where to begin without a checkpoint: ``"earliest"``, ``"latest"`` (resolved once
            and made durable), `AtTime` or `AtPosition`.
        restart: ``"resume"`` from the checkpoint, or ``"from_start"``: an ``application_id`` that
            the checkpoint does not name begins at ``start``, once. A position that another
            program has set in the broker comes before both.
        application_id: the name of this application, which each checkpoint holds.
        out_of_range: what to do when the broker no longer stores the checkpoint's position:
            ``"fail"``, ``"earliest"``, ``"latest"`` or `AtTime` (logged and counted in `stats`).
        unreadable: what to do with a stored record, or a batch, that cannot be read (for example
            because of a wrong checksum): ``"fail"`` stops there, at each restart, with
            `UnreadableRecordError`; ``"dead_letter"`` sends its raw bytes to the dead letters, and
            goes on after it. Without dead letters both stop.
        max_lag: positions that a partition may be behind the end; None for no limit. For brokers
            whose positions are whole numbers.
        lag_policy: what to do with a partition that starts farther behind: ``"warn"``, ``"pause"`` it until
            `resume`, or ``"skip"`` to the end. Each is logged, and skipped records are counted in
            `stats`. A partition that falls behind later is logged.
        flush_interval: seconds between flushes of acks; 0 for at once.
        flush_count: of a queue: as soon as that many acks of a partition wait, they are flushed.
        ack_timeout: when pulling, seconds from hand-out after which a delivery has failed; in
            `run`, of a message with an open tree, from its handler's return.
        drain_timeout: seconds that `aclose` waits for in-flight records.
        max_in_flight: unsettled records at which fetching stops; default 10 000, and at least ten
            for each handler of `run`, if the broker sends as many.
        max_in_flight_per_partition: unsettled records of one partition at which its fetching stops;
            default a fair share.
        max_in_flight_bytes: unsettled bytes at which fetching stops, estimated from the mean size
            of a partition's records.
        max_retrying: most records that wait for a retry, or behind one, and do not count as in
            flight.
        max_holes: unsettled stretches below settled records that a partition may have; None for
            no limit.
        max_hole_age: seconds for which an unsettled record may pin its partition's position
            while others behind it are settled, or while retention has deleted what comes next;
            None for no limit.
        hole_policy: what to do with a partition over either limit: ``"pause"`` its fetch until it
            is back under half of both, ``"warn"`` only, or ``"dead_letter"`` its oldest
            unsettled record, one after another. Each is logged and counted in `stats`.
        fetch_records: records of one fetch, at most.
        fetch_bytes: bytes of one fetch, about.
        fetch_wait: seconds that one fetch waits for records.
        trees: False turns `Message.tree` off: it acks the message at once, and its branches do
            nothing (Storm without ackers).
        name_branches: `Branch.open_branches` works, for debugging; costs a dict for each tree.
        hooks: an object that is told the outcome of each message; see `Hooks`.
        clock: the source of the time; for tests.

    Raises:
        ConfigurationError: an option that cannot work.
    """

    def __init__(
        self,
        adapter: Adapter | str,
        *,
        store: CheckpointStore | str | None = None,
        retry: RetryPolicy | None = None,
        dead_letters: DeadLetters | str | None = None,
        decode: Decode | None = None,
        start: Start | StartName = "earliest",
        restart: Restart = "resume",
        application_id: str | None = None,
        out_of_range: OutOfRange | AtTime = "fail",
        unreadable: Unreadable = "fail",
        max_lag: int | None = None,
        lag_policy: LagPolicy = "warn",
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
        hole_policy: HolePolicy = "pause",
        fetch_records: int = 500,
        fetch_bytes: int = 8 * 1024 * 1024,
        fetch_wait: float = 0.5,
        trees: bool = True,
        name_branches: bool = False,
        hooks: Hooks | None = None,
        clock: Clock | None = None,
    ) -> None:
        given = {**locals(), "start": parse_start(start)}
        options = Options(**given_fields(Options, given))
        self._adapter = _adapter(adapter)
        self._store = _store(store)
        self._engine = Engine(self._adapter, self._store, _dead_letters(dead_letters), options)
        self._options = options
        self._pull_queue: PullQueue | None = None
        self._workers: Workers | None = None
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closing = False
        _consumers.add(self)

    def __repr__(self) -> str:
        return f"Consumer({self._adapter!r}, store={self._store!r})"

    # -- life -----------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Opens the store, the dead letters and then the adapter.

        Raises:
            ConsumerClosedError: `stop` was called meanwhile.
            ConsumerSdkError: the broker or the store cannot be opened.
        """
        if not await self._open():
            raise ConsumerClosedError("stop() was called while the consumer was opened")
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def _open(self) -> bool:
        """False: it was stopped meanwhile, and has nothing to close."""
        self._check_process()
        if self._loop is not None:
            raise ConsumerClosedError("a consumer is opened once; make a new one")
        loop = asyncio.get_running_loop()
        self._loop, self._is_closing = loop, True  # nothing to close until it is open
        is_open = await self._engine.open()
        self._is_closing = not is_open
        return is_open

    async def aclose(self) -> None:
        """Stops, drains, flushes and leaves; idempotent: a second call waits for the first.

        Handlers that still run after ``drain_timeout`` are cancelled, and have as long again to
        end; their records stay unsettled and are redelivered. Each step is taken even if an earlier
        one fails.

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
        """Asks the consumer to end: `run` returns and iterators end. A handler may call it.

        A consumer that is being opened is closed again: `run` returns, ``async with`` raises
        `ConsumerClosedError`.
        """
        self._engine.stop()

    def _check(self) -> None:
        self._check_process()
        if self._loop is None:
            raise ConsumerClosedError("the consumer is not open; use 'async with consumer:'")
        if self._loop is not asyncio._get_running_loop():  # noqa: SLF001 - get_running_loop raises
            raise ConsumerClosedError("the consumer belongs to another event loop; make one here")

    def _check_loop(self) -> None:
        """Also where its event loop does not run: before it is opened, and after the program's end."""
        if self._loop is not None and self._loop.is_running():
            self._check()
        self._check_process()

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ConsumerClosedError(
                "the consumer belongs to the parent process; make one in this process"
            )

    def __del__(self) -> None:
        if getattr(self, "_loop", None) is not None and not self._is_closing:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=1)

    def _invalidate_after_fork(self) -> None:
        for holding in self._engine.holdings.values():
            holding.invalidate_after_fork()

    # -- pulling --------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Message]:
        self._start_pulling()
        return self

    async def __anext__(self) -> Message:
        queue = self._pull_queue or self._start_pulling()
        while True:
            if queue.time() < queue.until:
                for queued in queue.current:  # the next one, in half of the time of next()
                    return queued
                message = queue.pop()
            else:
                message = await queue.after_turn(queue.pop)
            if message is not None:
                return message
            if queue.is_closed:
                self._engine.raise_failure()
                raise StopAsyncIteration
            await queue.wait()

    def batches(self, *, max_messages: int = 500, max_wait: float = 0.2) -> Batches:
        """Batches of up to ``max_messages``, in order within each partition.

        Args:
            max_messages: messages in a batch, at most.
            max_wait: seconds that the first message waits for the rest.
        """
        COUNT.check("max_messages", max_messages, "batches")
        endless(SECONDS_OR_0).check("max_wait", max_wait, "batches")
        return Batches(self._start_pulling(), max_messages, max_wait, self._engine.raise_failure)

    def _start_pulling(self) -> PullQueue:
        self._check()
        if self._pull_queue is None:
            engine = self._engine
            is_timed = self._options.ack_timeout is not None
            self._pull_queue = PullQueue(
                engine.hand_out, engine.nudge, engine.watch, is_timed=is_timed
            )
            engine.start(self._pull_queue)
        return self._pull_queue

    # -- running --------------------------------------------------------------------------

    @overload
    async def run(
        self,
        handler: Callable[[Message], Awaitable[object]],
        *,
        around: Sequence[Around[Message]] = ...,
        concurrency: int = ...,
        ordering: Ordering | OrderingName = ...,
        batch_size: None = None,
        batch_wait: float = ...,
        handle_signals: bool = ...,
        transactions: Transactions | None = ...,
    ) -> None: ...

    @overload
    async def run(
        self,
        handler: Callable[[Batch], Awaitable[object]],
        *,
        around: Sequence[Around[Batch]] = ...,
        concurrency: int = ...,
        ordering: Ordering | OrderingName = ...,
        batch_size: int,
        batch_wait: float = ...,
        handle_signals: bool = ...,
        transactions: Transactions | None = ...,
    ) -> None: ...

    async def run(
        self,
        handler: Callable[[Any], Awaitable[object]],
        *,
        around: Sequence[Middleware] = (),
        concurrency: int = 100,
        ordering: Ordering | OrderingName = Ordering.KEY,
        batch_size: int | None = None,
        batch_wait: float = 0.2,
        handle_signals: bool = True,
        transactions: Transactions | None = None,
    ) -> None:
        """Calls ``handler`` for every message until `stop`, a signal, or cancellation.

        The handler's return acks the message, unless the message has an open tree (`Message.tree`):
        then the tree acks it. An exception nacks it, and `Retry` and `Reject` decide how. A message
        that the handler has settled itself stays settled. `run` opens the consumer, and closes it
        at its end, unless ``async with`` does that.

        Args:
            handler: ``async def handler(message)``, or ``handler(batch)`` with a ``batch_size``; or
                any callable that returns an awaitable. Its result is not used.
            around: functions that take a handler and return one, which is called instead. The first
                is outermost. The new handler decides whether to call the one that it was given, and
                its own return or error counts.
            concurrency: handlers running at once, at most.
            ordering: which records run one after another, also by its name, such as ``"partition"``.
            batch_size: records in a batch, at most; None for one message a call.
            batch_wait: seconds that the first record of a batch waits for the rest.
            handle_signals: SIGTERM and SIGINT end the run (main thread only), of every consumer in
                the loop. Signal handlers that were set before are called as well, and restored at
                the end.
            transactions: commits what handlers send (`Message.send`) together with the positions of
                their records, such as ``KafkaTransactions(transactional_id=…)``: exactly once.

        Raises:
            ConfigurationError: an option, or a handler, that cannot work.
            HandlerError: the handler returned nothing that can be awaited, or has made a consumer;
                its records are not settled.
            ConsumerSdkError: what made the consumer stop by itself.

        Cancellation: drains and flushes first.
        """
        given = {**locals(), "ordering": parse_ordering(ordering)}
        options = RunOptions(**given_fields(RunOptions, given))
        check_transactions(self._adapter, self._store, transactions)
        takes_batch = batch_size is not None
        handler = check_handler(handler, takes_batch=takes_batch)
        handler = wrap_handler(handler, around, takes_batch=takes_batch)
        handler = prepared_handler(handler, self._options.decode, takes_batch=takes_batch)
        workers = self._make_workers(handler, options)
        # Around the drain too: a second signal is not to cut it short, for it bounds itself.
        with stopped_by_signals(self.stop) if handle_signals else nullcontext():
            if self._loop is not None:
                self._check()
                await self._run(workers, transactions)
            elif await self._open():
                async with aclosing(self):
                    await self._run(workers, transactions)

    async def _run(self, workers: Workers, transactions: Transactions | None) -> None:
        if self._pull_queue is not None or self._workers is not None:
            raise ConfigurationError("run() needs a consumer that nobody pulls from or runs yet")
        engine = self._engine
        self._workers = engine.workers = workers
        if transactions is None or await engine.use(transactions):
            engine.start(workers.lanes)
            await engine.stopped()
        engine.raise_failure()

    def _make_workers(
        self, handler: Callable[[Any], Awaitable[object]], run: RunOptions
    ) -> Workers:
        engine = self._engine
        engine.allow(run.concurrency * (run.batch_size or 1), run.ordering)
        shared: dict[str, Any] = {
            "has_left": engine.nudge,
            "crashed": engine.fail,
            "watch": engine.watch,
            "timing": engine.timing,
        }
        if run.batch_size is None:
            return Workers(handler, run.concurrency, run.ordering, **shared)
        shared |= {"size": run.batch_size, "wait": run.batch_wait}
        return BatchWorkers(handler, run.concurrency, run.ordering, **shared)

    # -- looking --------------------------------------------------------------------------

    async def flush(self) -> None:
        """Returns when everything settled so far is durable.

        Exception: without a store, a record may be settled above more holes than fit into the
        broker's commit. It is delivered again after a crash. `Message.durable` waits for such
        records too.

        Raises:
            PartitionLostError: a partition was lost meanwhile; it is redelivered.
            ConsumerSdkError: what made the consumer stop by itself.
        """
        self._check()
        await self._engine.flush()

    def settle(self, receipts: Receipts | Bytes) -> int:
        """Applies what became of branches in other processes; see `Branch.token`.

        Receipts may come in any order, and any number of times. Those that were applied before, and
        those of a tree that is over or of another consumer, are ignored and counted in `stats`.
        From another thread:
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

    def pause(self, partition: Partition | None = None, *, reason: str = "operator") -> None:
        """Stops fetching a partition, or all; records that were fetched before are still handed out.

        The pause lasts until `resume`, also if the partition moves away and comes back, and also
        for a partition that this consumer does not hold yet. It may be called before the consumer
        is opened.

        Args:
            partition: None for all, those that come later included.
            reason: why, for `explain`, `snapshot` and the log.

        Raises:
            ConfigurationError: this is no partition, or no reason.
        """
        optional(PARTITION).check("partition", partition, "pause")
        NAME.check("reason", reason, "pause")
        self._check_loop()
        self._engine.pause(partition, reason)

    def resume(self, partition: Partition | None = None) -> bool:
        """Fetches again what `pause` or ``lag_policy="pause"`` has stopped.

        This holds also if the partition moves away and comes back.

        Args:
            partition: None for all. A single partition is resumed also if all are paused.

        Returns:
            False if no partition of this consumer was paused.
        """
        optional(PARTITION).check("partition", partition, "resume")
        self._check_loop()
        return self._engine.resume(partition)

    def stats(self) -> ConsumerStats:
        """A snapshot of what the consumer has done and holds; zeros before it is opened."""
        return self._engine.stats()

    def explain(self, partition: Partition | None = None) -> Mapping[Partition, Explanation]:
        """What pins the watermark of each assigned partition, or of the given one.

        It has the position, age, attempts, key and state of the first unsettled record, the number
        of holes above it, and the unsettled records and bytes. Printed, it is one line. Its cost
        grows with the holes.
        """
        return explain(self._engine, partition)

    def snapshot(self) -> Snapshot:
        """All that is known of the consumer now, for pages and metrics; see `Snapshot`.

        Its cost grows with the changes since the last snapshot. With more than some hundred busy
        partitions, each snapshot has the current pinning record of only some of them. While
        somebody takes snapshots, the consumer asks for lags every 10 s; before that they are None.
        Call it in the consumer's event loop.
        """
        self._check_loop()
        return snapshot(self._engine)

    async def snapshot_in_turns(self) -> Snapshot:
        """Like `snapshot`, for thousands of partitions: other tasks run in between.

        Each partition is shown as it was at its turn, and the rest as it is at the end.
        """
        self._check_loop()
        for _ in looking(self._engine):
            await asyncio.sleep(0)
        return snapshot(self._engine, is_looked=True)

    def health(self, *, stalled_after: float = STALLED, needs_progress: bool = False) -> Health:
        """Whether the consumer works, for probes.

        Args:
            stalled_after: seconds for which a record may pin its partition's position.
            needs_progress: a partition that is pinned for longer makes the consumer not ``live``.
                Otherwise it is only one of the ``reasons``.
        """
        SECONDS.check("stalled_after", stalled_after, "health")
        FLAG.check("needs_progress", needs_progress, "health")
        self._check_loop()
        return health(self._engine, stalled_after, needs_progress=needs_progress)

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that it was opened in; None before."""
        return self._loop

    @property
    def state(self) -> State:
        """What it is doing: new, opening, running, stopping, closed or failed."""
        return self._engine.state

    async def lag(self) -> Mapping[Partition, int | None]:
        """How far behind the end each held partition's fetch position is; None where unknown."""
        self._check()
        return await self._engine.lag()


def _adapter(adapter: Adapter | str) -> Adapter:
    if not isinstance(adapter, str):
        ADAPTER.check("adapter", adapter)
        return adapter
    from consumer_sdk.adapters import open_url

    named = dict(parse_qsl(adapter.partition("?")[2]))
    for name in named:
        for owner, call in (("Consumer", "Consumer(url, "), ("run()", "run(handler, ")):
            if name in OPTION_NAMES[owner]:
                raise ConfigurationError(
                    f"{name}= in the URL is an option of {owner}: give {call}{name}=…)"
                )
    return open_url(adapter)


def check_run(
    consumer: Consumer, handler: Callable[[Any], Awaitable[object]], **options: Any
) -> None:
    """Looks at what `Consumer.run` would be given; nothing is called, opened or changed.

    Raises:
        ConfigurationError: as that.
    """
    given = DEFAULTS["run()"] | options
    check_handler(handler, takes_batch=given["batch_size"] is not None)
    given["ordering"] = parse_ordering(given["ordering"])
    run = RunOptions(**given_fields(RunOptions, given))
    adapter, kept = consumer._adapter, consumer._options  # noqa: SLF001 - same module
    check_ordering(adapter, run.ordering)
    check_transactions(adapter, consumer._store, given["transactions"])  # noqa: SLF001 - same module
    in_flight_of(adapter, kept, run.concurrency * (run.batch_size or 1))


def _store(store: CheckpointStore | str | None) -> CheckpointStore | None:
    if not isinstance(store, str):
        STORE.check("store", store)
        return store
    from consumer_sdk.stores import store_from_url

    return store_from_url(store)


def _dead_letters(dead_letters: DeadLetters | str | None) -> DeadLetters | None:
    if not isinstance(dead_letters, str):
        DEAD_LETTERS.check("dead_letters", dead_letters)
        return dead_letters
    from consumer_sdk.dead_letters.urls import dead_letters_from_url

    return dead_letters_from_url(dead_letters)


def _keywords(function: Callable[..., object]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}


DEFAULTS = {"Consumer": _keywords(Consumer.__init__), "run()": _keywords(Consumer.run)}
"""Options of a consumer and of `Consumer.run` → their defaults."""
OPTION_NAMES = {owner: frozenset(defaults) for owner, defaults in DEFAULTS.items()}


_consumers: weakref.WeakSet[Consumer] = weakref.WeakSet()


def _invalidate_all() -> None:
    for consumer in list(_consumers):
        consumer._invalidate_after_fork()  # noqa: SLF001 - same module


os.register_at_fork(after_in_child=_invalidate_all)
