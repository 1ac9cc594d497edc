"""One range, through one native reader after another.

- **After a reconnect** the client goes on behind the last message that was read; whatever comes that
  does not ascend is dropped.
- **The end** is a message that leaves nothing below the stop, or one beyond it; where neither comes
  (ledgers that were deleted, entries that hold no message) the client is asked whether there are more.
- **Chunks**: a large message lies in several entries, and is where its last one is. Others may lie
  in between. A reader that begins behind its first chunk drops it, and all that shows is a gap in the
  entries. Then another reader begins some entries earlier; what was read already is dropped again.
- **What the client cannot decode** (a checksum that is wrong, a codec or a key that fails) it drops, and
  tells nobody: all that shows is a gap, too. The network may have changed it: another reader begins at
  the gap, up to twice. What does not come then either, and is known to hold messages, is an error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from typing import Any

import _pulsar

from consumer_sdk.adapters.doubts import REFETCHES, Doubts
from consumer_sdk.adapters.pulsar.client.ids import Place, id_at, place_of
from consumer_sdk.adapters.pulsar.ranges.decoding import Part, ends_at, first_chunk
from consumer_sdk.adapters.pulsar.ranges.entries import Entries
from consumer_sdk.adapters.pulsar.ranges.native import POLL, NativeReader
from consumer_sdk.adapters.pulsar.ranges.queues import Queue
from consumer_sdk.adapters.pulsar.ranges.reader_pool import Kept, KeptReaders
from consumer_sdk.errors import TransientAdapterError, UnreadableRecordError
from consumer_sdk.range_reads import Columns

__all__ = ["RangeReading"]

log = logging.getLogger(__name__)

LULL = 5
"""Milliseconds that a read waits for each further message: with less than a part, not for long."""

MOST = 20_000
"""Messages of a part: small ones would take long to fill its bytes."""

QUIET = 1.0
"""Seconds without a message, although there is one, after which it may be a message that was dropped."""

GAPS = 16
"""That are read again where nobody tells what the entries are; then it is known that there are such."""

BACK = (16, 64, 512)
"""Entries before a gap from which reading is tried; a chunk has up to 5 MiB."""


class RangeReading:
    """Reads from a start to a stop.

    Args:
        new_reader: makes readers, not opened.
        configuration: makes a native reader's, for a number of messages that are sent ahead.
        queue: knows that number.
        kept: where the reader may come from, and goes to.
        entries: what is known of the topic's entries.
        stall: seconds without anything after which the broker counts as stuck.

    Attributes:
        first: the first position that came, also one at the stop or behind it.
        has_records: something was read.
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
                part = Part(with_headers=with_headers)
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

    async def _fill(self, part: Part, max_bytes: int) -> None:
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

    async def _advance(self, part: Part, max_bytes: int) -> None:
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
        self._is_done = await self._entries.are_chunks(self._next, self._stop)
        if not self._is_done:
            await self._read_again((*self._last[:2], 0))  # the rest of a batch may be missing

    async def _mind_gap(self) -> None:
        """A message does not follow on the one before it."""
        native_id = self._held.message_id()
        begin, (ledger, entry, _) = first_chunk(native_id), place_of(native_id)
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
        dropped = await self._entries.first_plain(self._next, min(here, self._stop))
        if dropped is None and (self._entries.are_known or self._empty_gaps >= GAPS):
            return
        if await self._read_again(gap if dropped is None else self._next):
            return
        self._empty_gaps += 1
        if dropped is not None:
            raise UnreadableRecordError(
                f"{self._reader.topic}: ledger {dropped[0]}, entry {dropped[1]} cannot be read, also "
                f"when it is read again: the client drops it (its checksum is wrong, or it cannot be "
                f"decompressed or decrypted; the client's log says which). Mend that, or read what "
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

    def _read(self, native: Any, part: Part, max_bytes: int) -> bool:
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
                native_id = raw.message_id()
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
                if ends_at(native_id, here, stop):
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
