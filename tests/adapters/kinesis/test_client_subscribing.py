"""Subscriptions over HTTP: events as they come, ends, breaks, and what is left behind: nothing."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiohttp import web

from consumer_sdk.adapters.kinesis.service.client import ClientService
from consumer_sdk.adapters.kinesis.service.hooks import encode_event
from consumer_sdk.adapters.kinesis.service.service import IteratorStart, Page, SubscriptionBusyError
from consumer_sdk.errors import TransientAdapterError
from tests.adapters.kinesis.answering import ARN, Answering, gone, opened

CONSUMER = f"{ARN}/consumer/me:1"
HORIZON = IteratorStart("TRIM_HORIZON")
FIRST = encode_event({":message-type": "event", ":event-type": "initial-response"}, b"{}")


def event(next_: str | None) -> bytes:
    """A frame without records."""
    body: dict[str, object] = {"Records": [], "MillisBehindLatest": 0}
    body["ContinuationSequenceNumber"] = next_
    headers = {":message-type": "event", ":event-type": "SubscribeToShardEvent"}
    return encode_event(headers, json.dumps(body).encode())


class Subscriptions:
    """The server's side of a subscription.

    Attributes:
        sent: set when the frames are on their way.
        left: set when the client has closed the connection of one that stays open.
    """

    def __init__(self, *frames: bytes, stays: bool = False, breaks: bool = False) -> None:
        self._frames = frames
        self._stays = stays
        self._breaks = breaks
        self.sent = asyncio.Event()
        self.left = asyncio.Event()

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for frame in self._frames:
            await response.write(frame)
        self.sent.set()
        if self._stays:
            await gone(request)
            self.left.set()
        if self._breaks and request.transport is not None:
            request.transport.abort()
        return response


async def test_a_subscription_gives_a_page_for_each_event_until_it_ends(
    server: Answering, service: ClientService
) -> None:
    """A null continuation is the end of the shard; the end of the stream alone is not."""
    server.on("SubscribeToShard", Subscriptions(FIRST, event("5"), event(None)))
    start = IteratorStart("AFTER_SEQUENCE_NUMBER", 17)
    pages = [page async for page in service.subscribe(CONSUMER, "s", start)]
    assert pages == [Page(next="5", behind=0), Page(next=None, behind=0)]
    assert server.asked[-1][1] == {
        "ConsumerARN": CONSUMER,
        "ShardId": "s",
        "StartingPosition": {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": "17"},
    }


async def test_an_event_comes_at_once_and_not_with_the_next(
    server: Answering, service: ClientService
) -> None:
    """The stream stays open, and the page is there."""
    server.on("SubscribeToShard", Subscriptions(event("5"), stays=True))
    pages = service.subscribe(CONSUMER, "s", HORIZON)
    assert (await anext(pages)).next == "5"
    await pages.aclose()


async def test_a_closed_generator_closes_its_connection(
    server: Answering, service: ClientService
) -> None:
    """Kinesis trap 27: the server sees that it was unsubscribed, and the client goes on."""
    frames = Subscriptions(FIRST, event("5"), stays=True)
    server.on("SubscribeToShard", frames)
    pages = service.subscribe(CONSUMER, "s", HORIZON)
    await anext(pages)
    await pages.aclose()
    await frames.left.wait()
    assert (await service.describe()).arn == ARN


@pytest.mark.parametrize("frames", [[], [FIRST], [FIRST, event("5")[:20]]])
async def test_a_cancelled_subscription_closes_its_connection(
    server: Answering, service: ClientService, frames: list[bytes]
) -> None:
    """Kinesis trap 27: before any frame, after the first, in the middle of an event."""
    subscription = Subscriptions(*frames, stays=True)
    server.on("SubscribeToShard", subscription)
    pages = service.subscribe(CONSUMER, "s", HORIZON)
    waiting = asyncio.ensure_future(anext(pages))
    await subscription.sent.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await subscription.left.wait()


async def test_a_subscription_that_breaks_may_come_back(
    server: Answering, service: ClientService
) -> None:
    """Kinesis trap 27: what came before is given; the end of a subscription is another thing."""
    server.on("SubscribeToShard", Subscriptions(event("5"), breaks=True))
    pages = service.subscribe(CONSUMER, "s", HORIZON)
    assert (await anext(pages)).next == "5"
    with pytest.raises(TransientAdapterError):
        await anext(pages)


async def test_a_silent_subscription_is_given_up(server: Answering) -> None:
    """Kinesis trap 27: after the time for an answer, since events come even without records."""
    server.on("SubscribeToShard", Subscriptions(event("5"), stays=True))
    async with opened(server.url, request_timeout=1.0) as service:
        pages = service.subscribe(CONSUMER, "s", HORIZON)
        assert (await anext(pages)).next == "5"
        with pytest.raises(TransientAdapterError):
            await anext(pages)


async def test_an_error_in_the_stream_ends_it(server: Answering, service: ClientService) -> None:
    """Kinesis trap 27: another subscription of the pair has taken over."""
    headers = {":message-type": "exception", ":exception-type": "ResourceInUseException"}
    frames = Subscriptions(event("5"), encode_event(headers, b"{}"), stays=True)
    server.on("SubscribeToShard", frames)
    pages = service.subscribe(CONSUMER, "s", HORIZON)
    assert (await anext(pages)).next == "5"
    with pytest.raises(SubscriptionBusyError, match="shard s of stream 'orders'"):
        await anext(pages)
    await frames.left.wait()


async def test_more_subscriptions_than_the_client_s_own_pool_run_at_a_time(
    server: Answering,
) -> None:
    """Each holds a connection; the client's default is ten, and the eleventh would hang."""
    server.on("SubscribeToShard", Subscriptions(event("5"), stays=True))
    async with opened(server.url) as service:
        many = [service.subscribe(CONSUMER, str(shard), HORIZON) for shard in range(30)]
        assert [(await anext(pages)).next for pages in many] == ["5"] * 30
        assert (await service.describe()).arn == ARN
        for pages in many:
            await pages.aclose()


async def test_closing_the_service_ends_its_subscriptions(server: Answering) -> None:
    """With an error of the SDK's, in whoever still waits."""
    server.on("SubscribeToShard", Subscriptions(event("5"), stays=True))
    async with opened(server.url) as service:
        pages = service.subscribe(CONSUMER, "s", HORIZON)
        await anext(pages)
    with pytest.raises(TransientAdapterError):
        await anext(pages)
