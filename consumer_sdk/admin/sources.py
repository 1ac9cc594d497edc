"""The consumers that an admin server shows: those of this process, or of several processes together."""

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
    """An action was not done in time; it goes on."""


class Source(ABC):
    """Consumers that can be shown, and paused, flushed and stopped by hand. A number from 0 names each.

    Concurrency: everything is called in one event loop.
    """

    __slots__ = ()

    @abstractmethod
    async def refresh(self) -> None:
        """Refreshes what the other methods tell, to no older than a second, if that can be had soon."""

    @abstractmethod
    def collector(self) -> Collector:
        """The collector for a registry of prometheus_client, which asks it in a thread, after `refresh`."""

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """All consumers have ended for good."""

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
        """Pauses a partition, or all for None; with ``reason`` None it resumes them.

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
        """Stops a consumer.

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
        """Does nothing: consumers of this process always tell how they are now."""

    def collector(self) -> Collector:
        """A collector that asks the consumers itself."""
        from consumer_sdk.telemetry import collector  # of the extra, which a worker does not need

        return collector(*self._consumers)

    @property
    def is_over(self) -> bool:
        """A consumer that was closed is over: none is opened twice."""
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
        """Pauses or resumes at once."""
        if reason is None:
            self._consumers[consumer].resume(partition)
        else:
            self._consumers[consumer].pause(partition, reason=reason)

    async def flush(self, consumer: int) -> None:
        """Flushes, within `FLUSH_TIME`."""
        try:
            async with asyncio.timeout(FLUSH_TIME):
                await self._consumers[consumer].flush()
        except TimeoutError:
            raise LateError(
                f"not everything is durable after {FLUSH_TIME:g} s; it goes on"
            ) from None

    async def stop(self, consumer: int) -> None:
        """Stops the consumer, which drains."""
        self._consumers[consumer].stop()
