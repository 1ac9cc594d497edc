"""Enhanced fan-out: consumers of a stream, and who is subscribed to which shard. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from consumer_sdk.abc import Clock
from consumer_sdk.adapters.kinesis.service.service import IteratorStart
from consumer_sdk.testing.kinesis.errors import limited, missing, used
from consumer_sdk.testing.kinesis.options import Quirks
from consumer_sdk.testing.kinesis.reading import SLACK
from consumer_sdk.testing.kinesis.stream import FakeStream
from consumer_sdk.testing.kinesis.subscription import Subscription

__all__ = ["FakeConsumer", "FanOut"]

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
