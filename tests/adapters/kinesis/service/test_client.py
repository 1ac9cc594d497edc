"""What `ClientService` asks for, and what it makes of answers; the server has them ready."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web

from consumer_sdk.adapters.kinesis.service import client, hooks
from consumer_sdk.adapters.kinesis.service.client import ClientService
from consumer_sdk.adapters.kinesis.service.service import (
    IteratorExpiredError,
    IteratorStart,
    Shard,
    ShardGoneError,
    StreamFacts,
    SubscriptionBusyError,
    ThrottledError,
)
from consumer_sdk.errors import (
    AdapterError,
    ConfigurationError,
    ConsumerClosedError,
    PositionOutOfRangeError,
    TransientAdapterError,
)
from tests.adapters.kinesis.answering import (
    ARN,
    SUMMARY,
    Answering,
    connection_to,
    error,
    gone,
    opened,
)

NOT_FOUND = error("ResourceNotFoundException")
INVALID = error("InvalidArgumentException")
AFTER = IteratorStart("AFTER_SEQUENCE_NUMBER", 17)
CONSUMER = f"{ARN}/consumer/me:1"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream or a consumer that is not ready is looked at again at once."""
    monkeypatch.setattr(client, "READY_POLL", 0)


def summary(**changes: Any) -> dict[str, Any]:
    """An answer to DescribeStreamSummary."""
    return {"StreamDescriptionSummary": {**SUMMARY["StreamDescriptionSummary"], **changes}}


def described(status: str) -> dict[str, Any]:
    """An answer to DescribeStreamConsumer."""
    return {
        "ConsumerDescription": {
            "ConsumerName": "me",
            "ConsumerARN": CONSUMER,
            "ConsumerStatus": status,
            "ConsumerCreationTimestamp": 1.0,
            "StreamARN": ARN,
        }
    }


# -- opening ----------------------------------------------------------------------------------


async def test_opening_tells_of_the_stream(server: Answering) -> None:
    """Its ARN and when it was made, which together tell it from a later one of that name."""
    service = ClientService("orders", connection_to(server.url))
    assert await service.open() == StreamFacts(ARN, 1_700_000_000.25)
    assert await service.describe() == StreamFacts(ARN, 1_700_000_000.25)
    await service.aclose()


async def test_a_stream_that_is_being_created_is_waited_for(server: Answering) -> None:
    """Until it is active; one that is being resharded works meanwhile."""
    server.on("DescribeStreamSummary", *[summary(StreamStatus="CREATING")] * 3, SUMMARY)
    async with opened(server.url):
        assert server.count("DescribeStreamSummary") == 4
    server.on("DescribeStreamSummary", summary(StreamStatus="UPDATING"))
    async with opened(server.url):
        assert server.count("DescribeStreamSummary") == 5


async def test_a_stream_that_never_gets_ready_is_given_up(
    server: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait is bounded, and the error may pass."""
    monkeypatch.setattr(client, "READY_WAIT", 0.05)
    server.on("DescribeStreamSummary", summary(StreamStatus="CREATING"))
    with pytest.raises(TransientAdapterError, match="'orders' is not active"):
        await opened(server.url).__aenter__()


@pytest.mark.parametrize(
    "answer, text",
    [(NOT_FOUND, "no stream 'orders' at http"), (summary(StreamStatus="DELETING"), "deleted")],
)
async def test_a_stream_that_is_not_there_is_a_configuration_error(
    server: Answering, answer: Any, text: str
) -> None:
    """It names the stream and the endpoint."""
    server.on("DescribeStreamSummary", answer)
    with pytest.raises(ConfigurationError, match=text):
        await opened(server.url).__aenter__()


async def test_a_server_that_is_not_there_is_an_adapter_error() -> None:
    """Within the time for connecting; nothing listens on port 1."""
    began = time.monotonic()
    with pytest.raises(TransientAdapterError, match=r"127\.0\.0\.1:1"):
        await opened("http://127.0.0.1:1", connect_timeout=60.0).__aenter__()
    assert time.monotonic() - began < 50


async def test_a_silent_server_is_given_up_after_the_time_for_an_answer(
    server: Answering,
) -> None:
    """It takes the request and says nothing."""

    async def hangs(request: web.Request) -> web.StreamResponse:
        await gone(request)
        return web.Response()

    server.on("DescribeStreamSummary", hangs)
    with pytest.raises(TransientAdapterError, match="orders"):
        await opened(server.url, request_timeout=0.1).__aenter__()


async def test_a_missing_region_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment variable would do, too."""
    nothing_configured(monkeypatch)
    service = ClientService("orders", connection_to("http://127.0.0.1:1", region_name=None))
    with pytest.raises(ConfigurationError, match=r"region_name=.*AWS_DEFAULT_REGION"):
        await service.open()


async def test_missing_credentials_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a machine without a role."""
    nothing_configured(monkeypatch)
    nobody: dict[str, Any] = {"aws_access_key_id": None, "aws_secret_access_key": None}
    with pytest.raises(ConfigurationError, match=r"aws_access_key_id=.*AWS_ACCESS_KEY_ID"):
        await opened("http://127.0.0.1:1", **nobody).__aenter__()


def nothing_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes away what this machine's user may have set."""
    for name in ("REGION", "DEFAULT_REGION", "PROFILE", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nonexistent")


@pytest.mark.parametrize(
    "options, text",
    [
        ({"endpoint_url": "nowhere"}, "nowhere"),
        ({"profile": "no-such-profile"}, "profile="),
        ({"region_name": "no region!"}, "region_name="),
    ],
)
async def test_an_option_that_cannot_work_is_a_configuration_error(
    options: dict[str, Any], text: str
) -> None:
    """Found when the client is made."""
    with pytest.raises(ConfigurationError, match=text):
        await opened("http://127.0.0.1:1", **options).__aenter__()


async def test_an_arn_names_the_region_and_goes_into_every_request(server: Answering) -> None:
    """A stream of another account is found by nothing else."""
    server.on("GetRecords", {"Records": [], "NextShardIterator": "x"})
    async with opened(server.url, ARN, region_name=None) as service:
        await service.records("iterator", 10)
    assert [parameters.get("StreamARN") for _, parameters in server.asked] == [ARN, ARN]


async def test_a_closed_service_says_so(server: Answering) -> None:
    """Also before it was opened; closing it twice does nothing."""
    service = ClientService("orders", connection_to(server.url))
    with pytest.raises(ConsumerClosedError, match="not open"):
        await service.shards()
    await service.open()
    await service.aclose()
    await service.aclose()
    with pytest.raises(ConsumerClosedError, match="not open"):
        await service.shards()


# -- shards -----------------------------------------------------------------------------------


async def test_shards_of_all_pages_are_listed_with_both_parents(
    server: Answering, service: ClientService
) -> None:
    """Kinesis trap 20: more than one page; a token is never sent with the stream's name."""
    closed = {"StartingSequenceNumber": "1", "EndingSequenceNumber": "2"}
    merged = {"ShardId": "c", "ParentShardId": "a", "AdjacentParentShardId": "b"}
    server.on(
        "ListShards",
        {"Shards": [{"ShardId": "a", "SequenceNumberRange": closed}], "NextToken": "1"},
        {"Shards": [{"ShardId": "b", "ParentShardId": "z"}], "NextToken": "2"},
        {"Shards": [merged]},
    )
    first = Shard("a", (), is_closed=True)
    assert await service.shards() == [first, Shard("b", ("z",)), Shard("c", ("a", "b"))]
    asked = [parameters for name, parameters in server.asked if name == "ListShards"]
    assert [("StreamName" in each, each.get("NextToken")) for each in asked] == [
        (True, None),
        (False, "1"),
        (False, "2"),
    ]


async def test_a_listing_whose_token_expired_begins_again(
    server: Answering, service: ClientService
) -> None:
    """And has each shard once."""
    first = {"Shards": [{"ShardId": "a"}], "NextToken": "1"}
    expired = error("ExpiredNextTokenException")
    server.on("ListShards", first, expired, first, {"Shards": [{"ShardId": "b"}]})
    assert await service.shards() == [Shard("a"), Shard("b")]


async def test_a_listing_whose_tokens_always_expire_is_given_up(
    server: Answering, service: ClientService
) -> None:
    """It could go on for ever."""
    server.on("ListShards", error("ExpiredNextTokenException"))
    with pytest.raises(IteratorExpiredError):
        await service.shards()
    assert server.count("ListShards") == client.LISTINGS


async def test_a_listing_without_an_end_is_given_up(
    server: Answering, service: ClientService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that gives the same token again and again."""
    monkeypatch.setattr(client, "MOST_PAGES", 5)
    server.on("ListShards", {"Shards": [], "NextToken": "1"})
    with pytest.raises(AdapterError, match="has not ended after 5 pages"):
        await service.shards()


# -- iterators --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "start, asked",
    [
        (IteratorStart("TRIM_HORIZON"), {"ShardIteratorType": "TRIM_HORIZON"}),
        (AFTER, {"ShardIteratorType": AFTER.kind, "StartingSequenceNumber": "17"}),
        (
            IteratorStart("AT_TIMESTAMP", time=1_700_000_000.123),
            {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": 1_700_000_000.123},
        ),
    ],
)
async def test_an_iterator_is_asked_for_in_the_service_s_words(
    server: Answering, service: ClientService, start: IteratorStart, asked: dict[str, Any]
) -> None:
    """A time keeps its milliseconds."""
    server.on("GetShardIterator", {"ShardIterator": "it"})
    assert await service.iterator("s", start) == "it"
    assert server.asked[-1][1] == {"StreamName": "orders", "ShardId": "s", **asked}


async def test_a_sequence_number_of_no_record_is_out_of_range(
    server: Answering, service: ClientService
) -> None:
    """As Kinesis says it, and as a server says it that calls the resource unknown."""
    server.on("ListShards", {"Shards": [{"ShardId": "s"}]})
    for answer in (INVALID, NOT_FOUND):
        server.on("GetShardIterator", answer)
        with pytest.raises(PositionOutOfRangeError, match="17"):
            await service.iterator("s", AFTER)


async def test_an_iterator_of_a_shard_that_is_gone_is_another_error(
    server: Answering, service: ClientService
) -> None:
    """The shard has expired, or the stream was deleted: no position is at fault."""
    server.on("GetShardIterator", NOT_FOUND)
    for listed in ({"Shards": [{"ShardId": "other"}]}, NOT_FOUND):
        server.on("ListShards", listed)
        with pytest.raises(ShardGoneError):
            await service.iterator("s", AFTER)
    with pytest.raises(ShardGoneError):
        await service.iterator("s", IteratorStart("TRIM_HORIZON"))


async def test_an_invalid_time_is_not_out_of_range(
    server: Answering, service: ClientService
) -> None:
    """A time in the future is the caller's mistake, not a position that was trimmed."""
    server.on("GetShardIterator", INVALID)
    with pytest.raises(AdapterError) as caught:
        await service.iterator("s", IteratorStart("AT_TIMESTAMP", time=9e9))
    assert type(caught.value) is AdapterError


# -- records ----------------------------------------------------------------------------------


async def test_both_ways_of_decoding_end_in_the_same_page(server: Answering) -> None:
    """The client's own parser is the opt-out."""
    record = {
        "SequenceNumber": "123",
        "ApproximateArrivalTimestamp": 1_700_000_000.123,
        "Data": "aGVsbG8=",
        "PartitionKey": "k",
    }
    child = {
        "ShardId": "c",
        "ParentShards": ["s"],
        "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "1"},
    }
    server.on("GetRecords", {"Records": [record], "MillisBehindLatest": 7, "ChildShards": [child]})
    async with opened(server.url) as fast, opened(server.url, fast_decode=False) as slow:
        page = await fast.records("it", 10)
        assert page == await slow.records("it", 10)
    assert (page.data, page.has_children, page.next) == ([b"hello"], True, None)
    assert server.asked[-1][1] == {"ShardIterator": "it", "Limit": 10}


async def test_a_connection_that_breaks_may_come_back(
    server: Answering, service: ClientService
) -> None:
    """Kinesis trap 25: before an answer, and in the middle of one."""

    async def breaks(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def breaks_off(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "999"})
        await response.prepare(request)
        await response.write(b"{")
        return await breaks(request)

    server.on("GetRecords", breaks, breaks_off, {"Records": [], "NextShardIterator": "x"})
    for _ in range(2):
        with pytest.raises(TransientAdapterError):
            await service.records("it", 10)
    assert (await service.records("it", 10)).next == "x"


async def test_a_cancelled_call_closes_its_connection(
    server: Answering, service: ClientService
) -> None:
    """The server sees it go, and the next call works."""
    entered, left = asyncio.Event(), asyncio.Event()

    async def hangs(request: web.Request) -> web.StreamResponse:
        entered.set()
        await gone(request)
        left.set()
        return web.Response()

    server.on("GetRecords", hangs, {"Records": [], "NextShardIterator": "x"})
    call = asyncio.create_task(service.records("it", 10))
    await entered.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await left.wait()
    assert (await service.records("it", 10)).next == "x"


async def test_closing_the_service_ends_the_calls_under_way(
    server: Answering, service: ClientService
) -> None:
    """With an error of the SDK's."""
    entered = asyncio.Event()

    async def hangs(request: web.Request) -> web.StreamResponse:
        entered.set()
        await gone(request)
        return web.Response()

    server.on("GetRecords", hangs)
    call = asyncio.create_task(service.records("it", 10))
    await entered.wait()
    await service.aclose()
    with pytest.raises(TransientAdapterError):
        await call


async def test_a_cancelled_opening_leaves_nothing_open(server: Answering) -> None:
    """The client is closed, and may be opened again."""
    entered = asyncio.Event()

    async def hangs(request: web.Request) -> web.StreamResponse:
        entered.set()
        await gone(request)
        return web.Response()

    server.on("DescribeStreamSummary", hangs, SUMMARY)
    service = ClientService("orders", connection_to(server.url))
    opening = asyncio.create_task(service.open())
    await entered.wait()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    with pytest.raises(ConsumerClosedError):
        await service.describe()
    assert (await service.open()).arn == ARN
    await service.aclose()


async def test_a_client_that_calls_no_hooks_is_named(
    server: Answering, service: ClientService
) -> None:
    """Instead of an error about a name that is missing somewhere."""
    service._link.events.unregister("before-parse.kinesis.GetRecords", hooks.read_records)
    server.on("GetRecords", {"Records": []})
    with pytest.raises(AdapterError, match="fast_decode=False"):
        await service.records("it", 10)


# -- consumers --------------------------------------------------------------------------------


async def test_a_consumer_that_is_active_is_used(server: Answering, service: ClientService) -> None:
    """Nothing is registered."""
    server.on("DescribeStreamConsumer", described("ACTIVE"))
    assert await service.consumer("me") == CONSUMER
    assert server.asked[-1] == (
        "DescribeStreamConsumer",
        {"StreamARN": ARN, "ConsumerName": "me"},
    )


@pytest.mark.parametrize(
    "registering", [{"Consumer": {}}, error("ResourceInUseException")], ids=["done", "taken"]
)
async def test_a_consumer_is_registered_and_waited_for(
    server: Answering, service: ClientService, registering: Any
) -> None:
    """Also where another process does so at the same moment."""
    server.on("DescribeStreamConsumer", NOT_FOUND, described("CREATING"), described("ACTIVE"))
    server.on("RegisterStreamConsumer", registering)
    assert await service.consumer("me") == CONSUMER
    assert server.count("RegisterStreamConsumer") == 1


async def test_a_consumer_that_is_being_deleted_is_registered_anew(
    server: Answering, service: ClientService
) -> None:
    """Once the old one is gone."""
    server.on("DescribeStreamConsumer", described("DELETING"), NOT_FOUND, described("ACTIVE"))
    server.on("RegisterStreamConsumer", {"Consumer": {}})
    assert await service.consumer("me") == CONSUMER


@pytest.mark.parametrize(
    "registering, kind",
    [
        (error("LimitExceededException"), ThrottledError),
        (error("AccessDeniedException"), AdapterError),
        (NOT_FOUND, ShardGoneError),
    ],
)
async def test_a_consumer_that_cannot_be_registered_is_an_error(
    server: Answering, service: ClientService, registering: Any, kind: type[AdapterError]
) -> None:
    """Of a stream that is gone, too."""
    server.on("DescribeStreamConsumer", NOT_FOUND)
    server.on("RegisterStreamConsumer", registering)
    with pytest.raises(AdapterError, match="'me'") as caught:
        await service.consumer("me")
    assert type(caught.value) is kind


async def test_a_consumer_that_is_coming_is_waited_for_over_throttles(
    server: Answering, service: ClientService
) -> None:
    """Twenty looks a second are allowed, to all of the account."""
    throttled = error("LimitExceededException")
    creating, active = described("CREATING"), described("ACTIVE")
    server.on("DescribeStreamConsumer", creating, throttled, creating, throttled, active)
    assert await service.consumer("me") == CONSUMER


async def test_a_consumer_that_never_gets_active_is_given_up(
    server: Answering, service: ClientService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait is bounded."""
    monkeypatch.setattr(client, "READY_WAIT", 0.05)
    server.on("DescribeStreamConsumer", described("CREATING"))
    with pytest.raises(TransientAdapterError, match=r"consumer 'me'.*not active"):
        await service.consumer("me")


# -- the clock --------------------------------------------------------------------------------


async def test_the_time_is_the_service_s_and_goes_on(server: Answering) -> None:
    """A Date is as old as what has passed since; no request is made for it."""
    now = [50.0]
    server.headers["Date"] = "Tue, 14 Nov 2023 22:13:20 GMT"
    service = ClientService("orders", connection_to(server.url), clock=lambda: now[0])
    await service.open()
    assert await service.time() == 1_700_000_000
    now[0] += 2.5
    assert await service.time() == 1_700_000_002.5
    assert server.count("DescribeStreamSummary") == 1
    await service.aclose()


async def test_the_time_is_that_of_the_latest_answer(server: Answering) -> None:
    """A server's clock may be set back."""
    server.on("ListShards", {"Shards": []})
    async with opened(server.url) as service:
        server.headers["Date"] = "Tue, 14 Nov 2023 22:13:20 GMT"
        await service.shards()
        assert 0 <= await service.time() - 1_700_000_000 < 60


async def test_a_date_that_is_none_may_pass(server: Answering) -> None:
    """Rather than a time that nobody told."""
    server.headers["Date"] = "yesterday"
    async with opened(server.url) as service:
        with pytest.raises(TransientAdapterError, match="without a Date that is one"):
            await service.time()


async def test_the_time_is_never_ahead(server: Answering) -> None:
    """A Date has whole seconds: it is late by less than one."""
    async with opened(server.url) as service:
        assert -60 < await service.time() - datetime.now(UTC).timestamp() <= 0


async def test_a_busy_subscription_is_told_from_a_missing_one(
    server: Answering, service: ClientService
) -> None:
    """Before its first event, as an HTTP error."""
    for code, kind in (
        ("ResourceInUseException", SubscriptionBusyError),
        ("ResourceNotFoundException", ShardGoneError),
        ("InvalidArgumentException", PositionOutOfRangeError),
    ):
        server.on("SubscribeToShard", error(code))
        with pytest.raises(AdapterError) as caught:
            await anext(service.subscribe(CONSUMER, "s", AFTER))
        assert type(caught.value) is kind
