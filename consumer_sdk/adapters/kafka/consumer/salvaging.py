"""Fetches once more, by itself, what could not be read twice."""

from __future__ import annotations

import asyncio
import logging

from aiokafka.errors import CorruptRecordException, KafkaError, for_code

from consumer_sdk.adapters.assignment_book import GrantState
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
from consumer_sdk.adapters.kafka.fetch.chunks import Chunk, Reach
from consumer_sdk.adapters.kafka.fetch.cursors import FetchOptions
from consumer_sdk.adapters.kafka.fetch.fetcher import Fetcher
from consumer_sdk.adapters.kafka.fetch.structs import AnswerFormatError, PartitionAnswer
from consumer_sdk.log_limits import REPEATS
from consumer_sdk.records import Message, Run

__all__ = ["Salvage", "unreadable_run"]

log = logging.getLogger(__name__)

BACKOFF = 0.1
"""Seconds between two tries."""
PATIENCE = 2.0
"""Seconds for an answer: a fetch waits for it, and what it waits is bounded. What a fetch in the background
may wait is added, as a broker answers the requests of a connection one after another."""
MAX_WAIT = 1000
"""Milliseconds that the broker may wait for a byte: there was one, and it answers at once."""


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
        """Puts what can be read of one, and what cannot, where what was fetched is.

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
        """Has it fetched in the background, where leaders are asked for, and faults are told."""
        log.warning("%s is fetched again in %.1f s: %r", grant.tp, BACKOFF, error, extra=REPEATS)
        await asyncio.sleep(BACKOFF)
        self._put(grant, None)

    def _judge(self, grant: Grant, answer: PartitionAnswer) -> Salvaged | Unpacker | None:
        """None: it can be read after all; that is said of a position once."""
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
        """What the leader sent: a follower may have been read, whose copy is another."""
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
        """Up to a batch that holds too much; the first one does only if it is skipped."""
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
        """What lies at a grant's position, as it is stored; some bytes at least."""
        async with asyncio.timeout(PATIENCE + self._options.max_wait / 1000):
            answer = await self._fetcher.fetch_alone(grant.cursor, MAX_WAIT)
        if answer.error:
            raise for_code(answer.error)(grant.tp)
        if not answer.records:
            raise TimeoutError(f"the broker sends nothing of offset {grant.cursor.position}")
        return answer


def _chunk(position: int, batch: Salvaged | Unpacker) -> Chunk:
    """As if it had come in the background. Nothing behind it is asked for before it was read."""
    chunk = Chunk(b"", position, Reach(position, -1, is_compressed=False))
    chunk.unpacker = batch
    return chunk


def unreadable_run(grant: Grant, found: Unreadable) -> Run:
    """What the runtime is told; with the bytes where it is known how far they reach."""
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
