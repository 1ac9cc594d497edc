"""Consumes one topic partition, through one native consumer after another.

The broker does not fence consumers: it accepts acks of a consumer that was displaced, or that is
not the active one of a failover subscription. So this module notices:

- **A lost connection** is restored by the client, and the broker sends all unacked records again,
  under the same assignment. If that takes long, the subscriber opens a second native consumer. Either
  it replaces the first one, or the broker says that another process has the subscription, and the
  assignment is lost.
- **A failover subscription's consumer** is granted the partition when its first record comes, or when the admin
  API calls it the active one.
- **A cursor that an operator has set back** ends the assignment, but not the native consumer. As
  after any reconnect, all unacked records follow in order after the record that has shown the reset.
  If the native consumer were closed, another consumer of a failover subscription could become active
  in between, and begin at an older checkpoint.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import _pulsar

from consumer_sdk.adapters.assignment_book import AssignmentBook, GrantState, next_epoch
from consumer_sdk.adapters.pulsar.client.beginning import Beginning
from consumer_sdk.adapters.pulsar.client.calls import CLOSE, call, close
from consumer_sdk.adapters.pulsar.client.ids import Place, id_at
from consumer_sdk.adapters.pulsar.client.interpreter_exit import close_late, close_soon, inside
from consumer_sdk.adapters.pulsar.client.topics import topic_of
from consumer_sdk.adapters.pulsar.consumer.acks import acks_of
from consumer_sdk.adapters.pulsar.consumer.buffer import Buffer
from consumer_sdk.adapters.pulsar.consumer.grants import Grant
from consumer_sdk.adapters.pulsar.consumer.messages import Delivery
from consumer_sdk.adapters.pulsar.consumer.pump import Pump
from consumer_sdk.adapters.pulsar.consumer.read_ahead_budget import ReadAheadBudget
from consumer_sdk.adapters.pulsar.consumer.resets import FIRST, CursorResets
from consumer_sdk.adapters.pulsar.options import AHEAD, PulsarOptions
from consumer_sdk.errors import TransientAdapterError
from consumer_sdk.records import (
    Assignment,
    AtPosition,
    AtTime,
    Checkpoint,
    Committed,
    Partition,
    Run,
    SettledRecords,
    Start,
    StartPoint,
)

__all__ = ["Subscriber"]

log = logging.getLogger(__name__)

GROUP_TIME = 0.1
"""Seconds for which the client groups acks; it cannot be told otherwise."""

BEHIND = (
    "%s: what is settled comes again, from %s on, and is acked again: acks were lost; if somebody has "
    "set the cursor back, see how to have that followed in docs/pulsar.md, 'An operator's reset'"
)

LOOK = 0.02
"""Seconds between two looks whether something has come since a reconnect."""

CONFIRM = 3.0
"""Seconds for the broker's answer after acks: one topic that is stuck holds up the others' flush."""


class Subscriber:
    """The consumer of one partition.

    Attributes:
        grant: the one that is granted or offered; None while there is none.
        is_standby: it waits to become the active consumer of a failover subscription.
        deaf_since: the loop's time at which receiving failed; nothing comes before the next `subscribe`.
        losses: how often the connection was seen to be lost.
        acks_each: acks were not confirmed, so no cumulative ack may be sent. The client counts a
            cumulative ack as done: it would ignore a second one, and hide the records that the
            broker sends again.
        resets: of this assignment; None of a queue, and before it has begun.
        reset_to: the position that the cursor was set back to, until another assignment has begun.
        over: set when the assignment is over.

    Args:
        is_discovered: the topic is newer than the adapter.
        beginning: of the subscription.
        grants: of all partitions.
        budget: of memory, which all partitions share; None: there is no limit.
        on_news: called when there may be something to fetch.
        on_reset: called when the cursor was set back; ends the assignment.
    """

    def __init__(
        self,
        client: Any,
        partition: Partition,
        options: PulsarOptions,
        *,
        is_discovered: bool,
        beginning: Beginning,
        grants: AssignmentBook[Grant],
        on_news: Callable[[], None],
        on_reset: Callable[[Subscriber], None],
        budget: ReadAheadBudget | None = None,
    ) -> None:
        self._client = client
        self._options = options
        self._budget = budget
        self._grants = grants
        self._on_news = on_news
        self._on_reset = on_reset
        self._consumer: Any = None
        self._sends_indexes: Any = None
        self._pump: Pump | None = None
        self._buffer = Buffer()
        self._arrived = asyncio.Event()
        self.partition = partition
        self.topic = topic_of(partition)
        self.is_discovered = is_discovered
        self.beginning = beginning
        self.grant: Grant | None = None
        self.is_standby = False
        self.fault: Exception | None = None
        self.deaf_since: float | None = None
        self.losses = 0
        self.acks_each = False
        self.resets: CursorResets | None = None
        self.reset_to: Place | None = None
        self.over = asyncio.Event()

    # -- the native consumer ------------------------------------------------------------

    async def subscribe(self) -> None:
        """Makes a native consumer, in place of another if there is one.

        Raises:
            BusyError: another process has the subscription.
            AdapterError: the broker refuses, or does not answer.
        """
        configuration = self._configuration()
        consumer = await call(
            lambda done: self._client.subscribe_async(
                self.topic, self._options.subscription, configuration, done
            ),
            f"subscribing to {self.topic} as {self._options.subscription!r}",
            late=close_late,
        )
        old, self._consumer = self._consumer, consumer
        self._sends_indexes = configuration.batch_index_ack_enabled
        old_pump, self._pump = self._pump, None
        self._clear()  # none of it is acked, so all of it comes again
        if old_pump is not None:
            old_pump.stop()
        if old is not None:
            close_soon(old)
        self._pump = self._new_pump(consumer)
        self.fault = self.deaf_since = None
        self.flow()

    def _configuration(self) -> Any:
        queue = None if self._budget is None else self._budget.queue_of(self)
        return self._options.for_consumer(is_discovered=self.is_discovered, queue=queue)

    def _new_pump(self, consumer: Any) -> Pump:
        # 1. A thread receives a batch, and posts it. 2. The loop replaces the native consumer, and drops what
        # is buffered. 3. The batch arrives. Nothing of it is acked, so the new consumer gets it again: here it
        # would come twice, and before what is older. Only the budget hears that it is not in hand any more.
        def deliver(deliveries: list[Delivery]) -> None:
            if consumer is self._consumer:
                self._deliver(deliveries)
            else:
                self._count(deliveries)

        def failed(error: Exception) -> None:
            if consumer is self._consumer:
                self._fail(error)

        return Pump(consumer, self.topic, deliver, failed, self._budget)

    @property
    def native(self) -> object:
        """The native consumer, to tell whether it is another one by now."""
        return self._consumer

    @property
    def has_consumer(self) -> bool:
        """There is a native consumer, connected or not."""
        return self._consumer is not None

    @property
    def is_connected(self) -> bool:
        """The native consumer has a connection now."""
        return self._consumer is not None and self._consumer.is_connected()

    @property
    def name(self) -> str | None:
        """What the broker calls the native consumer."""
        return None if self._consumer is None else self._consumer.consumer_name()

    async def unsubscribe_natively(self) -> None:
        """Closes the native consumer. Others get at once what it had received and not acked."""
        consumer, self._consumer = self._consumer, None
        pump, self._pump = self._pump, None
        self.reset_to = None
        self._clear()
        if pump is not None:
            pump.stop()
        if consumer is not None:
            patience = min(CLOSE, self._options.connection.operation_timeout)
            await close(consumer, f"the consumer of {self.topic}", patience=patience)

    async def leave(self) -> None:
        """Closes it for good; until then its share of the budget is kept for the next native consumer."""
        await self.unsubscribe_natively()
        if self._budget is not None:
            self._budget.no_queue(self)

    # -- records ------------------------------------------------------------------------

    def _deliver(self, deliveries: list[Delivery]) -> None:
        try:
            for part in deliveries:
                self._notice_reset(part)
                self._buffer.add(part)
        finally:
            self._count(deliveries)
        self._arrived.set()
        self.flow()
        if self.is_open:
            self._on_news()

    def _clear(self) -> None:
        self._buffer.clear()
        self._count()

    def _count(self, arrived: Sequence[Delivery] = ()) -> None:
        if self._budget is not None:
            size, came = self._buffer.size, sum(part.size for part in arrived)
            self._budget.buffered(self, size, arrived=came, is_idle=not self._is_fetched)

    def _notice_reset(self, part: Delivery) -> None:
        """Looks whether a delivery shows that the cursor was set back; that ends the assignment."""
        if self.resets is None:
            return
        first, last = part.positions[0], part.positions[-1]
        if self.resets.is_late(first):
            known = [place for place in part.positions if not self.resets.is_late(place)]
            if not known:
                return
            first = known[0]
        was_behind = self.resets.is_behind
        if self.resets.arrived(first, last):
            self._buffer.clear()
            self.reset_to = first
            self._on_reset(self)
        elif self.resets.is_behind and not was_behind:
            log.warning(BEHIND, self.partition, first)

    def look(self) -> None:
        """Tells `CursorResets` that time has passed."""
        if self.resets is not None:
            now = asyncio.get_running_loop().time()
            is_hungry = self._pump is not None and self._pump.is_going and not self._buffer.count
            self.resets.look(now, is_connected=self.is_connected, is_hungry=is_hungry)

    def _fail(self, error: Exception) -> None:
        self.fault = error
        self.deaf_since = asyncio.get_running_loop().time()
        self._arrived.set()
        self._on_news()

    def flow(self) -> None:
        """Has the pump receive while there is room for more, and somebody wants it."""
        if self._pump is None:
            return
        most = self._options.buffer_bytes
        if self._budget is not None:
            most = min(most, self._budget.share)
        has_room = self._buffer.count < AHEAD and self._buffer.size < most
        if has_room and (self.is_standby or self._is_fetched):
            self._pump.go()
        else:
            self._pump.rest()

    def pause(self, *, is_paused: bool) -> None:
        """The owner wants no records for now, or wants them again."""
        if self.grant is not None:
            self.grant.is_paused = is_paused
        self._count()
        self.flow()
        self._on_news()

    @property
    def has_run(self) -> bool:
        """`take` has something."""
        return (self._buffer.count > 0 or self.fault is not None) and self._is_fetched

    def take(self, max_records: int, max_bytes: int) -> Run:
        """The next run; a fault comes after the records that were received before it."""
        assert self.grant is not None  # noqa: S101 - it is open
        assignment = self.grant.assignment
        if not self._buffer.count:
            fault, self.fault = self.fault, None
            return Run(assignment, fault=fault)
        run = self._buffer.take(assignment, max_records, max_bytes)
        if self.resets is not None and run.messages:
            self.resets.taken(run.messages[-1].position)
        self._count()
        self.flow()
        return run

    # -- grants -------------------------------------------------------------------------

    async def active(self) -> None:
        """Waits until this is the active consumer: a record has come, or the broker says so (`activate`)."""
        self.is_standby = True
        self.flow()
        while self.is_standby and not self._buffer.count and self.deaf_since is None:
            self._arrived.clear()
            await self._arrived.wait()
        self.is_standby = False

    def activate(self) -> None:
        """The broker has said that this consumer is the active one."""
        self.is_standby = False
        self._arrived.set()

    def offer(self) -> Grant:
        """A new epoch, for the owner to decide where it starts."""
        assignment = Assignment(self.partition, next_epoch(), discovered=self.is_discovered)
        grant = Grant(assignment, self._ended)
        self._grants.offer(grant)
        self.grant = grant
        self.over.clear()
        return grant

    @property
    def assignment(self) -> Assignment | None:
        """What is granted, or offered."""
        return None if self.grant is None else self.grant.assignment

    @property
    def is_open(self) -> bool:
        """It has begun and is not over: while it drains too, so that `Watch` looks who is active."""
        states = (GrantState.OPEN, GrantState.DRAINING)
        return self.grant is not None and self.grant.state in states

    @property
    def _is_fetched(self) -> bool:
        return self.grant is not None and self.grant.is_fetched

    @property
    def committed(self) -> Committed | None:
        """None: the subscription is new. Of a cursor the client does not tell where it is."""
        if self.beginning.is_new is True:
            return None
        is_reset = self.reset_to is not None
        return Committed(Checkpoint(resume=self.reset_to), is_foreign=is_reset)

    async def begin(self) -> None:
        """Opens the grant where the owner has said. Does nothing if it is over by then.

        Raises:
            AdapterError: the broker does not move its cursor, or does not write that down.
        """
        grant = self.grant
        if grant is None or grant.start is None:
            return
        target = self._target(grant.start)
        if target is not None:
            await self._seek(target)
        if not grant.is_closed:
            await self.beginning.begun()
        if self._grants.open(grant):
            self.resets, self.reset_to = self._new_resets(grant.start), None
            self._count()
            self.flow()
            self._on_news()

    def _new_resets(self, start: Start) -> CursorResets | None:
        """The broker itself writes down where a cursor was set back to, before it goes on there."""
        if self._options.is_queue:
            return None
        settled = start.position if isinstance(start, AtPosition) else None
        return CursorResets(self._options.persist_time, settled=settled, written=self.reset_to)

    def _target(self, start: Start) -> Any:
        """What to seek to; None: the broker's cursor is where it should be.

        That is so for a checkpoint's position, unless the subscription was made anew: the store
        hears of a record before the broker does, so that the cursor is never ahead, and the
        tracker suppresses what is settled. A seek would lose what lies below its position, such
        as the first chunks of a message whose last one that is, and the broker's holes.
        """
        if isinstance(start, AtTime):
            return round(start.time * 1000)
        if isinstance(start, AtPosition):
            return id_at(start.position) if self.beginning.is_new else None
        if start is StartPoint.LATEST:
            end = self.beginning.end
            return _pulsar.MessageId.latest if end is None else id_at(end)
        if start is StartPoint.EARLIEST and not (self.beginning.is_new or self.is_discovered):
            return _pulsar.MessageId.earliest
        return None

    async def _seek(self, target: Any) -> None:
        if self._pump is not None:
            await self._pump.hold()  # what was received before is not to come out after it
        doing = f"seeking in {self.topic}"
        try:
            async with asyncio.timeout(self._options.connection.operation_timeout):
                await call(lambda done: self._consumer.seek_async(target, done), doing)
        except TimeoutError as error:
            raise TransientAdapterError(f"{doing}: no answer") from error
        self._clear()

    def end(self) -> None:
        """Ends the assignment: nothing of it is fetched any more."""
        if self.grant is not None:
            self._grants.close([self.grant])

    def _ended(self) -> None:
        self.is_standby = False
        self.grant = self.fault = self.resets = None
        self._count()
        self.over.set()

    # -- acks ---------------------------------------------------------------------------

    def ack(self, settled: SettledRecords) -> None:
        """Acks each record. The client sends the acks together."""
        acks = acks_of(settled)
        acknowledge = self._consumer.acknowledge_async
        with inside:
            for native in acks.alone:
                acknowledge(native, _buffered)
            for *marked, sent in acks.parts:
                self._mark(marked)
                acknowledge(sent, _buffered)

    def _mark(self, natives: list[Any]) -> None:
        """Marks messages as acked in the bit set of their batch, which the next ack of that batch sends.

        A consumer that does not ack indexes only marks, and sends nothing. The client looks at that option
        at each ack, and nowhere else, in a configuration that it shares with us.
        """
        self._sends_indexes(False)
        try:
            for native in natives:
                self._consumer.acknowledge_async(native, _buffered)
        finally:
            self._sends_indexes(True)

    def ack_cumulative(self, native: Any) -> None:
        """Acks it and all before it."""
        with inside:
            self._consumer.acknowledge_cumulative_async(native, None)

    async def wait_for_first_redelivery(self) -> None:
        """Waits, after a reconnect, for the first record that comes; it may show that the cursor was set back.

        For `FIRST` seconds at most: if nothing is to come again, nothing tells so.
        """
        # 1. An operator sets the cursor back, and the broker disconnects the consumer.
        # 2. The client connects again, and the broker reads the first records that it sends again.
        # 3. A flush acks records of before. The broker takes that for acks of after the reset, and does not
        #    send those records: the operator's reset is lost for them.
        clock = asyncio.get_running_loop().time
        until = clock() + FIRST
        while self.is_connected and self._is_awaited and clock() < until:  # noqa: ASYNC110 - the client tells nobody
            await asyncio.sleep(LOOK)

    @property
    def _is_awaited(self) -> bool:
        return self.resets is not None and self.resets.is_awaited

    async def confirm(self) -> None:
        """Returns when the broker has been sent the acks that were made before.

        Raises:
            TransientAdapterError: nobody knows, since the connection was lost.
        """
        # The client answers no ack. It sends them within `GROUP_TIME`, and drops them with a connection:
        # 1. acks are made, and wait in the client; 2. the connection is lost, and they with it; 3. the client
        # connects again, and a question that it asks is answered. So an answer confirms the acks only if
        # it came on the connection of before: neither the consumer nor the count of losses has changed.
        consumer, losses = self._consumer, self.losses
        await asyncio.sleep(GROUP_TIME)
        try:
            async with asyncio.timeout(min(CONFIRM, self._options.connection.operation_timeout)):
                # A connection keeps the order: the broker has read the acks before it answers.
                await call(consumer.get_last_message_id_async, f"asking {self.topic}")
        except TimeoutError as error:
            raise TransientAdapterError(f"{self.topic}: no answer after acks") from error
        if losses != self.losses or consumer is not self._consumer or not self.is_connected:
            raise TransientAdapterError(f"{self.topic}: the connection was lost after acks")


def _buffered(result: Any) -> None:
    """The client calls back at once. It takes None, but only after a try of each overload."""
