"""An answer that Kinesis did not mean, as of a proxy between: asked again, and nothing ends by it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, TypeVar

import pytest
from botocore.retries.standard import ThrottledRetryableChecker, TransientRetryableChecker

from consumer_sdk.adapters.kinesis.service.client import ClientService
from consumer_sdk.adapters.kinesis.service.service import (
    IteratorExpiredError,
    IteratorStart,
    ShardGoneError,
    ThrottledError,
)
from consumer_sdk.adapters.kinesis.service.translation import refusal
from consumer_sdk.errors import AdapterError, TransientAdapterError
from consumer_sdk.testing.kinesis.errors import RefusedError
from tests.adapters.kinesis.answering import SUMMARY, Answering, error, opened
from tests.adapters.kinesis.stage import SHARD, Stage, play

T = TypeVar("T")

FROM_START = IteratorStart("TRIM_HORIZON")

BODIES: list[Any] = [
    b"\xff\xfe\x00",
    b"<html>busy</html>",
    b"",
    b"null",
    [1],
    b'"text"',
    {},
    {"Shards": "x", "ShardIterator": 7, "StreamDescriptionSummary": "x"},
    {"Shards": [7], "ShardIterator": "", "StreamDescriptionSummary": [1]},
    {"Shards": [{}], "StreamDescriptionSummary": {}},
    {"Shards": {"a": 1}, "StreamDescriptionSummary": {"StreamARN": 5, "StreamStatus": 6}},
    {
        "Shards": [{"ShardId": 5, "SequenceNumberRange": 7}],
        "StreamDescriptionSummary": {
            **SUMMARY["StreamDescriptionSummary"],
            "StreamCreationTimestamp": "noon",
        },
    },
    b'{"Shards":' + b"[" * 100_000,
    {"Shards": [{"ShardId": "a"}], "NextToken": 5},
]

CODES = (
    "BandwidthLimitExceeded",
    "PriorRequestNotComplete",
    "RequestThrottled",
    "RequestThrottledException",
    "RequestTimeoutException",
    "SlowDown",
    "ThrottledException",
    "ThrottlingException",
    "TooManyRequestsException",
    "TransactionInProgressException",
)
"""What botocore has tried again by itself, in one version or another."""

STATUSES = (400, 403, 404, 408, 413, 425, 429, 500, 502, 503, 504)


def calls_of(service: ClientService) -> dict[str, Any]:
    """Each operation, and how it is called."""
    return {
        "GetShardIterator": lambda: service.iterator(SHARD, FROM_START),
        "ListShards": service.shards,
        "DescribeStreamSummary": service.describe,
        "GetRecords": lambda: service.records("iterator", 10),
    }


@pytest.mark.parametrize("status", [200, 400, 502])
async def test_answer_of_another_form_may_pass(
    server: Answering, service: ClientService, status: int
) -> None:
    """The error says what was asked for; nothing raw comes out, whatever the answer's status is."""
    for body, (operation, call) in product(BODIES, calls_of(service).items()):
        server.on(operation, (status, body))
        with pytest.raises(TransientAdapterError, match=r"stream 'orders'|cannot be read"):
            await call()


async def test_subscription_of_another_form_may_pass(
    server: Answering, service: ClientService
) -> None:
    """Of the fan-out consumer, too."""
    for body in BODIES:
        server.on("DescribeStreamConsumer", (200, body))
        with pytest.raises(TransientAdapterError, match="stream 'orders'"):
            await service.consumer("me")


def test_what_botocore_tries_again_may_pass() -> None:
    """Its own retries are off, so that they do not use up a shard's limits in silence."""
    retried = {*ThrottledRetryableChecker._THROTTLED_ERROR_CODES, *CODES}
    retried |= set(TransientRetryableChecker._TRANSIENT_ERROR_CODES)
    for code in retried:
        assert isinstance(refusal(code, "", "reading"), TransientAdapterError), code


async def test_page_of_a_proxy_may_pass(server: Answering, service: ClientService) -> None:
    """HTML, whatever the status: the service itself gives a code, as of a right that is missing."""
    for status, (operation, call) in product(STATUSES, calls_of(service).items()):
        server.on(operation, (status, b"<html>one moment</html>"))
        with pytest.raises(TransientAdapterError):
            await call()
    server.on("GetRecords", error("AccessDeniedException", status=413))
    with pytest.raises(AdapterError) as caught:
        await service.records("iterator", 10)
    assert type(caught.value) is AdapterError


def test_throttles_are_known_by_any_name() -> None:
    """They tell of other readers of the shard."""
    for code in ("ThrottledException", "SlowDown", "RequestThrottled"):
        assert isinstance(refusal(code, "", "reading"), ThrottledError)


async def test_iterator_that_is_not_taken_is_one_to_ask_for_again(
    server: Answering, service: ClientService
) -> None:
    """It came from an answer, too."""
    server.on("GetRecords", error("InvalidArgumentException"))
    with pytest.raises(IteratorExpiredError):
        await service.records("iterator", 10)


@pytest.mark.parametrize("fast_decode", [True, False])
@pytest.mark.parametrize("status", [201, 202, 204, 206])
async def test_page_with_a_status_of_another_success_may_pass(
    server: Answering,
    status: int,
    fast_decode: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """The service itself has one."""
    server.on("GetRecords", (status, b"" if status == 204 else b"<html>"))
    async with opened(server.url, fast_decode=fast_decode) as service:
        with pytest.raises(TransientAdapterError, match="cannot be read"):
            await service.records("iterator", 10)


async def test_token_that_is_not_taken_begins_the_listing_again(
    server: Answering, service: ClientService
) -> None:
    """It came from an answer, too; without one the request itself is wrong."""
    first = {"Shards": [{"ShardId": "a"}], "NextToken": "odd"}
    refused = error("InvalidArgumentException")
    server.on("ListShards", first, refused, {"Shards": [{"ShardId": "b"}]})
    assert [shard.id for shard in await service.shards()] == ["b"]
    server.on("ListShards", refused)
    with pytest.raises(AdapterError) as caught:
        await service.shards()
    assert type(caught.value) is AdapterError


async def test_date_that_is_none_is_asked_for_again(server: Answering) -> None:
    """The service's clock is read from the header."""
    async with opened(server.url) as service:
        server.headers["Date"] = "Wed, 21 Oct 2015 07:28:00 GMT"
        await service.describe()
        before = await service.time()
        server.headers["Date"] = "yesterday"
        await service.describe()
        assert 0 <= await service.time() - before < 1000
    async with opened(server.url) as service:
        with pytest.raises(TransientAdapterError, match="without a Date that is one"):
            await service.time()


@pytest.mark.parametrize("fan_out", [None, "c"])
def test_shard_that_is_not_found_although_it_is_listed_waits_alone(
    fan_out: str | None,
) -> None:
    """The others are read meanwhile, and it is read as soon as it is found."""

    async def test(stage: Stage) -> None:
        stage.put("a", shard=0)
        stage.put("b", shard=1)
        lost = misplaced(stage)
        member = await stage.member(fan_out=fan_out)
        assert await member.read(60) == ["b"]
        lost.clear()
        assert await member.read(60) == ["a"]

    play(test, shards=2)


def misplaced(stage: Stage) -> list[str]:
    """The shards that are not found; the first one, until this is cleared."""
    lost = [SHARD]

    def losing(call: Callable[..., T]) -> Callable[..., T]:
        def found(place: str, shard: str, start: IteratorStart) -> T:
            if shard in lost:
                raise RefusedError("ResourceNotFoundException", "no such shard")
            return call(place, shard, start)

        return found

    stage.kinesis.shard_iterator = losing(stage.kinesis.shard_iterator)  # type: ignore[method-assign]
    stage.kinesis.fan_out.subscribe = losing(stage.kinesis.fan_out.subscribe)  # type: ignore[method-assign]
    return lost


@pytest.mark.parametrize("seam", ["describe", "shards"])
def test_stream_that_is_not_found_once_is_looked_for_again(seam: str) -> None:
    """Kinesis trap 25: it was not deleted, says the next answer."""

    async def test(stage: Stage) -> None:
        member = await stage.member(discovery_interval=5.0)
        await member.holding(SHARD)
        member.faults._error = ShardGoneError
        member.faults.fail_next(seam)
        stage.put("a")
        assert await member.read(60) == ["a"]
        assert member.held == [SHARD]

    play(test)
