"""`Service` on aiobotocore: requests, and what their answers mean."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from consumer_sdk.adapters.kinesis.service.connection import Connection, Link
from consumer_sdk.adapters.kinesis.service.decoding import page_of_parsed
from consumer_sdk.adapters.kinesis.service.hooks import (
    PAGE,
    STREAM,
    Events,
    hand_over_stream,
    hooked,
    read_records,
)
from consumer_sdk.adapters.kinesis.service.requests import (
    address,
    faults_of,
    next_token,
    no_stream,
    place,
    read_consumer,
    read_facts,
    read_shard,
    required,
    words,
)
from consumer_sdk.adapters.kinesis.service.service import (
    FanOutConsumer,
    IteratorExpiredError,
    IteratorStart,
    Page,
    Service,
    Shard,
    ShardGoneError,
    StreamFacts,
    SubscriptionBusyError,
)
from consumer_sdk.adapters.kinesis.service.translation import FOREIGN, Faults, readable, translate
from consumer_sdk.errors import (
    AdapterError,
    ConfigurationError,
    PositionOutOfRangeError,
    TransientAdapterError,
)

__all__ = ["ClientService", "Connection"]

T = TypeVar("T")

READY_WAIT = 120.0
"""Seconds that a new stream or consumer may take until it is active; it is a few as a rule."""

READY_POLL = 1.0
"""Seconds between two looks at it: ten a second are allowed, to all of the account."""

SHARDS_PER_PAGE = 1000
MOST_PAGES = 10_000
LISTINGS = 3
"""How often a listing is begun; its token lives for five minutes."""

TOKEN_EXPIRED: Faults = {"ExpiredNextTokenException": IteratorExpiredError}

TOKEN_REFUSED: Faults = {**TOKEN_EXPIRED, "InvalidArgumentException": IteratorExpiredError}
"""Where a token is all that can be wrong: it came out of an answer, too."""

ITERATOR_REFUSED: Faults = {"InvalidArgumentException": IteratorExpiredError}
"""Of all that is asked, an iterator alone can be wrong: it came out of an answer, perhaps a bad one."""


class ClientService(Service):
    """One stream of Kinesis, through aiobotocore.

    Args:
        stream: its name or its ARN.
        connection: where it is, and who asks.
        clock: monotonic, in seconds.

    Raises:
        ConfigurationError: this is no name of a stream.

    Cancellation: of any method closes the connection that its request was on.
    Concurrency: all methods may be called at the same time.
    """

    __slots__ = ("_address", "_arn", "_connection", "_link", "_region", "stream")

    def __init__(
        self,
        stream: str,
        connection: Connection | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stream = stream
        self._region, self._address = address(stream)
        self._connection = connection or Connection()
        self._link = Link(self._connection, self._region, clock)
        self._arn = ""

    async def open(self) -> StreamFacts:
        """Connects, and waits a while for a stream that is being created.

        Raises:
            ConfigurationError: there is no such stream, it is being deleted, or the client's
                options cannot work.
            AdapterError: the service cannot be reached, or refused; or the stream is not ready.
        """
        try:
            return await self._open()
        except BaseException:
            await self.aclose()
            raise

    async def describe(self) -> StreamFacts:
        doing, summary = await self._summary()
        with readable(doing):
            return read_facts(summary)

    async def shards(self) -> Sequence[Shard]:
        for _ in range(LISTINGS):
            try:
                return await self._list()
            except IteratorExpiredError as error:
                expired = error
        raise expired

    async def iterator(self, shard: str, start: IteratorStart) -> str:
        asked = {
            **self._address,
            "ShardId": shard,
            "ShardIteratorType": start.kind,
            **place(start, "StartingSequenceNumber"),
        }
        doing = f"asking for an iterator of {self._name(shard)} {words(start)}"
        try:
            answer = await self._link.call("get_shard_iterator", asked, doing, faults_of(start))
        except ShardGoneError as error:
            await self._blame_position(error, shard, start)
            raise
        return required(answer, "ShardIterator", str, doing)

    async def records(self, iterator: str, limit: int) -> Page:
        doing = f"reading stream {self.stream!r}"
        # Who gives an ARN may be of another account, and has to say it in each request.
        account = self._address if "StreamARN" in self._address else {}
        asked = {"ShardIterator": iterator, "Limit": limit, **account}
        answer = await self._link.call("get_records", asked, doing, ITERATOR_REFUSED)
        return hooked(answer, PAGE) if self._connection.fast_decode else page_of_parsed(answer)

    async def consumer(self, name: str) -> str:
        """Registers the consumer where it is not, and waits until it is active.

        Raises:
            AdapterError: it cannot be registered, or is not active in time.
        """

        async def ready() -> str | None:
            return await self._ready_consumer(name)

        return await _until(ready, f"consumer {name!r} of stream {self.stream!r}")

    async def consumers(self) -> Sequence[FanOutConsumer]:
        """All that are registered for enhanced fan-out, by name."""
        doing = f"listing the fan-out consumers of stream {self.stream!r}"
        asked = {"StreamARN": self._arn}
        rows = await self._rows("list_stream_consumers", "Consumers", asked, doing, again=asked)
        with readable(doing):
            return sorted(map(read_consumer, rows), key=lambda consumer: consumer.name)

    async def deregister(self, name: str) -> None:
        """Removes a fan-out consumer; whoever reads by it can no longer.

        Raises:
            ConfigurationError: there is none of that name.
        """
        doing = f"removing the fan-out consumer {name!r} of stream {self.stream!r}"
        which = {"StreamARN": self._arn, "ConsumerName": name}
        try:
            await self._link.call("deregister_stream_consumer", which, doing)
        except ShardGoneError as error:
            names = [consumer.name for consumer in await self.consumers()]
            raise ConfigurationError(
                f"stream {self.stream!r} has no fan-out consumer {name!r}, only {names}"
            ) from error

    async def subscribe(
        self, consumer: str, shard: str, start: IteratorStart
    ) -> AsyncGenerator[Page, None]:
        doing = f"subscribing {consumer} to {self._name(shard)} {words(start)}"
        faults = faults_of(start)
        asked = {
            "ConsumerARN": consumer,
            "ShardId": shard,
            "StartingPosition": {"Type": start.kind, **place(start, "SequenceNumber")},
        }
        answer = await self._link.call("subscribe_to_shard", asked, doing, faults)
        response, events = hooked(answer, STREAM), Events(doing, faults)
        try:
            async for chunk in response.content.iter_any():
                for page in events.pages(chunk):
                    yield page
        except FOREIGN as error:
            raise translate(error, doing, faults) from error
        except RuntimeError as error:  # the word of aiohttp for a connection that `aclose` closed
            raise TransientAdapterError(f"{doing}: {error}") from error
        finally:
            response.close()

    async def time(self) -> float:
        if self._link.time() is None:
            await self.describe()
        now = self._link.time()
        if now is None:
            raise TransientAdapterError(f"{self._place()} sends answers without a Date that is one")
        return now

    async def aclose(self) -> None:
        await self._link.aclose()

    # -- the stream -----------------------------------------------------------------------------

    async def _open(self) -> StreamFacts:
        await self._link.open()
        self._link.events.register("before-parse.kinesis.SubscribeToShard", hand_over_stream)
        if self._connection.fast_decode:
            self._link.events.register("before-parse.kinesis.GetRecords", read_records)
        facts = await _until(self._ready_stream, f"stream {self.stream!r}")
        self._arn = facts.arn
        return facts

    async def _summary(self) -> tuple[str, Mapping[str, Any]]:
        """What was asked for, for messages, and what the answer says of the stream."""
        doing = f"looking at stream {self.stream!r} at {self._place()}"
        answer = await self._link.call("describe_stream_summary", self._address, doing)
        return doing, required(answer, "StreamDescriptionSummary", dict, doing)

    async def _ready_stream(self) -> StreamFacts | None:
        try:
            doing, summary = await self._summary()
        except ShardGoneError as error:
            raise no_stream(self.stream, self._place()) from error
        status = required(summary, "StreamStatus", str, doing)
        if status == "DELETING":
            raise ConfigurationError(f"stream {self.stream!r} at {self._place()} is being deleted")
        with readable(doing):
            return None if status == "CREATING" else read_facts(summary)

    async def _list(self) -> list[Shard]:
        doing = f"listing the shards of stream {self.stream!r}"
        again = {"MaxResults": SHARDS_PER_PAGE}
        asked, faults = {**self._address, **again}, (TOKEN_EXPIRED, TOKEN_REFUSED)
        rows = await self._rows("list_shards", "Shards", asked, doing, again=again, faults=faults)
        with readable(doing):
            return list(map(read_shard, rows))

    async def _rows(
        self,
        operation: str,
        field: str,
        asked: Mapping[str, Any],
        doing: str,
        *,
        again: Mapping[str, Any],
        faults: tuple[Faults, Faults] = ({}, {}),
    ) -> list[Any]:
        """All pages of a list.

        Args:
            field: of an answer, that has the rows.
            asked: for the first page.
            again: for the others, beside the token.
            faults: of the first page, and of the others.
        """
        rows: list[Any] = []
        for _ in range(MOST_PAGES):
            answer = await self._link.call(operation, asked, doing, faults[0])
            rows += required(answer, field, list, doing)
            token = next_token(answer, doing)
            if token is None:
                return rows
            asked, faults = {**again, "NextToken": token}, (faults[1], faults[1])
        raise AdapterError(f"{doing}: the list has not ended after {MOST_PAGES} pages")

    async def _blame_position(
        self, error: ShardGoneError, shard: str, start: IteratorStart
    ) -> None:
        """Some servers say of an unknown sequence number that the resource is not found."""
        if start.sequence is not None and shard in {found.id for found in await self.shards()}:
            raise PositionOutOfRangeError(
                f"{self._name(shard)} has no record {start.sequence}"
            ) from error

    # -- the consumer ---------------------------------------------------------------------------

    async def _ready_consumer(self, name: str) -> str | None:
        doing = f"registering consumer {name!r} of stream {self.stream!r}"
        which = {"StreamARN": self._arn, "ConsumerName": name}
        try:
            answer = await self._link.call("describe_stream_consumer", which, doing)
        except ShardGoneError:  # the consumer: of a stream that is gone the next call tells
            await self._register(doing, which)
            return None
        found = required(answer, "ConsumerDescription", dict, doing)
        is_active = required(found, "ConsumerStatus", str, doing) == "ACTIVE"
        return required(found, "ConsumerARN", str, doing) if is_active else None

    async def _register(self, doing: str, which: Mapping[str, str]) -> None:
        with suppress(SubscriptionBusyError):  # another process registers it at the same time
            await self._link.call("register_stream_consumer", which, doing)

    def _place(self) -> str:
        return self._connection.place(self._region)

    def _name(self, shard: str) -> str:
        return f"shard {shard} of stream {self.stream!r}"


async def _until(ready: Callable[[], Awaitable[T | None]], what: str) -> T:
    """Looks again and again until there is something; once it is coming, a look may fail."""
    try:
        async with asyncio.timeout(READY_WAIT):
            if (found := await ready()) is not None:
                return found
            while True:
                await asyncio.sleep(READY_POLL)
                with suppress(TransientAdapterError):
                    if (found := await ready()) is not None:
                        return found
    except TimeoutError as error:
        raise TransientAdapterError(
            f"{what} is not active after {READY_WAIT:.0f} s: look at its status"
        ) from error
