"""Enhanced fan-out: consumers of a stream, who is subscribed to which shard, and what one sends when.

Pure but for the waiting, `follow`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace

from consumer_sdk.abc import Clock
from consumer_sdk.adapters.kinesis.service.service import IteratorStart
from consumer_sdk.testing.kinesis.errors import RefusedError, limited, missing, used
from consumer_sdk.testing.kinesis.options import MEBIBYTE, Quirks
from consumer_sdk.testing.kinesis.reading import SLACK, behind, ends_in, fitting, pretends_end
from consumer_sdk.testing.kinesis.shard import FakeRecord, FakeShard
from consumer_sdk.testing.kinesis.stream import FakeStream

__all__ = ["Event", "FakeConsumer", "FanOut", "Subscription", "follow"]

LIFETIME = 300.0
"""Seconds after which a subscription ends by itself."""

HEARTBEAT = 5.0
"""Seconds between two events when there is nothing to send."""

MOST_RECORDS = 2_000
MOST_BYTES = MEBIBYTE
RATE = 2 * MEBIBYTE
"""Bytes per second, for each consumer of a shard."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Attributes:
        continuation: sequence number to subscribe after, kept while the shard is idle; None: this
            is the end of the shard.
        behind: milliseconds behind the tip.
        children: the shards that come after this one, if it has ended.
    """

    records: Sequence[FakeRecord]
    continuation: int | None
    behind: int
    children: Sequence[FakeShard] = ()


class Subscription:
    """A reader to whom a shard sends its records.

    Attributes:
        began: the clock's monotonic seconds.
        is_over: nothing comes any more.
        failure: what it ended with; None if it ended well.
    """

    def __init__(self, shard: FakeShard, position: int, *, clock: Clock, quirks: Quirks) -> None:
        self.shard = shard
        self.began = clock.monotonic()
        self.is_over = False
        self.failure: RefusedError | None = None
        self._position = position
        self._clock = clock
        self._quirks = quirks
        self._heartbeat = self.began + HEARTBEAT
        self._ready = self.began

    def poll(self) -> Event | None:
        """What is to be sent now, if anything."""
        now = self._clock.monotonic()
        late = now + SLACK
        if late >= self.began + LIFETIME:
            self.is_over = True
        if self.is_over or late < self._ready:
            return None
        event = self._read()
        if event.records or event.continuation is None or late >= self._heartbeat:
            if event.continuation is not None and pretends_end(self.shard, self._quirks):
                event = replace(event, continuation=None)
            self._sent(event, now)
            return event
        return None

    def wait(self) -> float:
        """Seconds until it is worth to `poll` again, if the shard does not change before."""
        now = self._clock.monotonic()
        has_more = bool(self.shard.read(self._position, 1))
        end = now + ends_in(self.shard, self._clock.wall(), self._quirks)
        next_event = self._ready if has_more else max(self._ready, min(self._heartbeat, end))
        return max(min(next_event, self.began + LIFETIME) - now, 0)

    def end(self) -> None:
        """The connection is closed."""
        self.is_over = True
        self.shard.wake()

    def fail(self, error: RefusedError) -> None:
        """It ends with an error."""
        self.failure = self.failure or error
        self.end()

    def _read(self) -> Event:
        self._position = max(self._position, self.shard.horizon)
        records = fitting(self.shard.read(self._position, MOST_RECORDS), MOST_BYTES)
        after = self._position + len(records)
        wall = self._clock.wall()
        late = behind(self.shard, after, wall)
        is_end = after == self.shard.tip and ends_in(self.shard, wall, self._quirks) <= SLACK
        if is_end and (self._quirks.null_with_last_records or not records):
            children = self.shard.children if self._quirks.names_children else ()
            return Event(records, None, late, children)
        return Event(records, self.shard.sequence_before(after), late)

    def _sent(self, event: Event, now: float) -> None:
        self._position += len(event.records)
        self._ready = now + sum(record.size for record in event.records) / RATE
        self._heartbeat = now + HEARTBEAT
        self.is_over = event.continuation is None


async def follow(subscription: Subscription) -> AsyncGenerator[Event, None]:
    """Waits for the events of a subscription, until it ends.

    Raises:
        RefusedError: what it failed with.
    """
    changed = asyncio.Event()
    watchers = subscription.shard.watchers
    watchers.append(changed.set)
    try:
        while not subscription.is_over:
            changed.clear()
            event = subscription.poll()
            if event is not None:
                yield event
            elif not subscription.is_over:
                await _wait(changed, subscription.wait())
        if subscription.failure is not None:
            raise subscription.failure
    finally:
        subscription.is_over = True
        watchers.remove(changed.set)


async def _wait(changed: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await changed.wait()
    except TimeoutError:
        pass


MOST_CONSUMERS = 20
"""Of one stream."""

TAKEOVER_AGE = 5.0
"""Seconds after a subscription was made in which it cannot be replaced."""


@dataclass(frozen=True, slots=True)
class FakeConsumer:
    """A registered consumer of a stream.

    Attributes:
        created: seconds since the epoch.
        active: when it can be used, in the clock's monotonic seconds.
    """

    name: str
    arn: str
    stream: str
    created: float
    active: float


class FanOut:
    """The consumers of all streams of a `FakeKinesis`, which makes it.

    Args:
        find: the stream of a name; raises `RefusedError`.
    """

    def __init__(self, clock: Clock, quirks: Quirks, find: Callable[[str], FakeStream]) -> None:
        self._clock = clock
        self._quirks = quirks
        self._find = find
        self._consumers: dict[str, FakeConsumer] = {}
        self._subscriptions: dict[tuple[str, str], Subscription] = {}

    def register(self, stream: str, name: str) -> FakeConsumer:
        """Registers a consumer; it is active a moment later.

        Raises:
            RefusedError: the name is taken, or the stream has twenty.
        """
        found = self.consumers(stream)
        if any(each.name == name for each in found):
            raise used(f"Consumer {name} of stream {stream} already exists")
        if len(found) == MOST_CONSUMERS:
            raise limited(f"Stream {stream} has {MOST_CONSUMERS} consumers")
        wall = self._clock.wall()
        arn = f"{self._find(stream).arn}/consumer/{name}:{int(wall)}"
        active = self._clock.monotonic() + self._quirks.creating
        self._consumers[arn] = FakeConsumer(name, arn, stream, wall, active)
        return self._consumers[arn]

    def consumers(self, stream: str) -> Sequence[FakeConsumer]:
        """Those of a stream, in the order in which they were registered."""
        name = self._find(stream).name
        return [each for each in self._consumers.values() if each.stream == name]

    def named(self, stream: str, name: str) -> FakeConsumer:
        """The consumer of that name.

        Raises:
            RefusedError: there is none.
        """
        for consumer in self.consumers(stream):
            if consumer.name == name:
                return consumer
        raise missing(f"Consumer {name} of stream {stream} not found")

    def consumer(self, arn: str) -> FakeConsumer:
        """The consumer of that ARN.

        Raises:
            RefusedError: there is none.
        """
        if arn not in self._consumers:
            raise missing(f"Consumer {arn} not found")
        return self._consumers[arn]

    def creating(self, consumer: FakeConsumer) -> float:
        """Seconds until the consumer is ACTIVE; 0: it is."""
        return max(consumer.active - self._clock.monotonic(), 0.0)

    def deregister(self, arn: str) -> None:
        """Forgets a consumer, at once; its subscriptions fail.

        Raises:
            RefusedError: there is none.
        """
        del self._consumers[self.consumer(arn).arn]
        for pair in [pair for pair in self._subscriptions if pair[0] == arn]:
            self._subscriptions.pop(pair).fail(missing(f"Consumer {arn} was deregistered"))

    def forget(self, stream: str) -> None:
        """Forgets the consumers of a stream that is being deleted."""
        for arn in [each.arn for each in self._consumers.values() if each.stream == stream]:
            self.deregister(arn)

    def subscribe(self, arn: str, shard: str, start: IteratorStart) -> Subscription:
        """Subscribes, and puts an end to an older subscription of the same pair.

        Raises:
            RefusedError: the pair has subscribed less than five seconds ago, even if that has
                ended; the consumer is CREATING; or the start is not one of the shard's.
        """
        consumer = self.consumer(arn)
        if self.creating(consumer) > SLACK:
            raise used(f"Consumer {arn} is not ACTIVE")
        place = self._find(consumer.stream).shard(shard)
        position = place.locate(start, self._clock.wall())
        self._take_over(arn, shard)
        subscription = Subscription(place, position, clock=self._clock, quirks=self._quirks)
        self._subscriptions[arn, shard] = subscription
        return subscription

    def _take_over(self, arn: str, shard: str) -> None:
        older = self._subscriptions.get((arn, shard))
        if older is None:
            return
        if self._clock.monotonic() - older.began < TAKEOVER_AGE:
            raise used(f"Another active subscription exists for {arn} on {shard}")
        if self._quirks.takeover_error:
            older.fail(used(f"Another subscription of {arn} on {shard} took over"))
        else:
            older.end()
