"""Reads one range, through one native reader after another, into columns.

- **After a reconnect** the client goes on behind the last message that was read. A message whose position
  is not above the last one is dropped.
- **The end** of a range is a message with nothing between it and the stop, or a message beyond the stop.
  Where neither comes (ledgers that were deleted, entries without a message) the client is asked whether
  there are more. A stop may lie in the middle of a producer's batch.
- **Chunks**: a large message lies in several entries, and its position is that of the last one. Entries of
  other messages may lie in between. A reader that begins behind the first chunk drops the message: only a
  gap in the entries shows it. Then another reader begins some entries earlier, and what was read before is
  dropped again.
- **An entry that the client cannot decode** (its checksum is wrong, its codec or its key fails) is dropped by
  the client without a word: again only a gap shows it. The network may have changed the entry, so another
  reader begins at the gap, up to twice. If the entry does not come then either, and is known to hold
  messages, the read raises.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from typing import Any

import _pulsar

from consumer_sdk.adapters.doubts import REFETCHES, Doubts
from consumer_sdk.adapters.pulsar.client.ids import Place, batch_size, id_at, place_of
from consumer_sdk.adapters.pulsar.client.texts import headers_of, key_of
from consumer_sdk.adapters.pulsar.ranges.native_readers import (
    POLL,
    Kept,
    KeptReaders,
    NativeReader,
    Queue,
)
from consumer_sdk.adapters.pulsar.ranges.topic_stats import Entries
from consumer_sdk.checkpoints.positions import LAST_BATCH_INDEX
from consumer_sdk.errors import TransientAdapterError, UnreadableRecordError
from consumer_sdk.range_reads import Columns, Header

__all__ = ["RangeReading"]

log = logging.getLogger(__name__)

# Unbound: looking a method up on each message costs half as much as calling it.
_id_of = _pulsar.Message.message_id
_key_of = _pulsar.Message.partition_key
_data_of = _pulsar.Message.data
_publish_time_of = _pulsar.Message.publish_timestamp

LULL = 5
"""Milliseconds that a read waits for each message after its first: a part may be short, but not late."""

MOST = 20_000
"""Messages of a part at most: small ones would take long to fill its bytes."""

QUIET = 1.0
"""Seconds after which a message that exists and does not come may be one that the client has dropped."""

GAPS = 16
"""Gaps of a range that are read again although nobody tells what their entries are. After so many that
held nothing, the topic is taken to have such entries (transactions, markers)."""

BACK = (16, 64, 512)
"""How many entries before a gap another reader begins, in turn; a chunk has up to 5 MiB."""


class RangeReading:
    """Reads from a start to a stop.

    Args:
        new_reader: makes a reader that is not open yet.
        configuration: makes a native reader's configuration, for a number of messages that are sent ahead.
        queue: tells that number.
        kept: readers of earlier ranges; this one's goes there at its end.
        entries: tells what the topic's entries are.
        stall: seconds without a message after which the broker counts as stuck.

    Attributes:
        first: the first position that came, also one at the stop or behind it.
        has_records: at least one record was read.
    """

    def __init__(
        self,
        start: Place,
        stop: Place,
        *,
        new_reader: Callable[[], NativeReader],
        configuration: Callable[[int], Any],
        queue: Queue,
        kept: KeptReaders,
        entries: Entries,
        stall: float,
    ) -> None:
        self._stop = stop
        self._new_reader = new_reader
        self._configuration = configuration
        self._queue = queue
        self._length = queue.length
        self._kept = kept
        self._entries = entries
        self._stall = stall
        self._start = start
        self._reader = new_reader()
        self._begin: Place = (start[0], start[1], 0)
        self._last: Place = (start[0], start[1], start[2] - 1)
        self._next: Place = (start[0], start[1], 0)  # also within a batch: the rest of it must come
        self._held: Any = None
        self._came = 0.0
        self._is_done = not start < stop
        self._is_at_stop = False
        self._doubts = Doubts()
        self._empty_gaps = 0
        self.first: Place | None = None
        self.has_records = False

    async def parts(self, *, with_headers: bool, max_bytes: int) -> AsyncGenerator[Columns, None]:
        """Everything, once and in order.

        Raises:
            TransientAdapterError: nothing has come for too long, although there is more.
            UnreadableRecordError: the client drops an entry, each time.
            AdapterError: the broker refuses.
        """
        if self._is_done:
            return
        try:
            await self._take_reader()
            while not self._is_done:
                part = _Part(with_headers=with_headers)
                await self._fill(part, max_bytes)
                if len(part):
                    self.has_records = True
                    self._queue.weigh(len(part), part.size)
                    yield part.columns()
        finally:
            await asyncio.shield(self._leave_reader())

    async def _take_reader(self) -> None:
        found = self._kept.take(self._reader.topic, self._start)
        if found is None:
            await self._open()
        else:
            self._reader, self._begin, self._length = found.reader, found.begin, found.queue
            self._came = asyncio.get_running_loop().time()

    async def _leave_reader(self) -> None:
        """Where the last message of the range was read, and nothing behind it, the next range begins."""
        if self._is_at_stop and self._queue.may_stay(self._length):
            self._kept.keep(Kept(self._reader, self._begin, self._stop, self._length))
        else:
            await self._reader.aclose()

    async def _open(self) -> None:
        self._length = self._queue.length
        await self._reader.open(id_at(self._begin), self._configuration(self._length))
        self._came = asyncio.get_running_loop().time()

    async def _open_at(self, begin: Place) -> None:
        """With another reader; where that cannot be opened, the one that is there goes on."""
        reader, length = self._new_reader(), self._queue.length
        await reader.open(id_at(begin), self._configuration(length))
        old, self._reader, self._begin, self._length = self._reader, reader, begin, length
        self._held, self._came = None, asyncio.get_running_loop().time()
        await old.aclose()

    async def _fill(self, part: _Part, max_bytes: int) -> None:
        """Leaves it empty only at the end."""
        try:
            async with asyncio.timeout(self._stall):
                while not (len(part) or self._is_done):
                    await self._advance(part, max_bytes)
        except TimeoutError as error:
            raise TransientAdapterError(
                f"{self._reader.topic}: nothing came after {self._last} for {self._stall:g} s, "
                f"although there is more: read again"
            ) from error

    async def _advance(self, part: _Part, max_bytes: int) -> None:
        if self._queue.is_too_long(self._length):
            await self._open_at((*self._last[:2], 0))  # the rest of a batch comes once more
        if self._held is not None:
            await self._mind_gap()
        if await self._reader.run(self._read, part, max_bytes):
            self._came = asyncio.get_running_loop().time()
        else:
            await self._mind_silence()

    # -- what does not come ---------------------------------------------------------------

    async def _mind_silence(self) -> None:
        """A question that fails is asked again: while the connection is away, nobody knows."""
        with suppress(TransientAdapterError):
            if not await self._reader.has_more():
                self._is_done = True
            elif asyncio.get_running_loop().time() - self._came > QUIET:
                await self._mind_chunks()

    async def _mind_chunks(self) -> None:
        """Of a message that began before the reader, or that is not whole yet; or it was dropped."""
        if await self._look_back(self._next, BACK):
            return
        # A broker may be slow: a message that is whole is waited for, until the read has stalled.
        begin, start = self._begin, self._next
        self._is_done = await self._entries.end_no_message(begin, start, self._stop)
        if not self._is_done:
            await self._read_again((*self._last[:2], 0))  # the rest of a batch may be missing

    async def _mind_gap(self) -> None:
        """A message does not follow on the one before it."""
        native_id = self._held.message_id()
        begin, (ledger, entry, _) = _first_chunk(native_id), place_of(native_id)
        gap = self._next if ledger == self._next[0] else (ledger, 0, 0)
        # Its own chunks may hide the last one of another message.
        is_own = begin is not None and begin <= gap
        is_new = self._doubts.position != self._next and (ledger, entry) > gap[:2]
        if is_new and await self._look_back(gap, BACK[:1] if is_own else BACK):
            return
        if not is_own:
            await self._mind_dropped(gap, (ledger, entry, 0))

    async def _mind_dropped(self, gap: Place, here: Place) -> None:
        """Entries before a message that did not come, although nothing says that they hold none.

        Raises:
            UnreadableRecordError: one did not come however often it was read, and holds messages.
        """
        until = min(here, self._stop)
        dropped = await self._entries.first_ending(self._begin, self._next, until)
        if dropped is None and (self._entries.are_known or self._empty_gaps >= GAPS):
            return
        if await self._read_again(gap if dropped is None else self._next):
            return
        self._empty_gaps += 1
        if dropped is not None:
            raise UnreadableRecordError(
                f"{self._reader.topic}: ledger {dropped[0]}, entry {dropped[1]} cannot be read, also "
                f"when it is read again: the client drops it (its checksum is wrong, or it cannot be "
                f"decompressed or decrypted; the client's log says which). Fix that, or read what "
                f"lies behind it"
            )

    async def _read_again(self, begin: Place) -> bool:
        """Another reader begins there, unless that was so often enough."""
        if self._doubts.failed_at(self._next) > REFETCHES:
            return False
        log.warning(
            "%s: what lies at %s did not come, and is read again", self._reader.topic, begin
        )
        await self._open_at(begin)
        return True

    async def _look_back(self, gap: Place, steps: Sequence[int]) -> bool:
        """Reads again from further back; False: all that far back was read before."""
        for count in steps:
            begin = await self._entries.before(gap, count)
            if begin < self._begin:
                await self._open_at(begin)
                return True
        return False

    # -- in a thread ----------------------------------------------------------------------

    def _read(self, native: Any, part: _Part, max_bytes: int) -> bool:
        """The hot path: takes what there is, up to the stop, a gap or the size of a part.

        Returns:
            False: nothing came.
        """
        read_next, add, stop = native.read_next, part.adder(), self._stop
        last, (ledger, due, _) = self._last, self._next
        is_known = self._entries.are_known
        held, wait = self._held, POLL
        self._held = None
        try:
            while part.size < max_bytes and len(part) < MOST:
                raw = held or read_next(wait)
                wait = LULL
                native_id = _id_of(raw)
                here = place_of(native_id)
                if self.first is None and here > last:
                    self.first = here
                if here <= last:
                    if here[1] == due and here[0] == ledger:
                        due += 1  # the range begins behind some of its batch, or all of it
                    continue
                is_next = here[1] <= due and here[0] == ledger
                if not (is_next or held) and _leaves_gap(here, ledger, due, stop, is_known):
                    self._held = raw
                    return True
                held = None
                if here >= stop:
                    self._is_done = True
                    return True
                last, ledger, due = here, here[0], here[1] + 1
                add(raw, here)
                if _ends_at(native_id, here, stop):
                    self._is_done = self._is_at_stop = True
                    return True
        except _pulsar.Timeout:
            pass  # there is no more for now
        finally:
            self._last, self._next = last, (ledger, due, 0)
        return wait == LULL


def _leaves_gap(here: Place, ledger: int, due: int, stop: Place, is_known: bool) -> bool:  # noqa: FBT001 - in the hot path
    """Entries of the range did not come before a message, or may not: of a ledger before its own."""
    if here[0] != ledger:
        return here[1] > 0 or is_known
    return here[1] > due and (ledger, due, 0) < stop


# -- messages as columns ------------------------------------------------------------------


class _Part:
    """Consecutive messages, column by column.

    Attributes:
        size: bytes of their values.
    """

    def __init__(self, *, with_headers: bool) -> None:
        self._places: list[Place] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._times: list[int | None] = []
        self._headers: list[Sequence[Header]] | None = [] if with_headers else None
        self.size = 0

    def __len__(self) -> int:
        return len(self._places)

    def adder(self) -> Callable[[Any, Place], None]:
        """What adds the next message; all in one closure, since attributes cost a fifth of it."""
        add_place, add_value = self._places.append, self._values.append
        add_key, add_time = self._keys.append, self._times.append
        add_headers = None if self._headers is None else self._headers.append

        def add(raw: Any, place: Place) -> None:
            value: bytes | None = _data_of(raw)
            if value:
                self.size += len(value)
            elif raw.has_null_value():
                value = None
            add_value(value)
            add_place(place)
            add_time(_publish_time_of(raw))
            try:
                key = _key_of(raw)
            except UnicodeDecodeError:
                add_key(key_of(raw))
            else:
                add_key(key.encode() if key else None)
            if add_headers is not None:
                add_headers(headers_of(raw))

        return add

    def columns(self) -> Columns:
        """All that was added; the lists are given away."""
        headers = self._headers if self._headers and any(self._headers) else None
        return Columns(self._places, self._keys, self._values, self._times, headers)


def _ends_at(native: Any, here: Place, stop: Place) -> bool:
    """Nothing can lie between a message, which is below the stop, and the stop."""
    ledger, entry, index = here
    if ledger != stop[0] or entry < stop[1] - 1:
        return False
    if entry == stop[1]:
        return index + 1 >= stop[2]
    return not stop[2] and (index == LAST_BATCH_INDEX or index + 1 == batch_size(native))


def _first_chunk(native: Any) -> Place | None:
    """Where the first chunk of a message lies; None of one that is in one piece.

    The client writes such an id as ``(first);(last)``, and has no other way to the first.
    """
    first, semicolon, _ = str(native).partition(";")
    if not semicolon:
        return None
    ledger, entry = first.strip("()").split(",")[:2]
    return int(ledger), int(entry), 0
