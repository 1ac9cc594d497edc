"""Looks after connections, which nobody tells of, and after who is active."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from consumer_sdk.adapters.pulsar.admin import Admin
from consumer_sdk.adapters.pulsar.faults import BusyError
from consumer_sdk.adapters.pulsar.options import PulsarOptions
from consumer_sdk.adapters.pulsar.subscriber import Subscriber
from consumer_sdk.errors import AdapterError, TransientAdapterError
from consumer_sdk.records import Partition

__all__ = ["Watch"]

log = logging.getLogger(__name__)

LOOK = 0.05
"""Seconds between two looks: a topic's unload takes its connection away for about 0.09."""

PATIENCE = 3.0
"""Seconds without a connection after which another consumer is tried."""

ACTIVE = 1.0
"""Seconds between two questions for a failover subscription's active consumer."""


class Watch:
    """Watches all subscribers of an adapter.

    Args:
        lost: told of one whose subscription another process has.
    """

    def __init__(
        self,
        subscribers: Mapping[Partition, Subscriber],
        admin: Admin | None,
        options: PulsarOptions,
        *,
        lost: Callable[[Subscriber], None],
    ) -> None:
        self._subscribers = subscribers
        self._admin = admin if options.type == "failover" else None
        self._options = options
        self._lost = lost
        self._gone_since: dict[Subscriber, float] = {}

    async def run(self) -> None:
        """Watches for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_connections())
            if self._admin is not None:
                tasks.create_task(self._watch_active(self._admin))

    async def _watch_connections(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            for subscriber in list(self._subscribers.values()):
                await self._look(subscriber)

    async def _look(self, subscriber: Subscriber) -> None:
        now = asyncio.get_running_loop().time()
        if not subscriber.has_consumer or subscriber.is_connected:
            self._gone_since.pop(subscriber, None)
            return
        since = self._gone_since.get(subscriber)
        if since is None:
            subscriber.losses += 1
            self._gone_since[subscriber] = now
        elif now - since > PATIENCE and subscriber.assignment is not None:
            await self._replace(subscriber)
            self._gone_since[subscriber] = asyncio.get_running_loop().time()

    async def _replace(self, subscriber: Subscriber) -> None:
        """A frozen process that was displaced would wait for ever."""
        try:
            async with asyncio.timeout(PATIENCE):
                await subscriber.subscribe()
        except BusyError:
            if self._options.type == "exclusive":
                self._lost(subscriber)
        except (TransientAdapterError, TimeoutError):
            pass  # the broker is away
        except AdapterError as error:
            log.warning("%s: %s", subscriber.partition, error)

    async def _watch_active(self, admin: Admin) -> None:
        """Who was deposed still has what it was sent before; who became active may have nothing."""
        while True:
            await asyncio.sleep(ACTIVE)
            for subscriber in list(self._subscribers.values()):
                if not (subscriber.is_open or subscriber.is_standby):
                    continue
                try:
                    active = await admin.active_consumer(
                        subscriber.topic, self._options.subscription
                    )
                except AdapterError as error:
                    log.warning("%s: %s", subscriber.partition, error)
                    break
                self._tell(subscriber, active)

    def _tell(self, subscriber: Subscriber, active: str | None) -> None:
        if active is None:
            return
        if subscriber.is_standby and active == subscriber.name:
            subscriber.activate()
        elif subscriber.is_open and active != subscriber.name:
            self._lost(subscriber)
