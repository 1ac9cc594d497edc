"""Reads one range by our own fetch requests, without a consumer or a group. The next request is always under way.

The broker answers the next fetch while the records of the last one are decoded and used.

An empty answer may mean that the rest of the range is a gap, because with ``min_bytes=0`` a broker answers at once from
what it has. But a slow empty answer may have waited for a slower storage tier, a quick one may come from that tier's
quota, and one that leaves the partition out was throttled. These prove nothing. The last position before the bound is
in no other tier. So a quick empty answer, whose bound is at or after the stop, proves that the rest of the range is a
gap, if that last position is empty too.

Bytes that cannot be read are fetched again, from the leader: the log may be sound although the network or a replica's
copy is not. Records before them in the same answer are yielded first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import (
    CorruptRecordException,
    KafkaError,
    OffsetOutOfRangeError,
    UnsupportedCodecError,
)
from aiokafka.protocol.fetch import FetchRequest

from consumer_sdk.adapters.doubts import REFETCHES, Doubts
from consumer_sdk.adapters.kafka.client.asking import FIRST_BACKOFF
from consumer_sdk.adapters.kafka.client.faults import check_code, translate
from consumer_sdk.adapters.kafka.client.lookups import EARLIEST, LATEST
from consumer_sdk.adapters.kafka.decoding.record_batches import (
    Doubt,
    is_believed,
    transactions_in_doubt,
)
from consumer_sdk.adapters.kafka.decoding.unpacking import partition_of
from consumer_sdk.adapters.kafka.ranges.batches import (
    Columnizer,
    Fetched,
    columns_of,
    sound_batches,
)
from consumer_sdk.adapters.kafka.ranges.connection import Connection
from consumer_sdk.errors import (
    AdapterError,
    PositionOutOfRangeError,
    TransientAdapterError,
    UnreadableRecordError,
)
from consumer_sdk.range_reads import Columns
from consumer_sdk.records import Assignment, Partition

__all__ = ["RangeRead"]

log = logging.getLogger(__name__)

MAX_WAIT = 1.0
"""Seconds that the broker may wait for another tier, or a replica."""
QUICK = 0.5
"""Seconds within which an answer came from what the broker has at hand."""
FETCH_BYTES = 4 * 2**20
"""Of one answer: larger ones are no faster, and take memory."""
LEAST_BYTES = 2**16
MOST_BYTES = 2**31 - 1
NO_REPLICA = -1
"""The leader answers itself."""
GUESSED_BYTES = 1024
"""Of a record, before the first answer has shown how large they are."""
MARGIN = 1.25
"""So that the last answer of a range is seldom followed by one more for a few records."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One partition's part of a fetch response.

    Attributes:
        bound: what lies before it may be read.
        data: record batches, as they are on the wire.
        aborted: (producer, first offset) of aborted transactions.
        seconds: between asking and having it.
    """

    bound: int
    data: bytes
    aborted: Sequence[tuple[int, int]]
    seconds: float


class DamageError(Exception):
    """What an answer has at the position that was asked for cannot be read.

    Attributes:
        error: why.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(repr(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class Damage:
    """What could not be read.

    Attributes:
        data: of its batch, and of the one behind it where that came; empty where nobody knows.
    """

    error: Exception
    data: bytes = b""


class RangeRead:
    """One reading of one range.

    Args:
        stop: the position after the last.
    """

    def __init__(self, connection: Connection, tp: TopicPartition, start: int, stop: int) -> None:
        self._connection = connection
        self._tp = tp
        self._position = self._begin = start
        self._stop = stop
        self._where = f"fetching {tp.topic}[{tp.partition}]"
        self._most_bytes = FETCH_BYTES
        self._least_bytes = LEAST_BYTES
        self._record_bytes: float = GUESSED_BYTES
        self._ahead: asyncio.Task[Answer] | None = None
        self._rack = connection.options.client_rack
        self._replica: int | None = None
        self._bound = start
        self._doubts = Doubts()
        self._damage: Damage | None = None

    async def parts(self, *, with_headers: bool, max_bytes: int) -> AsyncIterator[Columns]:
        """See `RangeReader.read_range`."""
        self._most_bytes = min(max(max_bytes, 1), FETCH_BYTES)
        options = self._connection.options
        columnizer = Columnizer(
            self._position,
            self._stop,
            is_committed=options.level == 1,
            with_headers=with_headers,
            max_bytes=max_bytes,
            most=options.max_batch_bytes,
        )
        try:
            while self._position < self._stop:
                for columns in self._decoded(columnizer, *await self._next_or_damage()):
                    yield columns
                damage, self._damage = self._damage, None
                if damage is None or self._position >= self._stop:
                    continue
                if not await self._doubt(damage.error):
                    for columns in self._salvaged(columnizer, damage, with_headers=with_headers):
                        yield columns
        finally:
            await self._forget()

    def _decoded(
        self, columnizer: Columnizer, batches: list[Fetched], aborted: Any
    ) -> Iterator[Columns]:
        """Up to what cannot be read; goes back to where that lies."""
        try:
            yield from columnizer.columns(batches, aborted)
        except Exception as error:  # noqa: BLE001 - codecs raise whatever they like
            self._position = columnizer.reached
            self._damage = Damage(error, b"".join(columnizer.data))

    async def _next_or_damage(self) -> tuple[list[Fetched], Any]:
        try:
            return await self._next()
        except DamageError as damage:
            self._damage = Damage(damage.error)
            return [], None

    async def _doubt(self, error: Exception) -> bool:
        """Whether what lies at the position is to be fetched again, from the leader.

        Raises:
            AdapterError: a codec is missing.
        """
        if isinstance(error, UnsupportedCodecError):
            raise translate(error, self._where) from error
        await self._forget()
        self._replica, self._rack = None, ""
        if self._doubts.failed_at(self._position) > REFETCHES:
            return False
        log.warning("%s: %d is fetched again: %r", self._where, self._position, error)
        return True

    def _salvaged(
        self, columnizer: Columnizer, damage: Damage, *, with_headers: bool
    ) -> Iterator[Columns]:
        """The records of a batch before what cannot be read in it.

        Raises:
            UnreadableRecordError: that lies below the stop.
        """
        # Not above: it is seldom needed, and each worker of Spark would import it.
        from consumer_sdk.adapters.kafka.decoding.salvage import salvage, unknown, unreadable_error

        most = self._connection.options.max_batch_bytes
        found = damage.data and salvage(damage.data, self._position, self._bound, most)
        found = found or unknown(self._position, damage.data, damage.error)
        assignment = Assignment(Partition(self._tp.topic, str(self._tp.partition)), 0)
        messages, _size = found.take(assignment, MOST_BYTES, MOST_BYTES)
        if wanted := [message for message in messages if message.position < self._stop]:
            yield columns_of(wanted, damage.data, with_headers=with_headers)
        self._position = columnizer.reached = found.next_fetch_offset
        unreadable = found.unreadable
        if unreadable is None or self._position >= self._stop:
            return
        if unreadable.first >= self._stop and not damage.data.startswith(unreadable.raw):
            self._position = columnizer.reached = self._stop  # a record; of a batch nobody knows
            return
        raise unreadable_error(self._where, unreadable, "read what lies behind it")

    async def _next(self) -> tuple[list[Fetched], Any]:
        """The next batches, and the aborted transactions among them; none at the end."""
        answer = await self._take_ahead() or await self._ask_until()
        answer, batches = await self._open(answer)
        if not batches:
            answer, batches = await self._after_nothing(answer)
        if batches:
            self._move(batches[-1].batch.next_offset, len(answer.data))
        return batches, answer.aborted

    async def _open(self, answer: Answer) -> tuple[Answer, list[Fetched]]:
        """The batches up to one of which the range must not believe where it lies.

        Where nothing but the first batch itself says where that is, it is fetched again, and
        counts if it says the same.

        Raises:
            DamageError: that is the first.
        """
        known: int | None = None
        for _ in range(REFETCHES + 1):
            self._bound = answer.bound
            is_begin = self._position == self._begin
            sound = sound_batches(
                answer.data, self._position, answer.bound, is_begin=is_begin, known=known
            )
            if sound.error is not None and not sound.batches:
                raise DamageError(sound.error)
            if sound.claim is None:
                return answer, sound.batches
            known = sound.claim
            answer = await self._ask_until()
        raise DamageError(
            CorruptRecordException("each answer has another place for the first batch")
        )

    def _move(self, position: int, size: int) -> None:
        """Asks for what comes after what has been brought, before anybody looks at that."""
        moved = position - self._position
        if moved > 0:
            self._record_bytes = size / moved
            self._position = position
        if self._position < self._stop:
            self._ahead = asyncio.ensure_future(self._ask())

    def _fetch_bytes(self) -> int:
        """No more than the range has, as far as one can tell: a small one is read at once."""
        left = round((self._stop - self._position) * self._record_bytes * MARGIN)
        return max(min(left, self._most_bytes), self._least_bytes)

    async def _after_nothing(self, answer: Answer) -> tuple[Answer, list[Fetched]]:
        """Asks on until there are batches, or it is known that there are none."""
        now = asyncio.get_running_loop().time
        deadline = now() + self._connection.options.read_timeout
        batches: list[Fetched] = []
        while not batches:
            if answer.data:  # a broker before Kafka 0.10.1 cuts a record that is larger
                if now() >= deadline:
                    raise UnreadableRecordError(
                        f"{self._where}: what is stored at {self._position} cannot be read: its "
                        f"length points beyond all that the broker sends; repair the log"
                    )
                self._least_bytes = min(2 * self._fetch_bytes(), MOST_BYTES)
            elif await self._is_gap(answer):
                self._position = self._stop
                break
            elif now() >= deadline:
                raise TransientAdapterError(
                    f"{self._where}: waited in vain for what lies between {self._position} and "
                    f"{self._stop}; what may be read ends at {answer.bound}"
                )
            else:
                await asyncio.sleep(FIRST_BACKOFF)
            answer, batches = await self._open(await self._ask_until())
        return answer, batches

    async def _is_gap(self, answer: Answer) -> bool:
        """What follows an empty answer is empty up to its bound, and that is the stop at least."""
        if answer.bound < self._stop or answer.seconds >= QUICK:
            return False
        last = await self._ask_until(answer.bound - 1)
        return not last.data and last.seconds < QUICK

    async def _take_ahead(self) -> Answer | None:
        """The answer that is on its way; None where there is none, or it failed.

        A failure may be as old as the last part: whoever reads may have paused for longer than
        a request may take. It is asked again.
        """
        task, self._ahead = self._ahead, None
        if task is None:
            return None
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
        return None if task.cancelled() or task.exception() else task.result()

    async def _forget(self) -> None:
        """Nobody waits for the answer that is on its way; the connection drops it when it comes."""
        if self._ahead is not None:
            self._ahead.cancel()
            await self._take_ahead()

    async def _ask_until(self, position: int | None = None) -> Answer:
        try:
            return await self._connection.persist(self._where, lambda: self._ask(position))
        except UnreadableRecordError as error:
            if not isinstance(error.__cause__, CorruptRecordException):
                raise
            raise DamageError(error.__cause__) from error  # the broker says so
        except PositionOutOfRangeError as error:
            if not isinstance(error.__cause__, OffsetOutOfRangeError):
                raise
            raise PositionOutOfRangeError(
                f"{self._where}: position {self._position} of a range to {self._stop} is not "
                f"stored; the broker {await self._stored()}"
            ) from error

    async def _stored(self) -> str:
        """For messages: what the broker has, if it tells."""
        try:
            first, end = [
                (await self._connection.look_up([self._tp], time))[self._tp]
                for time in (EARLIEST, LATEST)
            ]
        except AdapterError:
            return "has others"
        return f"has {first} to {end}"

    async def _ask(self, position: int | None = None) -> Answer:
        """Asks for what lies at a position and after it; None: where this reading is.

        A replica near by is asked if the leader has named one (KIP-392). It may be behind, or gone:
        where it brings no records, the leader alone is asked from then on, and only what the leader
        says can mean that there are none.
        """
        if self._replica is not None:
            with suppress(KafkaError, AdapterError, OSError, TimeoutError):
                answer = await self._ask_node(self._replica, position)
                if answer.data:
                    return answer
            self._replica, self._rack = None, ""
        return await self._ask_node(self._connection.leader(self._tp), position)

    async def _ask_node(
        self, node: int, position: int | None, before: Doubt | None = None
    ) -> Answer:
        at = self._position if position is None else position
        tp, now = self._tp, asyncio.get_running_loop().time
        size = self._fetch_bytes()
        request = FetchRequest(
            round(MAX_WAIT * 1000),
            0,  # min_bytes
            size,
            self._connection.options.level,
            [(tp.topic, [(tp.partition, at, size)])],
            **({"rack_id": self._rack} if self._rack else {}),
        )
        started = now()
        response = await self._connection.send(node, request)
        found = partition_of(response)
        if found is None:
            raise TransientAdapterError(f"{self._where}: the broker throttles this client")
        check_code(found["error_code"], tp)
        replica = found.get("preferred_read_replica", NO_REPLICA)
        if self._rack and self._replica is None and replica != NO_REPLICA:
            self._replica = replica
            return await self._ask(position)
        is_committed, bound = (
            bool(self._connection.options.level),
            found.get("last_stable_offset", -1),
        )
        data, aborted = found["message_set"] or b"", found.get("aborted_transactions") or ()
        if is_committed and len(data) < size:
            doubt = transactions_in_doubt(data, aborted, bound)
            if not is_believed(doubt, before):
                return await self._ask_node(node, position, doubt)
        end = bound if bound >= 0 and is_committed else found["highwater_offset"]
        return Answer(end, data, aborted, now() - started)
