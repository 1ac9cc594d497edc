"""Makes the subscription that keeps unread messages, and moves its cursor.

A commit holds the subscription for a moment: it subscribes, acks and closes. A consumer that stayed
would keep others out, and show a backlog that it does not read. Its receiver queue is 0, so the
broker sends it no message.

The client silently drops an ack that is made without a connection. So a commit asks the consumer
whether it has a connection, and afterwards the REST API, if its address is known, where the cursor is.

An ack names an entry as a whole. So it needs no id that a broker made: an id of a single message does not survive
being stored, and would ack all of its batch (see ``ids``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import _pulsar

from consumer_sdk.adapters.pulsar.client.admin import Admin
from consumer_sdk.adapters.pulsar.client.calls import ask, close
from consumer_sdk.adapters.pulsar.client.faults import BusyError
from consumer_sdk.adapters.pulsar.client.ids import Place
from consumer_sdk.adapters.pulsar.client.interpreter_exit import close_late, inside
from consumer_sdk.adapters.pulsar.client.topics import topic_of
from consumer_sdk.adapters.pulsar.options import PulsarOptions
from consumer_sdk.adapters.pulsar.ranges.options import NOBODY
from consumer_sdk.errors import (
    ConfigurationError,
    ConsumerSdkError,
    PartitionLostError,
    TransientAdapterError,
)
from consumer_sdk.records import Outcome, OutcomeKind, Partition, Position

__all__ = ["Cursors"]

log = logging.getLogger(__name__)

CONCURRENT = 16
"""Partitions whose subscription is held at the same time."""

PAUSES = (0.05, 0.15, 0.3)
"""Seconds before each further attempt while somebody else holds the subscription."""

NOWHERE: Place = (-1, -1, -1)
"""Below every position."""


class Cursors:
    """The cursors of one subscription on all partitions.

    Args:
        admin: the REST API; None: nobody tells whether a commit has arrived.
    """

    def __init__(self, client: Any, admin: Admin | None, options: PulsarOptions) -> None:
        self._client = client
        self._admin = admin
        self._options = options
        self._name = options.subscription
        self._patience = options.connection.operation_timeout
        self._kept: set[Partition] = set()
        self._done: dict[Partition, Place] = {}
        self._turns = asyncio.Semaphore(CONCURRENT)
        self._locks: dict[Partition, asyncio.Lock] = {}

    # -- keeping ------------------------------------------------------------------------

    async def keep(self, partitions: Sequence[Partition], *, are_new: bool) -> None:
        """Sees to it that each partition has the subscription. Does nothing without a subscription's name.

        Args:
            are_new: partitions not seen before have appeared after the opening: all their records are kept.

        Raises:
            AdapterError: the broker does not answer, or refuses.
        """
        if self._name == NOBODY:
            return
        is_latest = self._options.initial_position == "latest" and not are_new
        missing = [each for each in partitions if each not in self._kept]
        await asyncio.gather(*(self._keep(each, is_latest=is_latest) for each in missing))

    async def _keep(self, partition: Partition, *, is_latest: bool) -> None:
        try:
            async with self._turns:
                if not await self._is_there(partition):
                    consumer = await self._subscribe(partition, is_latest=is_latest)
                    # The subscription is there, even if its consumer cannot be closed.
                    await close(consumer, f"the consumer of {topic_of(partition)}")
        except BusyError:
            log.info("%s: somebody uses %r: it is there", partition, self._name)
        self._kept.add(partition)

    async def _is_there(self, partition: Partition) -> bool:
        """Whether the subscription is known to be there: then it need not be held, even for a moment."""
        topic = topic_of(partition)
        return self._admin is not None and self._name in await self._admin.subscriptions(topic)

    async def _subscribe(self, partition: Partition, *, is_latest: bool = False) -> Any:
        topic = topic_of(partition)
        position = _pulsar.InitialPosition
        made = _pulsar.ConsumerConfiguration()
        made.consumer_type(_pulsar.ConsumerType.Exclusive)
        made.subscription_initial_position(position.Latest if is_latest else position.Earliest)
        made.receiver_queue_size(0)
        return await ask(
            lambda done: self._client.subscribe_async(topic, self._name, made, done),
            f"subscribing to {topic} as {self._name!r}",
            self._patience,
            late=close_late,
        )

    async def _close(self, partition: Partition, consumer: Any) -> None:
        """Closes the consumer, which sends its acks before; the broker answers after it has read them."""
        doing = f"closing the consumer of {topic_of(partition)}"
        await ask(consumer.close_async, doing, self._patience)

    # -- moving -------------------------------------------------------------------------

    async def commit(self, positions: Mapping[Partition, Position]) -> Mapping[Partition, Outcome]:
        """Acks all that lies below each position; never raises."""
        found = await asyncio.gather(*(self._commit(*each) for each in positions.items()))
        return dict(zip(positions, found, strict=True))

    async def _commit(self, partition: Partition, position: Place) -> Outcome:
        if self._name == NOBODY:
            missing = ConfigurationError("commit needs subscription=…: it has no position to move")
            return Outcome(OutcomeKind.FENCED, error=missing)
        try:
            return await self._try(partition, position)
        except BusyError as error:
            return Outcome(OutcomeKind.FENCED, error=error)
        except TransientAdapterError as error:
            return Outcome.retry(error)
        except ConsumerSdkError as error:
            return _refused(partition, error)

    async def _try(self, partition: Partition, position: Place) -> Outcome:
        """Commits; waits for others that hold the subscription for a moment, such as for a commit or an opening."""
        lock = self._locks.setdefault(partition, asyncio.Lock())
        for pause in PAUSES:
            with suppress(BusyError):
                async with (
                    lock,
                    self._turns,
                ):  # two commits of this process would be in each other's way
                    return await self._move(partition, position)
            await asyncio.sleep(pause)
        async with lock, self._turns:
            return await self._move(partition, position)

    async def _move(self, partition: Partition, position: Place) -> Outcome:
        target: Place = (position[0], position[1], 0)
        if target <= self._done.get(partition, NOWHERE):
            return Outcome(OutcomeKind.SENT)
        if await self._is_gone(partition):
            gone = PartitionLostError(
                f"{partition}: the topic was deleted: there is nothing to ack"
            )
            return Outcome(OutcomeKind.GONE, error=gone)
        await self._ack_below(partition, target)
        await self._check(partition, target)
        self._done[partition] = target
        return Outcome(OutcomeKind.SENT)

    async def _is_gone(self, partition: Partition) -> bool:
        """Whether the topic is known to be deleted: to subscribe to it might make it again."""
        if self._admin is None:
            return False
        return await self._admin.internals(topic_of(partition)) is None

    async def _ack_below(self, partition: Partition, target: Place) -> None:
        consumer = await self._subscribe(partition)
        try:
            # At the begin of a ledger this is its entry -1: the ack of all ledgers below it.
            last = _pulsar.MessageId(-1, target[0], target[1] - 1, -1)
            with inside:
                consumer.acknowledge_cumulative_async(last, None)
            is_connected = consumer.is_connected()
        finally:
            await self._close(partition, consumer)
        if not is_connected:
            raise TransientAdapterError(f"{partition}: the connection was lost during a commit")

    async def _check(self, partition: Partition, target: Place) -> None:
        """Sees that the cursor has moved. It may be farther: the broker skips a ledger that was deleted."""
        if self._admin is None:
            return
        stands = await self._admin.cursor(topic_of(partition), self._name)
        if stands is None or stands < target:
            raise TransientAdapterError(f"{partition}: {self._name!r} stands at {stands} after all")


def _refused(partition: Partition, error: ConsumerSdkError) -> Outcome:
    lost = PartitionLostError(f"{partition}: {error}")
    lost.__cause__ = error
    return Outcome(OutcomeKind.FENCED, error=lost)
