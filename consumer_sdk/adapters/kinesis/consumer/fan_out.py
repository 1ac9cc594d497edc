"""Pages that are pushed: enhanced fan-out, for one shard.

A subscription ends by itself after five minutes, and goes on where its last event said
(https://docs.aws.amazon.com/kinesis/latest/APIReference/API_SubscribeToShard.html). That place
moves while the shard is idle too, so that a subscriber never falls behind the retention period. A
subscriber that has no room does not take the next event; the connection holds the service back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import ClassVar

from consumer_sdk.adapters.kinesis.consumer.sources import Source
from consumer_sdk.adapters.kinesis.service.service import IteratorStart, Page, Service
from consumer_sdk.adapters.kinesis.starts import iterator_start
from consumer_sdk.errors import TransientAdapterError
from consumer_sdk.records import Start

__all__ = ["FanOut"]

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
