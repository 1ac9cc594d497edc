"""What an admin server shows: consumers of this process, or of several processes together."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from consumer_sdk.errors import ConfigurationError, ConsumerSdkError
from consumer_sdk.options import instance
from consumer_sdk.records import Partition
from consumer_sdk.runtime import Consumer, Health, Snapshot
from consumer_sdk.runtime.observing.health import State

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

__all__ = ["FLUSH_TIME", "Consumers", "LateError", "Source"]

CONSUMER = instance(Consumer, "a Consumer")
OVER = {"closed", "failed"}
FLUSH_TIME = 30.0
"""Seconds that a flush may take."""


class LateError(ConsumerSdkError):
    """What was asked for is not done yet; it goes on."""


class Source(ABC):
    """Consumers that can be looked at, and held by hand. They are called by their place, from 0.

    Concurrency: everything is called in one event loop.
    """

    __slots__ = ()

    @abstractmethod
    async def refresh(self) -> None:
        """Sees to it that what is asked next is no older than a second, if that can be had soon."""

    @abstractmethod
    def collector(self) -> Collector:
        """What a registry of prometheus_client asks, in a thread, after `refresh`."""

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """All have ended for good."""

    @abstractmethod
    def states(self) -> Sequence[State]:
        """Of each consumer."""

    @abstractmethod
    def snapshots(self) -> Sequence[Snapshot]:
        """Of each consumer."""

    @abstractmethod
    def healths(self) -> Sequence[Health]:
        """Of each consumer."""

    @abstractmethod
    async def set_paused(
        self, consumer: int, partition: Partition | None, reason: str | None
    ) -> None:
        """Pauses a partition, or all for None; without a reason it goes on.

        Raises:
            ConsumerSdkError: it cannot.
        """

    @abstractmethod
    async def flush(self, consumer: int) -> None:
        """Makes everything settled durable.

        Raises:
            LateError: not everything is, after `FLUSH_TIME`.
            ConsumerSdkError: it cannot.
        """

    @abstractmethod
    async def stop(self, consumer: int) -> None:
        """Asks for the end.

        Raises:
            ConsumerSdkError: it cannot.
        """


class Consumers(Source):
    """Consumers of this process.

    Raises:
        ConfigurationError: there is none, or it is none.
    """

    __slots__ = ("_consumers",)

    def __init__(self, consumers: Sequence[Consumer]) -> None:
        if not consumers:
            raise ConfigurationError("an admin server needs a consumer that it shows")
        for consumer in consumers:
            CONSUMER.check("consumer", consumer, "admin")
        self._consumers = consumers

    async def refresh(self) -> None:
        """Nothing here is old."""

    def collector(self) -> Collector:
        """Asks the consumers by itself."""
        from consumer_sdk.telemetry import collector  # of the extra, which a worker does not need

        return collector(*self._consumers)

    @property
    def is_over(self) -> bool:
        """None is opened twice."""
        return OVER.issuperset(self.states())

    def states(self) -> Sequence[State]:
        """As they are now."""
        return [each.state for each in self._consumers]

    def snapshots(self) -> Sequence[Snapshot]:
        """Taken now."""
        return [each.snapshot() for each in self._consumers]

    def healths(self) -> Sequence[Health]:
        """As they are now."""
        return [each.health() for each in self._consumers]

    async def set_paused(
        self, consumer: int, partition: Partition | None, reason: str | None
    ) -> None:
        """At once."""
        if reason is None:
            self._consumers[consumer].resume(partition)
        else:
            self._consumers[consumer].pause(partition, reason=reason)

    async def flush(self, consumer: int) -> None:
        """Bounded."""
        try:
            async with asyncio.timeout(FLUSH_TIME):
                await self._consumers[consumer].flush()
        except TimeoutError:
            raise LateError(
                f"not everything is durable after {FLUSH_TIME:g} s; it goes on"
            ) from None

    async def stop(self, consumer: int) -> None:
        """It drains."""
        self._consumers[consumer].stop()
