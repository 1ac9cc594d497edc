"""Takes records that were fetched in the background, or waits for them.

A batch that could not be read twice is fetched once more, alone, and decoded record by record (`Salvage`).
"""

from __future__ import annotations

import asyncio
import logging

from aiokafka.errors import (
    CorruptRecordException,
    KafkaError,
    UnsupportedCodecError,
    for_code,
)

from consumer_sdk.adapters.assignment_book import AssignmentBook, GrantState
from consumer_sdk.adapters.doubts import REFETCHES
from consumer_sdk.adapters.kafka.client.faults import translate
from consumer_sdk.adapters.kafka.consumer.grants import Grant
from consumer_sdk.adapters.kafka.decoding.record_batches import batch_headers, oversized
from consumer_sdk.adapters.kafka.decoding.salvage import (
    Salvaged,
    Unreadable,
    salvage,
    unknown,
    unreadable_error,
)
from consumer_sdk.adapters.kafka.decoding.unpacking import Batches, Unpacker
from consumer_sdk.adapters.kafka.fetch.cursor import Chunk, Cursor, Fault, Reach
from consumer_sdk.adapters.kafka.fetch.cursors import FetchOptions
from consumer_sdk.adapters.kafka.fetch.fetcher import FetchCluster, Fetcher
from consumer_sdk.adapters.kafka.fetch.structs import AnswerFormatError, PartitionAnswer
from consumer_sdk.adapters.kafka.options import KafkaOptions
from consumer_sdk.errors import AdapterError, ConsumerSdkError
from consumer_sdk.log_limits import REPEATS
from consumer_sdk.records import Message, Run

__all__ = ["FetchBuffer"]

log = logging.getLogger(__name__)

BACKOFF = 0.1
"""Seconds before the broker is asked again for a batch that could not be read."""
PATIENCE = 2.0
"""Seconds to wait for that batch, added to what a fetch in the background may wait: a broker answers the
requests of a connection one after another."""
MAX_WAIT = 1000
"""Milliseconds for which the broker may wait for a byte of it. There was one, so it answers at once."""


class FetchBuffer:
    """What was fetched, seen through the grants.

    Attributes:
        salvage: what could not be read twice; to be run before anything is taken, where something waits.
    """

    def __init__(
        self, cluster: FetchCluster, grants: AssignmentBook[Grant], options: KafkaOptions
    ) -> None:
        self._grants = grants
        self._options = options
        self._is_committed = bool(options.level)
        self._checks = bool(options.client_options.get("check_crcs", True))
        self._waiter: asyncio.Future[None] | None = None
        limits = fetch_options(options)
        self._fetcher = Fetcher(cluster, limits, self.wake)
        self.salvage = Salvage(self._fetcher, options.max_batch_bytes, limits)

    def add(self, cursor: Cursor) -> None:
        """Fetches for the cursor of a grant that is open."""
        self._fetcher.add(cursor)

    def check(self) -> None:
        """Raises an error if fetching has ended.

        Raises:
            AdapterError: it has, by a defect.
        """
        error = self._fetcher.error
        if error is not None:
            text = f"the fetch task has ended ({error!r}); close the consumer"
            raise AdapterError(text) from error

    async def aclose(self) -> None:
        """Fetches nothing any more. Never raises."""
        await self._fetcher.aclose()

    # -- taking -------------------------------------------------------------------------------

    def take(self, max_records: int, max_bytes: int) -> list[Run]:
        """The runs that are here now: several partitions', up to the limits."""
        runs: list[Run] = []
        is_wanted = False
        cursors = self._fetcher.cursors
        for cursor in [cursor for cursor in cursors if cursor.queue]:
            grant = self._grants.at(cursor.tp)
            if grant is None or grant.cursor is not cursor or not grant.is_fetched:
                continue
            run = self._take_from(grant, cursor, max_records, max_bytes)
            is_wanted |= cursors.wants_look(cursor)
            if run is None:
                continue
            runs.append(run)
            max_records -= len(run.messages)
            max_bytes -= run.size
            if max_records <= 0 or max_bytes <= 0:
                break
        if cursors.has_room() if cursors.is_full else is_wanted:
            self._fetcher.kick()
        return runs

    def _take_from(
        self, grant: Grant, cursor: Cursor, max_records: int, max_bytes: int
    ) -> Run | None:
        item = cursor.queue[0]
        if isinstance(item, Fault):
            return self._refused(grant, item.error)
        try:
            unpacker = item.unpacker or self._open(grant, item)
        except Exception as error:  # noqa: BLE001 - as below
            return self._doubt(grant, error)
        if unpacker.next_fetch_offset != cursor.position:
            cursor.rewind()  # somebody has gone elsewhere, or a head of the batches before was wrong
            return None
        run = self._read(grant, unpacker, max_records, max_bytes)
        is_read = unpacker.is_empty or (item.is_sure and cursor.position >= item.end)
        if is_read and cursor.front is item:
            # The partition stays the first until all of a chunk is read, which is memory.
            cursor.advance()
            self._fetcher.cursors.served(cursor)
        return run

    def _read(
        self, grant: Grant, unpacker: Unpacker | Salvaged, max_records: int, max_bytes: int
    ) -> Run | None:
        cursor = grant.cursor
        if isinstance(unpacker, Salvaged) and (unreadable := unpacker.unreadable) is not None:
            if unreadable.last is not None:
                # The cursor stays where it is. Only when the runtime has dealt with what is unreadable,
                # and resumes the grant, does it go on behind; then this is current again.
                unpacker.pass_by(unreadable.last + 1)
            return unreadable_run(grant, unreadable)
        try:
            messages, size = unpacker.take(grant.assignment, max_records, max_bytes)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this partition's alone
            return self._doubt(grant, error)
        position = unpacker.next_fetch_offset
        cursor.consumed_to(position)
        if not messages and position == grant.reported:
            return None
        grant.reported = position
        return Run(grant.assignment, messages, position, size=size, ascends=True)

    def _open(self, grant: Grant, chunk: Chunk) -> Unpacker:
        """Begins to read it; a batch that holds too much is cut off, and fetched again by itself.

        Raises:
            LargeBatchError: it is the first one.
        """
        data = chunk.data
        found = oversized(data, self._options.max_batch_bytes) if chunk.is_compressed else None
        if found is not None:
            at, error = found
            if at == 0:
                raise error
            data = data[:at]
        batches = Batches(
            data,
            chunk.position,
            chunk.aborted,
            is_committed=self._is_committed,
            checks=self._checks,
        )
        skips_old = grant.acquitted == grant.cursor.position
        chunk.unpacker = Unpacker(
            batches, chunk.highwater, skips_old=skips_old, continues=chunk.continues
        )
        return chunk.unpacker  # type: ignore[no-any-return]  # a Salvaged may be there, too

    def _refused(self, grant: Grant, error: Exception) -> Run | None:
        """Handles a fault that the broker answered, or that stands for an answer which cannot be parsed."""
        grant.cursor.rewind()
        is_answer = isinstance(error, KafkaError | ConsumerSdkError)
        if is_answer and not isinstance(error, CorruptRecordException):
            return self._fault(grant, error)
        return self._doubt(grant, error)

    def _doubt(self, grant: Grant, error: Exception) -> Run | None:
        """Fetches again what cannot be read: the log may be sound, and a bit may have flipped on the network.

        What cannot be read then either is taken apart.
        """
        if isinstance(error, UnsupportedCodecError):
            return self._fault(grant, error)
        grant.cursor.rewind()
        position = grant.cursor.position
        if grant.doubts.failed_at(position) < REFETCHES:
            log.warning("%s at %d is fetched again: %r", grant.tp, position, error)
        else:
            self.salvage.add(grant, error)  # fetches it for the last time
        return None

    @staticmethod
    def _fault(grant: Grant, error: Exception) -> Run:
        grant.has_fault = True
        grant.cursor.pause()
        fault = translate(error, f"fetching {grant.tp.topic}[{grant.tp.partition}]")
        return Run(grant.assignment, fault=fault)

    # -- waiting ------------------------------------------------------------------------------

    def last_answer(self) -> int | None:
        """Changes whenever a broker answers a fetch; None when nothing is to be fetched."""
        is_fetching = any(grant.is_fetched for grant in self._grants)
        return self._fetcher.answers if is_fetching else None

    async def wait(self, timeout: float) -> None:
        """Waits until something may be there, or `wake` is called.

        Cancellation: loses nothing; nothing has been taken.
        """
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        timer = loop.call_later(timeout, self.wake)
        try:
            await waiter  # itself: `asyncio.wait` would cost each fetch another turn of the loop
        finally:
            timer.cancel()

    def wake(self) -> None:
        """Ends a wait."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def fetch_options(options: KafkaOptions) -> FetchOptions:
    """The limits that the client has for its own fetches."""
    given, client = FetchOptions(), options.client_options
    return FetchOptions(
        max_wait=round(client.get("fetch_max_wait_ms", given.max_wait)),
        min_bytes=client.get("fetch_min_bytes", given.min_bytes),
        max_bytes=client.get("fetch_max_bytes", given.max_bytes),
        max_partition_bytes=client.get("max_partition_fetch_bytes", given.max_partition_bytes),
        isolation=options.level,
        rack=client.get("client_rack") or "",
        backoff=client.get("retry_backoff_ms", given.backoff * 1000) / 1000,
        replica_age=client.get("metadata_max_age_ms", 30_000) / 1000,
    )


class Salvage:
    """The grants of which something could not be read twice; nothing of them is fetched meanwhile.

    Args:
        most: bytes that a batch may have, decompressed.

    Attributes:
        waiting: those grants, and the error of each.
    """

    def __init__(self, fetcher: Fetcher, most: int, options: FetchOptions) -> None:
        self._fetcher = fetcher
        self._most = most
        self._options = options
        self.waiting: dict[Grant, Exception] = {}

    def add(self, grant: Grant, error: Exception) -> None:
        """Takes a grant whose position cannot be read."""
        grant.is_salvaged = True
        grant.cursor.pause()
        self.waiting[grant] = error

    async def run(self) -> None:
        """Salvages one grant: puts its readable records, and the unreadable ones, into its buffer.

        One at a time, so that the partitions that can be read do not wait for all of them.

        Cancellation: what is not done yet is done by the next call.
        """
        grant = next(iter(self.waiting), None)
        if grant is None:
            return
        try:
            is_open = grant.state is GrantState.OPEN
            self._put(grant, self._judge(grant, await self._fetch(grant)) if is_open else None)
        except CorruptRecordException as error:  # the broker's own answer
            self._put(grant, unknown(grant.cursor.position, b"", error))
        except (KafkaError, AnswerFormatError, OSError, TimeoutError) as error:
            await self._give_back(grant, error)

    async def _give_back(self, grant: Grant, error: Exception) -> None:
        """Gives it back to the fetches in the background, which look up leaders and report faults."""
        log.warning("%s is fetched again in %.1f s: %r", grant.tp, BACKOFF, error, extra=REPEATS)
        await asyncio.sleep(BACKOFF)
        self._put(grant, None)

    def _judge(self, grant: Grant, answer: PartitionAnswer) -> Salvaged | Unpacker | None:
        """Takes an answer apart; None if it can be read after all, which is said once for each position."""
        position = grant.cursor.position

        def skips(raw: bytes) -> bool:
            batches = self._batches(grant, answer, raw)
            return batches.is_skipped(batches.next())

        found = salvage(answer.records, position, answer.highwater, self._most, skips)
        if found is None and grant.acquitted == position:
            return self._read(grant, answer)
        grant.acquitted = position
        return found

    def _read(self, grant: Grant, answer: PartitionAnswer) -> Salvaged | Unpacker:
        """Reads what the leader sent, since the damaged copy may have been a follower's."""
        position = grant.cursor.position
        trial = self._unpacker(grant, answer)
        error = self.waiting[grant]
        try:
            trial.take(grant.assignment, 1, 1)
        except Exception as failure:  # noqa: BLE001 - codecs raise whatever they like
            error = failure
        if trial.next_fetch_offset == position:
            return unknown(position, answer.records, error)
        return self._unpacker(grant, answer)

    def _unpacker(self, grant: Grant, answer: PartitionAnswer) -> Unpacker:
        """Reads up to a batch that holds too much; a first batch that holds too much is read if all of it is skipped."""
        data = answer.records
        found = oversized(data, self._most)
        if found is not None:
            at, _error = found
            data = data[: at or next(batch_headers(data)).end]
        batches = self._batches(grant, answer, data)
        return Unpacker(batches, answer.highwater, skips_old=True)

    def _batches(self, grant: Grant, answer: PartitionAnswer, data: bytes) -> Batches:
        is_committed = bool(self._options.isolation)
        return Batches(data, grant.cursor.position, answer.aborted, is_committed=is_committed)

    def _put(self, grant: Grant, batch: Salvaged | Unpacker | None) -> None:
        del self.waiting[grant]
        grant.is_salvaged = False
        # 1. the fetch is under way; 2. the partition is revoked, and perhaps granted anew; 3. the answer
        # comes. Under the new grant the position is another one, and it is fetched in the background.
        if grant.state is not GrantState.OPEN:
            return
        if batch is not None:
            grant.cursor.put(_chunk(grant.cursor.position, batch))
        if grant.is_fetched:
            grant.cursor.resume()

    async def _fetch(self, grant: Grant) -> PartitionAnswer:
        """Fetches the bytes at a grant's position, at least one."""
        async with asyncio.timeout(PATIENCE + self._options.max_wait / 1000):
            answer = await self._fetcher.fetch_alone(grant.cursor, MAX_WAIT)
        if answer.error:
            raise for_code(answer.error)(grant.tp)
        if not answer.records:
            raise TimeoutError(f"the broker sends nothing of offset {grant.cursor.position}")
        return answer


def _chunk(position: int, batch: Salvaged | Unpacker) -> Chunk:
    """Makes a chunk as fetches in the background do. Nothing behind it is fetched before it was read."""
    chunk = Chunk(b"", position, Reach(position, -1, is_compressed=False))
    chunk.unpacker = batch
    return chunk


def unreadable_run(grant: Grant, found: Unreadable) -> Run:
    """Makes the run that tells the runtime of an unreadable record, with its bytes if their end is known."""
    grant.has_fault = True
    grant.cursor.pause()
    first, last = found.first, found.last
    where = f"fetching {grant.tp.topic}[{grant.tp.partition}]"
    fault = unreadable_error(where, found, "set the group's offset behind it")
    if last is None:
        return Run(grant.assignment, fault=fault)
    grant.behind = last + 1
    message = Message.make(grant.assignment, first, found.raw)
    return Run.unreadable(
        message, last + 1, fault, first=str(first), last=str(last), last_position=last
    )
