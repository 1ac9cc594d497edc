"""Fetches once more, by itself, what the client could not read twice."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from aiokafka.consumer.fetcher import FetchResult, PartitionRecords
from aiokafka.errors import (
    CorruptRecordException,
    KafkaError,
    LeaderNotAvailableError,
    NoError,
    for_code,
)
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record.memory_records import MemoryRecords

from consumer_sdk.adapters.assignment_book import GrantState
from consumer_sdk.adapters.kafka.consumer.grants import Grant
from consumer_sdk.adapters.kafka.decoding.salvage import (
    Salvaged,
    Unreadable,
    salvage,
    unknown,
    unreadable_error,
)
from consumer_sdk.adapters.kafka.decoding.unpacking import Unpacker, partition_of
from consumer_sdk.log_limits import REPEATS
from consumer_sdk.records import Message, Run

__all__ = ["Salvage", "unreadable_run"]

log = logging.getLogger(__name__)

BACKOFF = 0.1
"""Seconds between two tries."""
PATIENCE = 2.0
"""Seconds for an answer: a fetch waits for it, and what it waits is bounded. What the client's own
fetch may wait is added, as a broker answers the requests of a connection one after another."""
MAX_WAIT = 1000
"""Milliseconds that the broker may wait for a byte: there was one, and it answers at once."""


class Salvage:
    """The grants of which something could not be read twice; nothing of them is fetched meanwhile.

    Args:
        most: bytes that a batch may have, decompressed.

    Attributes:
        waiting: those grants, and the error of each.
    """

    def __init__(self, consumer: Any, most: int) -> None:
        self._consumer = consumer
        self._most = most
        self.waiting: dict[Grant, Exception] = {}

    def add(self, grant: Grant, error: Exception) -> None:
        """Takes a grant whose position cannot be read."""
        grant.is_salvaged = True
        grant.cursor.pause()
        self.waiting[grant] = error

    async def run(self) -> None:
        """Puts what can be read of one, and what cannot, where the client keeps what it fetched.

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
        except (KafkaError, OSError, TimeoutError) as error:
            await self._give_back(grant, error)

    async def _give_back(self, grant: Grant, error: Exception) -> None:
        """Lets the client fetch: it asks for leaders, and says what the consumer is to be told."""
        log.warning("%s is fetched again in %.1f s: %r", grant.tp, BACKOFF, error, extra=REPEATS)
        await asyncio.sleep(BACKOFF)
        self._put(grant, None)

    def _judge(self, grant: Grant, answer: dict[str, Any]) -> Salvaged | Unpacker | None:
        """None: the client can read it after all; that is said of a position once."""
        position = grant.cursor.position
        data, highwater = answer["message_set"], answer["highwater_offset"]
        found = salvage(data, position, highwater, self._most)
        if found is None and grant.acquitted == position:
            return self._read(grant, answer)
        grant.acquitted = position
        return found

    def _read(self, grant: Grant, answer: dict[str, Any]) -> Salvaged | Unpacker:
        """What the leader sent: the client may read a follower, whose copy is another."""
        position = grant.cursor.position
        trial = self._unpacker(grant, answer)
        error = self.waiting[grant]
        try:
            trial.take(grant.assignment, 1, 1)
        except Exception as failure:  # noqa: BLE001 - codecs raise whatever they like
            error = failure
        if trial.next_fetch_offset == position:
            return unknown(position, answer["message_set"], error)
        return self._unpacker(grant, answer)

    def _unpacker(self, grant: Grant, answer: dict[str, Any]) -> Unpacker:
        fetcher = self._consumer._fetcher
        records = PartitionRecords(
            grant.tp,
            MemoryRecords(answer["message_set"]),
            answer.get("aborted_transactions"),
            grant.cursor.position,
            None,
            None,
            fetcher._check_crcs,
            fetcher._isolation_level,
        )
        return Unpacker(records, answer["highwater_offset"], skips_old=True)

    def _put(self, grant: Grant, batch: Salvaged | Unpacker | None) -> None:
        del self.waiting[grant]
        grant.is_salvaged = False
        # 1. the fetch is under way; 2. the partition is revoked, and perhaps granted anew; 3. the answer
        # comes. Under the new grant the position is another one, and the client fetches by itself.
        if grant.state is not GrantState.OPEN:
            return
        if batch is not None:
            assignment = grant.client_assignment
            self._consumer._fetcher._records[grant.tp] = FetchResult(
                grant.tp, assignment=assignment, partition_records=batch, backoff=0
            )
        if grant.is_fetched:
            grant.cursor.resume()

    async def _fetch(self, grant: Grant) -> dict[str, Any]:
        """What lies at a grant's position, as it is stored; some bytes at least."""
        client, fetcher, tp = self._consumer._client, self._consumer._fetcher, grant.tp
        leader = client.cluster.leader_for_partition(tp)
        if leader is None or leader == -1:
            raise LeaderNotAvailableError(tp)
        size = fetcher._max_partition_fetch_bytes
        topics = [(tp.topic, [(tp.partition, grant.cursor.position, size)])]
        request = FetchRequest(MAX_WAIT, 1, size, fetcher._isolation_level, topics)
        async with asyncio.timeout(PATIENCE + fetcher._fetch_max_wait_ms / 1000):
            answer = partition_of(await client.send(leader, request))
        if answer is None:
            raise LeaderNotAvailableError(tp)
        error = for_code(answer["error_code"])
        if error is not NoError:
            raise error(tp)
        if not answer["message_set"]:
            raise TimeoutError(f"the broker sends nothing of offset {grant.cursor.position}")
        return answer


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
