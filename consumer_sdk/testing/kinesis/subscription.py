"""One subscription to a shard: what it sends, and when. Pure but for the waiting, `follow`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace

from consumer_sdk.abc import Clock
from consumer_sdk.testing.kinesis.errors import RefusedError
from consumer_sdk.testing.kinesis.options import MEBIBYTE, Quirks
from consumer_sdk.testing.kinesis.reading import SLACK, behind, ends_in, fitting, pretends_end
from consumer_sdk.testing.kinesis.record import FakeRecord
from consumer_sdk.testing.kinesis.shard import FakeShard

__all__ = ["Event", "Subscription", "follow"]

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
