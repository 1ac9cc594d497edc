"""An open adapter: a subscriber for each topic partition, and the tasks that watch and serve them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from consumer_sdk.abc import AssignmentOwner
from consumer_sdk.adapters.assignment_book import AssignmentBook
from consumer_sdk.adapters.grant_rounds import TRANSIENT, GrantRounds
from consumer_sdk.adapters.opening import keep_trying, unless_refused
from consumer_sdk.adapters.pulsar.client.access import find_refusal
from consumer_sdk.adapters.pulsar.client.admin import Admin
from consumer_sdk.adapters.pulsar.client.beginning import Beginning
from consumer_sdk.adapters.pulsar.client.calls import close
from consumer_sdk.adapters.pulsar.client.faults import BusyError
from consumer_sdk.adapters.pulsar.client.topics import topic_of
from consumer_sdk.adapters.pulsar.consumer.grants import Grant
from consumer_sdk.adapters.pulsar.consumer.subscriber import Subscriber
from consumer_sdk.adapters.pulsar.consumer.watching import Watch
from consumer_sdk.adapters.pulsar.discovery import Discovery
from consumer_sdk.adapters.pulsar.options import PulsarOptions
from consumer_sdk.adapters.session import ReadAheadSession
from consumer_sdk.errors import (
    AdapterError,
    ConfigurationError,
    ConsumerSdkError,
    TransientAdapterError,
)
from consumer_sdk.log_limits import REPEATS
from consumer_sdk.records import Assignment, Partition

__all__ = ["Session"]

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_BACKOFF = 0.1
LONGEST_BACKOFF = 5.0

# A broker that does not trust a token or a certificate hangs up, and the client tries again.
SILENCE = "the broker does not answer, or hangs up: check the address, TLS and credentials"

CLOSE_SHARE = 0.8
"""How much of the operation timeout a drain may take when the adapter is closed by itself."""


class Session(ReadAheadSession):
    """An adapter from open to close.

    Attributes:
        subscribers: by partition.
        grants: what they hold.
        opened_at: the broker's clock when it was opened; None without its admin API.
    """

    def __init__(self, options: PulsarOptions, owner: AssignmentOwner) -> None:
        super().__init__(f"pulsar {options.subscription}", lambda: self.subscribers.values())
        self._options = options
        self._client = options.connection.make_client()
        self.admin = (
            None if options.admin_url is None else Admin(options.admin_url, **options.admin_options)
        )
        self.discovery = Discovery(self._client, self.admin, options)
        self._budget = options.make_room()
        self.subscribers: dict[Partition, Subscriber] = {}
        self.grants = AssignmentBook[Grant]()
        self._rounds = GrantRounds(
            owner,
            self.grants,
            self._grant_all,
            failed=self._failed,
            budget=CLOSE_SHARE * options.connection.operation_timeout,
        )
        self._last_trouble: Exception | None = None
        self.opened_at: float | None = None

    # -- opening ------------------------------------------------------------------------

    async def open(self) -> None:
        """Subscribes to all partitions.

        Raises:
            ConfigurationError: a topic does not exist, or an option cannot work.
            AdapterError: the broker refuses; or another process has the subscription, still.
        """
        connection = self._options.connection
        await unless_refused(self._open(), partial(find_refusal, connection))
        self._begin()

    async def _open(self) -> None:
        try:
            async with asyncio.timeout(self._options.busy_timeout):
                if self.admin is not None:
                    self.opened_at = await self._reach(self.admin.time)
                found = await self._reach(self.discovery.look)
                self._share(len(found))
                for partition in found:
                    await self._reach(partial(self._add, partition, is_discovered=False))
                await self._subscribe_all()
        except TimeoutError as error:
            raise AdapterError(
                f"{self._options.connection.service_url}: no subscription "
                f"{self._options.subscription!r} after {self._options.busy_timeout:g} s: "
                f"{self._last_trouble or SILENCE}"
            ) from error

    async def _reach(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Asks a broker that may be restarting, again and again; `open` names the last refusal in its error."""

        async def attempt(_left: float) -> T:
            try:
                return await ask()
            except TransientAdapterError as error:
                self._last_trouble = error
                raise

        return await keep_trying(attempt, self._options.connection.connect_timeout)

    async def _add(self, partition: Partition, *, is_discovered: bool) -> Subscriber:
        beginning = Beginning(
            self.admin, topic_of(partition), self._options, is_discovered=is_discovered
        )
        await beginning.prepare()
        subscriber = Subscriber(
            self._client,
            partition,
            self._options,
            is_discovered=is_discovered,
            beginning=beginning,
            grants=self.grants,
            on_news=self.news.set,
            on_reset=self._reset,
            budget=self._budget,
        )
        self.subscribers[partition] = subscriber
        return subscriber

    def _share(self, partitions: int) -> None:
        """Shares the memory among so many partitions.

        Raises:
            ConfigurationError: there is not enough for all of them.
        """
        if self._budget is not None:
            self._budget.partitions = partitions
            self._budget.check()

    async def _subscribe_all(self) -> None:
        """Subscribes to all at once. A refusal ends the other attempts: nobody would close what they got."""
        tasks = [
            asyncio.create_task(self._subscribe(subscriber, is_opening=True))
            for subscriber in self.subscribers.values()
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _subscribe(self, subscriber: Subscriber, *, is_opening: bool = False) -> None:
        """Subscribes, again and again: who waits for another process to go is a standby.

        After the opening, a refusal that would have ended it (a topic that is gone, a token that has expired)
        is tried again for ever too, for the sake of the other partitions.
        """
        backoff = FIRST_BACKOFF
        while True:
            try:
                await subscriber.subscribe()
            except ConsumerSdkError as error:
                if not isinstance(error, TransientAdapterError):
                    if is_opening:
                        raise
                    backoff = LONGEST_BACKOFF
                self._last_trouble = error
                if isinstance(error, BusyError):  # an attempt that came late may be in the way
                    await subscriber.unsubscribe_natively()
                log.log(
                    logging.INFO if isinstance(error, BusyError) else logging.WARNING,
                    "%s, trying again in %.1f s",
                    *(error, backoff),
                    extra=REPEATS,
                )
                await asyncio.sleep(backoff)
                backoff = min(backoff * 2, LONGEST_BACKOFF)
            else:
                return

    # -- living -------------------------------------------------------------------------

    def _duties(self) -> Collection[Coroutine[Any, Any, None]]:
        watch = Watch(self.subscribers, self.admin, self._options, lost=self._lost)
        serving = map(self._serve, self.subscribers.values())
        return (self._rounds.run(), watch.run(), self._discover(), *serving)

    async def _discover(self) -> None:
        while True:
            await asyncio.sleep(self._options.discovery_interval)
            try:
                found = await self.discovery.look()
                await self._add_all([p for p in found if p not in self.subscribers])
            except ConsumerSdkError as error:
                log.warning("topics could not be looked up: %s", error, extra=REPEATS)

    async def _add_all(self, partitions: Sequence[Partition]) -> None:
        if partitions:
            self._share_more(len(partitions))
        for partition in partitions:
            added = await self._add(partition, is_discovered=True)
            _ = self._spawn(self._subscribe_and_serve(added))

    def _share_more(self, partitions: int) -> None:
        """Shares the memory among so many partitions more. They are read also where it is not enough."""
        try:
            self._share(len(self.subscribers) + partitions)
        except ConfigurationError as error:
            log.warning("%s", error, extra=REPEATS)

    async def _subscribe_and_serve(self, subscriber: Subscriber) -> None:
        await self._subscribe(subscriber)
        await self._serve(subscriber)

    async def _serve(self, subscriber: Subscriber) -> None:
        """One epoch after another."""
        while True:
            if self._options.type == "failover":
                await subscriber.active()
            is_granted = subscriber.deaf_since is None and await self._grant(subscriber)
            if is_granted:
                await subscriber.over.wait()
            if self.grants.is_closing:
                return  # `_leave` closes the native consumer
            if is_granted and subscriber.reset_to is not None:
                continue  # what comes from there on is on its way to this consumer, or here
            await subscriber.unsubscribe_natively()
            await asyncio.sleep(FIRST_BACKOFF)
            await self._subscribe(subscriber)

    async def _grant(self, subscriber: Subscriber) -> bool:
        """Offers the partition until the owner has said where to start. False: it does not take the partition."""
        backoff = FIRST_BACKOFF
        while True:
            try:
                await subscriber.beginning.look()
                if self.grants.is_closing:
                    return False
                grant = subscriber.offer()
                self._rounds.wake()
                await grant.decided.wait()
                await subscriber.begin()
            except TRANSIENT as error:
                log.warning("%s cannot start yet: %s", subscriber.partition, error, extra=REPEATS)
            except Exception as error:  # noqa: BLE001 - whatever it is, it comes out of fetch
                self._failed(error)
            else:
                break
            if subscriber.grant is not None:
                self._rounds.lose([subscriber.grant])
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, LONGEST_BACKOFF)
        if grant.is_declined:
            await asyncio.sleep(LONGEST_BACKOFF)
        return not grant.is_declined

    async def _grant_all(self) -> None:
        """Each is opened by the task that serves it: one whose seek takes long holds up no other."""
        answer = await self._rounds.ask(self.grants)
        for grant in answer.declined:
            grant.is_declined = True
        for grant in answer.started:
            grant.decided.set()

    def _lost(self, subscriber: Subscriber, why: str) -> None:
        """Ends an assignment that cannot go on."""
        self._end(subscriber, f"was lost: {why}")

    def _reset(self, subscriber: Subscriber) -> None:
        """Ends an assignment whose cursor was set back: what was settled from there on is not any more."""
        self._end(
            subscriber,
            f"the cursor of {self._options.subscription!r} was set back to "
            f"{subscriber.reset_to} by another program: records are delivered again from there on",
        )

    def _end(self, subscriber: Subscriber, why: str) -> None:
        """Ends an assignment: what is settled of it from now on is ignored."""
        if subscriber.grant is not None:
            log.warning("%s: %s", subscriber.partition, why)
            self._rounds.lose([subscriber.grant])

    def subscriber_of(self, assignment: Assignment) -> Subscriber | None:
        """The subscriber that holds exactly this assignment; None if nobody does."""
        is_held = self.grants.of(assignment) is not None
        return self.subscribers.get(assignment.partition) if is_held else None

    # -- the end ------------------------------------------------------------------------

    async def _close(self) -> None:
        self.grants.end_offers()
        try:
            if self.grants:
                await self._rounds.revoke(list(self.grants))
        finally:
            await self._end_tasks()
            await self._leave()

    async def _leave(self) -> None:
        self.grants.close(self.grants)
        await asyncio.gather(*(s.leave() for s in self.subscribers.values()))
        await close(self._client, "the client")
        if self.admin is not None:
            self.admin.close()
