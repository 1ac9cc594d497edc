"""The adapter's view of Kinesis on the model, in process: for simulation on virtual time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import TypeVar

from consumer_sdk.adapters.kinesis.service.service import (
    IteratorExpiredError,
    IteratorStart,
    Page,
    Service,
    Shard,
    ShardGoneError,
    StreamFacts,
    SubscriptionBusyError,
    ThrottledError,
)
from consumer_sdk.errors import (
    AdapterError,
    ConfigurationError,
    PositionOutOfRangeError,
    TransientAdapterError,
)
from consumer_sdk.testing.faults import Faults
from consumer_sdk.testing.kinesis.errors import RefusedError
from consumer_sdk.testing.kinesis.fanout import Event, FakeConsumer, Subscription, follow
from consumer_sdk.testing.kinesis.model import FakeKinesis
from consumer_sdk.testing.kinesis.shard import FakeRecord

__all__ = ["FakeService"]

T = TypeVar("T")

ERRORS: dict[str, type[AdapterError]] = {
    "ExpiredIteratorException": IteratorExpiredError,
    "InternalFailureException": TransientAdapterError,
    "LimitExceededException": ThrottledError,
    "ProvisionedThroughputExceededException": ThrottledError,
    "ResourceInUseException": SubscriptionBusyError,
    "ResourceNotFoundException": ShardGoneError,
}


class FakeService(Service):
    """One process's way to one stream of a `FakeKinesis`.

    Its seams are ``"describe"``, ``"shards"``, ``"iterator"``, ``"records"``, ``"consumer"``,
    ``"subscribe"`` (the call), ``"event"`` (each event of a subscription) and ``"time"``.

    Args:
        faults: what may go wrong on the way; after its `Faults.die` every call hangs.
    """

    __slots__ = ("_faults", "_kinesis", "_stream")

    def __init__(self, kinesis: FakeKinesis, stream: str, faults: Faults | None = None) -> None:
        self._kinesis = kinesis
        self._stream = stream
        self._faults = faults or Faults()

    async def open(self) -> StreamFacts:
        if self._stream not in self._kinesis.streams():
            raise ConfigurationError(
                f"the fake has no stream {self._stream!r}, only {self._kinesis.streams()}; "
                f"make it with create_stream({self._stream!r})"
            )
        return await self.describe()

    async def describe(self) -> StreamFacts:
        return await self._call("describe", self._facts)

    async def shards(self) -> Sequence[Shard]:
        return await self._call("shards", self._listed)

    async def iterator(self, shard: str, start: IteratorStart) -> str:
        def make() -> str:
            return self._kinesis.shard_iterator(self._stream, shard, start)

        return await self._call("iterator", make, start)

    async def records(self, iterator: str, limit: int) -> Page:
        def get() -> Page:
            answer = self._kinesis.get_records(iterator, limit)
            return page(
                answer.records, answer.next, answer.behind, has_children=bool(answer.children)
            )

        return await self._call("records", get)

    async def consumer(self, name: str) -> str:
        found = await self._call("consumer", lambda: self._registered(name))
        await asyncio.sleep(self._kinesis.fan_out.creating(found))
        return await self._call("consumer", lambda: self._kinesis.fan_out.consumer(found.arn).arn)

    async def subscribe(
        self, consumer: str, shard: str, start: IteratorStart
    ) -> AsyncGenerator[Page, None]:
        def begin() -> Subscription:
            return self._kinesis.fan_out.subscribe(consumer, shard, start)

        subscription = await self._call("subscribe", begin, start)
        async with aclosing(follow(subscription)) as events:
            try:
                async for event in events:
                    yield await self._call("event", partial(event_page, event))
            except RefusedError as error:
                raise typed(error) from error

    async def time(self) -> float:
        # The real one reads the Date header of an answer, which has whole seconds.
        return await self._call("time", lambda: float(math.floor(self._kinesis.clock.wall())))

    async def aclose(self) -> None:
        """Nothing is open."""

    def _facts(self) -> StreamFacts:
        stream = self._kinesis.stream(self._stream)
        return StreamFacts(stream.arn, stream.created)

    def _registered(self, name: str) -> FakeConsumer:
        fan_out = self._kinesis.fan_out
        found = [each for each in fan_out.consumers(self._stream) if each.name == name]
        return found[0] if found else fan_out.register(self._stream, name)

    def _listed(self) -> Sequence[Shard]:
        listed = self._kinesis.shards(self._stream)
        return [Shard(each.id, each.parents, each.end is not None) for each in listed]

    async def _call(
        self, seam: str, answer: Callable[[], T], start: IteratorStart | None = None
    ) -> T:
        """One request: its faults, and its refusal as one of the adapter's errors."""

        async def apply() -> T:
            return answer()

        try:
            return await self._faults.around(seam, apply)
        except RefusedError as error:
            if seam == "records" and error.code == "InvalidArgumentException":
                raise IteratorExpiredError(str(error)) from error  # an iterator alone can be wrong
            raise typed(error, start) from error


def typed(error: RefusedError, start: IteratorStart | None = None) -> AdapterError:
    """A refusal as the adapter knows it."""
    is_about_sequence = start is not None and start.sequence is not None
    if error.code == "InvalidArgumentException" and is_about_sequence:
        return PositionOutOfRangeError(str(error))
    return ERRORS.get(error.code, AdapterError)(str(error))


def page(
    records: Sequence[FakeRecord], after: str | None, behind: int, *, has_children: bool
) -> Page:
    """An answer in columns."""
    return Page(
        sequences=[record.sequence for record in records],
        keys=[record.key.encode() for record in records],
        data=[record.data for record in records],
        times=[int(record.time * 1000) for record in records],
        next=after,
        behind=behind,
        has_children=has_children,
        size=sum(record.size for record in records),
    )


def event_page(event: Event) -> Page:
    """An event of a subscription as a page."""
    after = None if event.continuation is None else str(event.continuation)
    return page(event.records, after, event.behind, has_children=bool(event.children))
