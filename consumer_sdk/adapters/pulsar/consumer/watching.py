"""Watches connections, whose loss the client does not report, and which consumer is active."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from consumer_sdk.adapters.pulsar.client.admin import Admin
from consumer_sdk.adapters.pulsar.client.faults import BusyError
from consumer_sdk.adapters.pulsar.consumer.subscriber import Subscriber
from consumer_sdk.adapters.pulsar.options import PulsarOptions
from consumer_sdk.errors import ConsumerSdkError, TransientAdapterError
from consumer_sdk.log_limits import REPEATS
from consumer_sdk.records import Partition

__all__ = ["Watch"]

log = logging.getLogger(__name__)

LOOK = 0.05
"""Seconds between two looks at connections: an unload of a topic takes its connection away for about 0.09."""

PATIENCE = 3.0
"""Seconds without a connection after which another consumer is tried."""

BACK = 1.0
"""Seconds after which a connection that was made is surely seen."""

ACTIVE = 1.0
"""Seconds between two questions for a failover subscription's active consumer."""

TAKEN = "another consumer has it"


class Watch:
    """Watches all subscribers of an adapter.

    Args:
        lost: called with a subscriber whose assignment has to be given up, and why.
    """

    def __init__(
        self,
        subscribers: Mapping[Partition, Subscriber],
        admin: Admin | None,
        options: PulsarOptions,
        *,
        lost: Callable[[Subscriber, str], None],
    ) -> None:
        self._subscribers = subscribers
        self._admin = admin if options.type == "failover" else None
        self._options = options
        self._lost = lost
        self._gone_since: dict[Subscriber, float] = {}
        self._replacing: dict[Subscriber, asyncio.Task[None]] = {}
        self._asking: dict[Subscriber, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Watches for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_connections(tasks))
            if self._admin is not None:
                tasks.create_task(self._watch_active(tasks, self._admin))

    async def _watch_connections(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            await asyncio.sleep(LOOK)
            for subscriber in list(self._subscribers.values()):
                subscriber.look()
                if subscriber in self._replacing:
                    continue
                if self._is_long_gone(subscriber):
                    replacing = tasks.create_task(self._replace(subscriber))
                    self._replacing[subscriber] = replacing
                elif self._is_long_deaf(subscriber):
                    self._lost(subscriber, "nothing is received any more, and it begins anew")

    def _is_long_gone(self, subscriber: Subscriber) -> bool:
        now = asyncio.get_running_loop().time()
        if not subscriber.has_consumer or subscriber.is_connected:
            self._gone_since.pop(subscriber, None)
            return False
        if subscriber not in self._gone_since:
            subscriber.losses += 1
            self._gone_since[subscriber] = now
        return now - self._gone_since[subscriber] > PATIENCE and subscriber.assignment is not None

    def _is_long_deaf(self, subscriber: Subscriber) -> bool:
        since, now = subscriber.deaf_since, asyncio.get_running_loop().time()
        return since is not None and now - since > PATIENCE and subscriber.assignment is not None

    async def _replace(self, subscriber: Subscriber) -> None:
        """Tries another native consumer: a frozen process that was displaced would wait for its own for ever."""
        try:
            await self._until_over(subscriber)
        except BusyError:
            await self._tell_busy(subscriber)
        except (TransientAdapterError, TimeoutError):
            pass  # the broker is away
        except ConsumerSdkError as error:  # such as of a topic that is gone
            log.warning("%s: %s", subscriber.partition, error, extra=REPEATS)
        finally:
            del self._replacing[subscriber]
            self._gone_since.pop(subscriber, None)

    async def _until_over(self, subscriber: Subscriber) -> None:
        """Makes one attempt, for as long as the client tries, or until the assignment is over.

        There is one attempt at a time:
        1. an attempt is given up, and goes on in the client;
        2. the broker comes back, and that attempt gets the subscription;
        3. the next attempt finds the subscription taken.
        """
        patience = self._options.connection.operation_timeout + PATIENCE
        attempt = asyncio.create_task(subscriber.subscribe())
        over = asyncio.create_task(subscriber.over.wait())
        try:
            async with asyncio.timeout(patience):
                await asyncio.wait({attempt, over}, return_when=asyncio.FIRST_COMPLETED)
            if attempt.done():
                attempt.result()
        finally:
            attempt.cancel()
            over.cancel()

    async def _tell_busy(self, subscriber: Subscriber) -> None:
        """Gives the assignment up, since another process has the subscription, unless our own consumer has it.

        1. The broker comes back; 2. the client connects the first consumer again; 3. the second one is told
        that the subscription is taken. So the first one is given `BACK` seconds to be connected.
        """
        assignment, loop = subscriber.assignment, asyncio.get_running_loop()
        until = loop.time() + BACK
        while not subscriber.is_connected and loop.time() < until:  # noqa: ASYNC110 - the client tells nobody
            await asyncio.sleep(LOOK)
        is_held = subscriber.assignment is assignment and not subscriber.is_connected
        if self._options.type == "exclusive" and is_held:
            self._lost(subscriber, TAKEN)

    async def _watch_active(self, tasks: asyncio.TaskGroup, admin: Admin) -> None:
        """Asks who is active. A consumer that was deposed still has records; one that became active may have none."""
        while True:
            await asyncio.sleep(ACTIVE)
            for subscriber in list(self._subscribers.values()):
                is_of_interest = subscriber.is_open or subscriber.is_standby
                if is_of_interest and subscriber not in self._asking:
                    self._asking[subscriber] = tasks.create_task(self._ask(subscriber, admin))

    async def _ask(self, subscriber: Subscriber, admin: Admin) -> None:
        """Asks for one subscriber. An answer to what was asked before an assignment says nothing of it."""
        assignment, native = subscriber.assignment, subscriber.native
        try:
            active = await admin.active_consumer(subscriber.topic, self._options.subscription)
        except ConsumerSdkError as error:
            log.warning("%s: %s", subscriber.partition, error, extra=REPEATS)
            return
        finally:
            self._asking.pop(subscriber, None)
        if subscriber.assignment is assignment and subscriber.native is native:
            self._tell(subscriber, active)

    def _tell(self, subscriber: Subscriber, active: str | None) -> None:
        if active is None:
            return
        if subscriber.is_standby and active == subscriber.name:
            subscriber.activate()
        elif subscriber.is_open and active != subscriber.name:
            self._lost(subscriber, TAKEN)
