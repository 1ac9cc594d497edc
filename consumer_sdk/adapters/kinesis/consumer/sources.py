"""Reads the pages of one shard: by polling, or by enhanced fan-out.

A subscription ends by itself after five minutes, and the next one goes on where its last event said
(https://docs.aws.amazon.com/kinesis/latest/APIReference/API_SubscribeToShard.html). That position
also moves while the shard is idle, so a subscriber never falls behind the retention period. A
subscriber that has no room does not read the next event, and the connection's flow control stops
Kinesis.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import ClassVar

from consumer_sdk.adapters.kinesis.service.rates import ShardRates
from consumer_sdk.adapters.kinesis.service.service import (
    IteratorExpiredError,
    IteratorStart,
    Page,
    Service,
    ThrottledError,
)
from consumer_sdk.adapters.kinesis.starts import iterator_start
from consumer_sdk.errors import TransientAdapterError
from consumer_sdk.records import Start

__all__ = ["FanOut", "Polling", "Source"]

MOST = 10_000
"""Records that one answer may have."""


class Source(ABC):
    """Reads one shard for as long as it is held.

    Attributes:
        first_size: expected bytes of the first page after records waited unread.
    """

    __slots__ = ("_is_placed",)

    first_size: ClassVar[int]

    def __init__(self) -> None:
        self._is_placed = False

    @property
    @abstractmethod
    def interval(self) -> float:
        """Seconds between two pages of an idle shard."""

    def _marked(self, page: Page) -> Page:
        """Notes whether it has the first records since the shard was asked for by a cursor."""
        page.is_first = self._is_placed
        self._is_placed = self._is_placed and not page.sequences
        return page

    @abstractmethod
    async def read(self, cursor: Start) -> Page:
        """The next page. It follows the last page, or begins at the cursor after `reset`.

        Raises:
            TransientAdapterError: calling again later may help.
            PositionOutOfRangeError: the cursor is not in the shard.
            AdapterError: calling again does not help.

        Cancellation: the same page can be read again.
        """

    async def turn(self) -> None:  # noqa: B027 - what is pushed has no limits that we keep
        """Waits until the shard's limits allow a read."""

    async def rest(self) -> None:  # noqa: B027 - most have nothing to give back
        """Frees resources, because the shard is not read for a while. The position is kept."""

    @abstractmethod
    async def reset(self) -> None:
        """Makes the next page begin at the cursor, and frees resources. Idempotent."""


class Polling(Source):
    """Polls by GetRecords, as often as the shard's limits and its records make sensible.

    Args:
        rates: the shard's.
    """

    first_size: ClassVar[int] = 10 << 20

    __slots__ = ("_expired", "_iterator", "_rates", "_service", "_shard")

    def __init__(self, service: Service, shard: str, rates: ShardRates) -> None:
        super().__init__()
        self._service = service
        self._shard = shard
        self._rates = rates
        self._iterator: str | None = None
        self._expired = 0

    @property
    def interval(self) -> float:
        return self._rates.longest_poll

    async def read(self, cursor: Start) -> Page:
        while True:
            try:
                return await self._read(cursor)
            except IteratorExpiredError:
                # Of a consumer that was slow, or paused: the cursor knows where to go on.
                self._iterator = None
                self._expired += 1
                if self._expired > 1:  # a new one too: that is no matter of time
                    raise

    async def _read(self, cursor: Start) -> Page:
        await self.turn()
        if self._iterator is None:
            self._iterator = await self._service.iterator(self._shard, iterator_start(cursor))
            self._is_placed = True
        loop = asyncio.get_running_loop()
        self._rates.called(loop.time())
        try:
            page = await self._service.records(self._iterator, MOST)
        except ThrottledError:
            self._rates.refused(loop.time())
            raise
        is_at_tip = page.behind == 0 or (page.behind is None and not page.sequences)
        self._rates.answered(loop.time(), page.size, is_at_tip=is_at_tip)
        self._iterator = page.next
        self._expired = 0
        return self._marked(page)

    async def turn(self) -> None:
        loop = asyncio.get_running_loop()
        wait = self._rates.next_call() - loop.time()
        if wait > 0:
            await asyncio.sleep(wait)

    async def reset(self) -> None:
        self._iterator = None


INTERVAL = 5.0
"""Seconds between two events of an idle shard."""

SILENCE = 30.0
"""Seconds without an event, which comes every five, after which a subscription is taken for dead."""


class FanOut(Source):
    """Subscribes to a shard, again and again.

    Args:
        consumer: the ARN of the registered consumer.
    """

    first_size: ClassVar[int] = 256 << 10  # an event; of an idle shard it is five seconds off

    __slots__ = ("_consumer", "_continuation", "_pages", "_service", "_shard")

    def __init__(self, service: Service, shard: str, consumer: str) -> None:
        super().__init__()
        self._service = service
        self._shard = shard
        self._consumer = consumer
        self._pages: AsyncGenerator[Page, None] | None = None
        self._continuation: str | None = None

    @property
    def interval(self) -> float:
        return INTERVAL

    async def read(self, cursor: Start) -> Page:
        page = None if self._pages is None else await self._next(self._pages)
        if page is None:  # it is the first, its five minutes are over, or another has taken it
            page = await self._next(self._subscribe(cursor))
        if page is None:
            raise TransientAdapterError(f"{self._shard}: a subscription ended without an event")
        self._continuation = page.next
        return self._marked(page)

    async def _next(self, pages: AsyncGenerator[Page, None]) -> Page | None:
        """None when the subscription has ended."""
        try:
            async with asyncio.timeout(SILENCE):
                return await anext(pages)
        except StopAsyncIteration:
            self._pages = None
            return None
        except TimeoutError as error:
            await self.rest()
            raise TransientAdapterError(
                f"{self._shard}: no event of the subscription for {SILENCE:.0f} s"
            ) from error
        except BaseException:
            await self.rest()
            raise

    def _subscribe(self, cursor: Start) -> AsyncGenerator[Page, None]:
        if self._continuation is None:
            start = iterator_start(cursor)
            self._is_placed = True
        else:
            start = IteratorStart("AFTER_SEQUENCE_NUMBER", int(self._continuation))
        self._pages = self._service.subscribe(self._consumer, self._shard, start)
        return self._pages

    async def rest(self) -> None:
        pages, self._pages = self._pages, None
        if pages is not None:
            with suppress(TransientAdapterError):  # it is given up anyway
                await pages.aclose()

    async def reset(self) -> None:
        self._continuation = None
        await self.rest()
