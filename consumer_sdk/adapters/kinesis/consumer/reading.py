"""Reads a held shard ahead of its fetches: one task for each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from consumer_sdk.adapters.kinesis.consumer.grants import Grant
from consumer_sdk.adapters.kinesis.consumer.read_ahead_budget import ReadAheadBudget
from consumer_sdk.adapters.kinesis.consumer.sources import Source
from consumer_sdk.adapters.kinesis.service.rates import ShardRates
from consumer_sdk.adapters.kinesis.service.service import Page, Shard, ShardGoneError
from consumer_sdk.errors import (
    AdapterError,
    PositionOutOfRangeError,
    TransientAdapterError,
)
from consumer_sdk.log_limits import REPEATS
from consumer_sdk.records import AtTime, Start, StartPoint

__all__ = ["Reader"]

log = logging.getLogger(__name__)

MANY = 5
"""Failures in a row after which the user hears of them."""

LOOK = 60.0
"""Seconds between two looks at the service's clock, by a shard whose start is yet to come."""

ENDS = 3
"""Answers at one place that end a closed shard, of a server that says it lies behind the tip."""

GONE = 10.0
"""Seconds between the first look that did not find a shard listed, or the first answer without
records that ended it, and the one that is believed."""

REFUSALS = 3
"""Times in a row that a place which should be stored is refused before that is believed."""

LATE = 2.0
"""Seconds that a page may take beyond its interval before the word of the last one is out of date."""

SHORTEST_RETENTION = 86_400.0
"""Seconds for which every stream keeps its records."""

FAR = 10.0
"""Seconds until a start, from which on it is no difference of clocks."""

PATIENCE = 5.0
"""Seconds without room after which a subscription is given up until there is some."""


class Reader:
    """Reads one grant until it is over.

    Args:
        rates: the shard's; what fails is tried again no sooner than they say.
        now: the service's clock: what "latest" stands for when it is first read.
        lookup: asked when the service does not take the position, and before an end is believed:
            what is listed of the shard. Raises what ends the consumer.
        check: raises what ends the consumer, unless the stream is still the one that was opened.
        on_children: called with the shard when its end, or a sign of it, was seen.
    """

    def __init__(
        self,
        grant: Grant,
        source: Source,
        rates: ShardRates,
        room: ReadAheadBudget,
        *,
        now: Callable[[], Awaitable[float]],
        lookup: Callable[[str], Awaitable[Shard | None]],
        check: Callable[[], Awaitable[None]],
        on_children: Callable[[str], None],
    ) -> None:
        self._grant = grant
        self._source = source
        self._rates = rates
        self._room = room
        self._now = now
        self._lookup = lookup
        self._check = check
        self._on_children = on_children
        self._failures = 0
        self._refusals = 0
        self._ends = 0
        self._ends_at: Start | None = None
        self._ends_since = 0.0
        self._missing_since: float | None = None
        self._expected = source.first_size
        self._reserved = 0
        grant.on_size = room.count
        self._cursor: Start | None = None

    async def run(self) -> None:
        """Reads for ever; cancel it when the grant is over."""
        try:
            while True:
                await self._patiently(self._until_wanted)
                await self._step()
        finally:
            await self._source.reset()

    async def _patiently(self, wait: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                await wait()
        except TimeoutError:
            await self._source.rest()
            await wait()

    async def _until_wanted(self) -> None:
        grant = self._grant
        while not grant.wants_more:
            grant.changed.clear()
            await grant.changed.wait()

    async def _until_room(self) -> None:
        """The shard's limits come first: what is reserved meanwhile would be nobody's."""
        await self._source.turn()
        size = self._room.share(self._expected)
        await self._room.reserve(size)
        self._reserved = size

    async def _step(self) -> None:
        """Reads a page, if nothing happens first that makes it unwanted."""
        try:
            await self._find_start()
            await self._patiently(self._until_room)
            try:
                if self._grant.wants_more and self._cursor is self._grant.cursor:
                    await self._read()
            finally:
                self._room.release(self._reserved)
        except TransientAdapterError as error:
            await self._try_later(error)
        except AdapterError as error:
            await self._stop(error)

    async def _find_start(self) -> None:
        grant = self._grant
        if grant.cursor is StartPoint.LATEST:
            grant.cursor = AtTime(await self._now())
        if self._cursor is not grant.cursor:  # what was unread has been forgotten
            cursor = grant.cursor
            await self._source.reset()
            await self._until_past(cursor)
            self._cursor, self._ends_at = cursor, None

    async def _read(self) -> None:
        grant, place = self._grant, self._grant.place
        page = await self._source.read(place)
        self._expected = page.size
        await self._check_end(page, place)
        await self._check_gap(page)
        if self._cursor is grant.cursor:
            self._take_in(page)
        if grant.is_paused:
            self._room.freed()

    async def _until_past(self, start: Start) -> None:
        """The service refuses a time to come, such as that of a host whose clock is ahead."""
        if not isinstance(start, AtTime):
            return
        if (early := start.time - await self._now()) > FAR:
            log.warning(
                "%s: it begins at %s, which is to come: nothing is read for %.0f s",
                *(self._grant.assignment.partition, _date(start.time), early),
            )
        while early > 0:
            await asyncio.sleep(min(early, LOOK))
            early = start.time - await self._now()

    async def _check_end(self, page: Page, place: Start) -> None:
        """An end is for ever: one answer that lacks the way on, as of a broken proxy, is none.

        Raises:
            TransientAdapterError: the shard is open, or may have more.
        """
        if page.next is not None or page.has_children:
            return
        shard = await self._find()
        if shard is None:
            log.warning("%s: it is listed no more; it ends here", self._grant.assignment.partition)
            return
        # An answer of before it was closed tells nothing: records may have come after it.
        if shard.is_closed and self._is_end(page, place):
            return
        await self._source.reset()
        state = "closed, perhaps with more to read" if shard.is_closed else "open"
        raise TransientAdapterError(
            f"the answer does not say how to read on, but the shard is listed as {state}"
        )

    async def _check_gap(self, page: Page) -> None:
        """What comes in place of the record asked for may be of another stream of the same name.

        Raises:
            AdapterError: it is, or that is not known; the page comes again.
        """
        if self._grant.has_gap(page):
            try:
                await self._check()
            except AdapterError:
                await self._source.reset()
                raise

    def _is_end(self, page: Page, place: Start) -> bool:
        """Whether as many answers at this place have ended the closed shard as are believed.

        The place is asked for anew each time, and the service begins with the record there: an
        answer without records is odd, unless it is the same for as long as `GONE`.
        """
        now = asyncio.get_running_loop().time()
        if self._ends_at != place:
            self._ends, self._ends_at, self._ends_since = 0, place, now
        self._ends += 1
        is_told = bool(page.sequences) or now - self._ends_since >= GONE
        return is_told and self._ends >= (2 if page.behind == 0 else ENDS)

    async def _find(self) -> Shard | None:
        """What is listed of the shard; None: it was missing each time, for as long as `GONE`.

        Raises:
            TransientAdapterError: it is missing, and has to be looked for again.
        """
        shard = await self._lookup(self._grant.shard)
        now = asyncio.get_running_loop().time()
        if shard is not None:
            self._missing_since = None
            return shard
        if self._missing_since is None:
            self._missing_since = now
        if now - self._missing_since < GONE:
            await self._source.reset()
            raise TransientAdapterError(
                f"the shard is not listed, which ends it for ever: that is believed when it is "
                f"still so after {GONE:.0f} s"
            )
        return None

    def _take_in(self, page: Page) -> None:
        self._grant.take_in(page)
        self._missing_since = None
        self._cursor = self._grant.cursor
        self._failures = self._refusals = 0
        self._rates.recovered()
        now = asyncio.get_running_loop().time()
        self._grant.heard(now, until=now + self._source.interval + LATE)
        if page.has_children or page.next is None:
            self._on_children(self._grant.shard)

    async def _try_later(self, error: TransientAdapterError) -> None:
        """What the source holds stays: an iterator is as good as before."""
        self._failures += 1
        self._grant.doubt()
        wait = self._rates.failed(asyncio.get_running_loop().time())
        if self._failures % MANY == 0:
            log.warning(
                "%s: %d reads in a row have failed, the next one in %.1f s: %s",
                *(self._grant.assignment.partition, self._failures, wait, error),
                extra=REPEATS,
            )
        await asyncio.sleep(wait)

    async def _stop(self, error: AdapterError) -> None:
        """The stream was deleted, or all records of a closed shard have expired; or a fault."""
        await self._source.reset()
        try:
            await self._judge(error)
        except TransientAdapterError as trouble:
            await self._try_later(trouble)

    async def _judge(self, error: AdapterError) -> None:
        is_of_place = isinstance(error, PositionOutOfRangeError)
        shard = await self._find()
        if shard is None and (is_of_place or isinstance(error, ShardGoneError)):
            await self._expire()
        elif is_of_place and self._grant.horizon is None and not self._grant.is_refused:
            await self._find_place(error)
        elif isinstance(error, ShardGoneError):
            raise TransientAdapterError(f"it is listed all the same: {error}") from error
        else:
            self._grant.fail(error)

    async def _expire(self) -> None:
        """The shard is no longer listed."""
        if await self._may_be_lost(self._grant.cursor):
            self._grant.fail(self._grant.lost())
        else:
            self._end(Page())

    async def _may_be_lost(self, cursor: Start) -> bool:
        """Records that nobody has read; after a time that is young enough none can have expired."""
        if isinstance(cursor, AtTime):
            return cursor.time < await self._now() - SHORTEST_RETENTION
        return cursor is StartPoint.EARLIEST

    async def _find_place(self, error: AdapterError) -> None:
        """A position that was trimmed may be refused, instead of giving what is left."""
        try:
            left = await self._first_left()
            # What `_lookup` knows may be a moment old: this may be another stream of the same name.
            await self._check()
        except TransientAdapterError:
            raise
        except ShardGoneError as gone:
            await self._judge(gone)
        except AdapterError as other:
            self._grant.fail(other)
        else:
            self._go_on(left, error)

    async def _first_left(self) -> Page:
        """The first page that is stored; an empty one of an open shard where nothing is."""
        page = Page(next="", behind=1)
        while page.next is not None and page.behind and not page.sequences:
            page = await self._source.read(StartPoint.EARLIEST)
            await self._check_end(page, StartPoint.EARLIEST)
        await self._source.reset()
        return page

    def _go_on(self, left: Page, error: AdapterError) -> None:
        """Decides by the first page that is left.

        Raises:
            TransientAdapterError: the place should be stored, and may be taken the next time.
        """
        grant = self._grant
        if left.next is None and not left.sequences:
            self._end(left)
        elif not grant.is_trimmed(left):
            self._refuse(error)
        elif grant.is_at_settled:
            grant.is_refused = True
        else:
            grant.fail(_caused(grant.lost(left), error))

    def _refuse(self, error: AdapterError) -> None:
        self._refusals += 1
        if self._refusals < REFUSALS:
            raise TransientAdapterError(f"older records are still stored: {error}") from error
        self._refusals = 0
        self._grant.fail(_caused(self._grant.refused(error), error))

    def _end(self, page: Page) -> None:
        log.warning(
            "%s: all records that it still had have expired; it ends here",
            self._grant.assignment.partition,
        )
        page.is_first = False  # what that would tell was just told
        try:
            self._take_in(page)
        except PositionOutOfRangeError as error:
            self._grant.fail(error)


def _date(time: float) -> str:
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _caused(fault: AdapterError, cause: AdapterError) -> AdapterError:
    fault.__cause__ = cause
    return fault
