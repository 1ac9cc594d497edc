"""Where the pages of one shard come from: asked for here, pushed to a subscriber in `fan_out`."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import ClassVar

from consumer_sdk.adapters.kinesis.service.faults import IteratorExpiredError, ThrottledError
from consumer_sdk.adapters.kinesis.service.rates import ShardRates
from consumer_sdk.adapters.kinesis.service.service import Page, Service
from consumer_sdk.adapters.kinesis.starts import iterator_start
from consumer_sdk.records import Start

__all__ = ["Polling", "Source"]

MOST = 10_000
"""Records that one answer may have."""


class Source(ABC):
    """Reads one shard for as long as it is held.

    Attributes:
        first_size: bytes to expect of the first page, which is that of all that nobody has read.
    """

    __slots__ = ("_is_placed",)

    first_size: ClassVar[int]

    def __init__(self) -> None:
        self._is_placed = False

    @property
    @abstractmethod
    def interval(self) -> float:
        """Seconds between two pages of a shard that has nothing."""

    def _marked(self, page: Page) -> Page:
        """Notes whether it has the first records since the shard was asked for by a cursor."""
        page.is_first = self._is_placed
        self._is_placed = self._is_placed and not page.sequences
        return page

    @abstractmethod
    async def read(self, cursor: Start) -> Page:
        """The next page at the cursor, which follows the pages that this gave, unless `reset`.

        Raises:
            TransientAdapterError: calling again later may help.
            PositionOutOfRangeError: the cursor is not in the shard.
            AdapterError: calling again does not help.

        Cancellation: the same page can be read again.
        """

    async def turn(self) -> None:  # noqa: B027 - what is pushed has no limits that we keep
        """Waits until the shard's limits allow a read."""

    async def rest(self) -> None:  # noqa: B027 - most have nothing to give back
        """Nothing will be read for a while: gives back what that would cost. The place is kept."""

    @abstractmethod
    async def reset(self) -> None:
        """The next page is asked for by the cursor alone. Idempotent; gives back what it holds."""


class Polling(Source):
    """GetRecords, as often as the shard's limits and what it brings make sensible.

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
