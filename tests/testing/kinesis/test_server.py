"""Claims about the fake over HTTP, seen through a real client."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.eventstream import EventStreamBuffer
from botocore.exceptions import ClientError, ConnectionClosedError, EventStreamError

from consumer_sdk.testing import Simulation, simulate
from consumer_sdk.testing.kinesis import FakeKinesis, FakeKinesisServer, Quirks, ShardLimits
from tests.testing.kinesis.clock import HandClock

SHARD = "shardId-000000000000"
HORIZON = {"Type": "TRIM_HORIZON"}
SESSION = get_session()


def client(server: FakeKinesisServer) -> AbstractAsyncContextManager[Any]:
    """A client that tries once."""
    opened: AbstractAsyncContextManager[Any] = SESSION.create_client(
        "kinesis",
        endpoint_url=server.endpoint_url,
        region_name=server.region,
        config=AioConfig(proxies={}, retries={"total_max_attempts": 1}),
        **server.credentials,
    )
    return opened


@asynccontextmanager
async def served(
    kinesis: FakeKinesis | None = None, **options: bool
) -> AsyncIterator[tuple[FakeKinesisServer, Any]]:
    """A server with the stream `orders` of one shard, and a client of it."""
    async with FakeKinesisServer(kinesis, **options) as server, client(server) as opened:
        server.kinesis.create_stream("orders")
        yield server, opened


async def iterator(opened: Any) -> str:
    """An iterator at the horizon."""
    answer = await opened.get_shard_iterator(
        StreamName="orders", ShardId=SHARD, ShardIteratorType="TRIM_HORIZON"
    )
    token: str = answer["ShardIterator"]
    return token


async def consumer(server: FakeKinesisServer, opened: Any) -> str:
    """The ARN of a consumer that is active."""
    arn = server.kinesis.stream("orders").arn
    answer = await opened.register_stream_consumer(StreamARN=arn, ConsumerName="app")
    found: str = answer["Consumer"]["ConsumerARN"]
    while (await opened.describe_stream_consumer(ConsumerARN=found))["ConsumerDescription"][
        "ConsumerStatus"
    ] != "ACTIVE":
        await asyncio.sleep(0.01)
    return found


def test_date_is_the_fakes_clock() -> None:
    """On a simulated clock too: a client takes the service's time from there."""

    async def main(simulation: Simulation) -> str:
        async with served(FakeKinesis(simulation.clock)) as (_, opened):
            answer = await opened.describe_stream_summary(StreamName="orders")
            date: str = answer["ResponseMetadata"]["HTTPHeaders"]["date"]
            return date

    assert simulate(main) == "Tue, 14 Nov 2023 22:13:20 GMT"


async def test_limits_are_kept() -> None:
    """Kinesis trap 22: the sixth call within a second."""
    # A clock that stands still: six calls may take a busy machine more than a second.
    async with served(FakeKinesis(HandClock())) as (server, opened):
        token = await iterator(opened)
        for _ in range(5):
            await opened.get_records(ShardIterator=token)
        with pytest.raises(opened.exceptions.ProvisionedThroughputExceededException):
            await opened.get_records(ShardIterator=token)
        assert server.calls["GetRecords"] == 6


@pytest.mark.parametrize(
    "code,status",
    [
        ("ExpiredIteratorException", 400),
        ("AccessDeniedException", 400),
        ("InternalFailure", 500),
    ],
)
async def test_planned_error_is_answered_once(code: str, status: int) -> None:
    """Kinesis traps 23 and 25: code and status as AWS has them; then all is well."""
    async with served() as (server, opened):
        token = await iterator(opened)
        server.fail_next("GetRecords", code)
        with pytest.raises(ClientError) as caught:
            await opened.get_records(ShardIterator=token)
        assert caught.value.response["Error"]["Code"] == code
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == status
        await opened.get_records(ShardIterator=token)


@pytest.mark.parametrize("how,stored", [("drop", 0), ("lose", 1)])
async def test_broken_connection_is_on_its_side_of_the_effect(how: Any, stored: int) -> None:
    """Kinesis trap 25: whether it was done, the client cannot know."""
    async with served() as (server, opened):
        server.break_next("PutRecord", how)
        with pytest.raises(ConnectionClosedError):
            await opened.put_record(StreamName="orders", Data=b"x", PartitionKey="k")
        assert len(server.kinesis.stream("orders").shard(SHARD).stored()) == stored


async def test_stalled_request_ends_with_the_server() -> None:
    """Nothing comes; closing waits for nobody."""
    async with FakeKinesisServer() as server, client(server) as opened:
        server.break_next("ListStreams", "stall")
        asking = asyncio.ensure_future(opened.list_streams())
        while not server.calls:
            await asyncio.sleep(0)
        await server.aclose()
        with pytest.raises(ConnectionClosedError):
            await asking


async def test_throttled_records_of_many_are_named() -> None:
    """The others are stored."""
    async with served() as (server, opened):
        server.kinesis.refuse_puts(1)
        entries = [{"Data": each, "PartitionKey": "k"} for each in (b"a", b"b")]
        answer = await opened.put_records(StreamName="orders", Records=entries)
        assert answer["FailedRecordCount"] == 1
        assert answer["Records"][0]["ErrorCode"] == "ProvisionedThroughputExceededException"
        assert [each.data for each in server.kinesis.stream("orders").shard(SHARD).stored()] == [
            b"b"
        ]


async def test_record_that_cannot_be_is_an_error_of_all() -> None:
    """A key of 257 letters; only what is throttled is told record by record."""
    async with served() as (_, opened):
        entries = [{"Data": b"x", "PartitionKey": "k" * 257}]
        with pytest.raises(ClientError, match="InvalidArgumentException"):
            await opened.put_records(StreamName="orders", Records=entries)


async def test_unknown_operation_is_refused() -> None:
    """What is not faked says so."""
    async with served() as (_, opened):
        with pytest.raises(ClientError, match="UnknownOperationException"):
            await opened.update_shard_count(
                StreamName="orders", TargetShardCount=2, ScalingType="UNIFORM_SCALING"
            )


async def test_shards_are_listed_in_pages() -> None:
    """Kinesis trap 20: more than one; the token alone asks for the next."""
    async with served(FakeKinesis(limits=ShardLimits.none())) as (server, opened):
        server.kinesis.create_stream("wide", 5)
        answer = await opened.list_shards(StreamName="wide", MaxResults=2)
        with pytest.raises(opened.exceptions.InvalidArgumentException):
            await opened.list_shards(StreamName="wide", NextToken=answer["NextToken"])
        found = [shard["ShardId"] for shard in answer["Shards"]]
        while token := answer.get("NextToken"):
            answer = await opened.list_shards(NextToken=token, MaxResults=2)
            found += [shard["ShardId"] for shard in answer["Shards"]]
        assert found == [f"shardId-{number:012d}" for number in range(5)]


@pytest.mark.parametrize(
    "wanted,numbers",
    [
        ({"Type": "AT_LATEST"}, [1, 2]),
        ({"Type": "AT_TRIM_HORIZON"}, [0]),
        ({"Type": "FROM_TRIM_HORIZON"}, [0, 1, 2]),
        ({"Type": "AFTER_SHARD_ID", "ShardId": SHARD}, [1, 2]),
    ],
)
async def test_listing_is_filtered(wanted: dict[str, str], numbers: list[int]) -> None:
    """Of a shard and its two children."""
    async with served() as (server, opened):
        server.kinesis.split("orders", SHARD)
        answer = await opened.list_shards(StreamName="orders", ShardFilter=wanted)
        assert [int(each["ShardId"][-3:]) for each in answer["Shards"]] == numbers


async def test_subscription_sends_events_until_the_end_of_the_shard() -> None:
    """Kinesis traps 27 and 28: the first frame is AWS's; the last event names the children."""
    async with served(FakeKinesis(quirks=Quirks(creating=0))) as (server, opened):
        server.kinesis.put("orders", b"a")
        server.kinesis.split("orders", SHARD)
        arn = await consumer(server, opened)
        answer = await opened.subscribe_to_shard(
            ConsumerARN=arn, ShardId=SHARD, StartingPosition=HORIZON
        )
        events = [each["SubscribeToShardEvent"] async for each in answer["EventStream"]]
        assert [record["Data"] for event in events for record in event["Records"]] == [b"a"]
        assert "ContinuationSequenceNumber" not in events[-1]
        assert [child["ParentShards"] for child in events[-1]["ChildShards"]] == [[SHARD]] * 2


async def test_error_within_a_subscription_has_its_code() -> None:
    """Kinesis trap 27: it comes as a frame, after the answer's status was 200."""
    async with served(FakeKinesis(quirks=Quirks(creating=0))) as (server, opened):
        server.kinesis.put("orders", b"a")
        arn = await consumer(server, opened)
        server.fail_next("SubscribeToShardEvent", "InternalFailureException")
        answer = await opened.subscribe_to_shard(
            ConsumerARN=arn, ShardId=SHARD, StartingPosition=HORIZON
        )
        with pytest.raises(EventStreamError, match="InternalFailureException"):
            async for _ in answer["EventStream"]:
                pass


@pytest.mark.parametrize("name", ["initial-response", "SubscribeToShardEvent"])
async def test_first_frame_is_what_the_test_wants(name: str) -> None:
    """Kinesis trap 28: AWS begins with one that is no event; kinesis-local does not."""
    fake = FakeKinesis(quirks=Quirks(creating=0))
    sends = name == "initial-response"
    async with served(fake, sends_initial_response=sends) as (server, opened):
        server.kinesis.put("orders", b"a")
        server.kinesis.split("orders", SHARD)  # so that the stream of events ends
        body = {
            "ConsumerARN": await consumer(server, opened),
            "ShardId": SHARD,
            "StartingPosition": HORIZON,
        }
        # The client itself refuses without the frame, and leaves its connection open.
        headers = {"X-Amz-Target": "Kinesis_20131202.SubscribeToShard"}
        async with (
            aiohttp.ClientSession() as session,
            session.post(server.endpoint_url, json=body, headers=headers) as response,
        ):
            frames = EventStreamBuffer()
            frames.add_data(await response.read())
        assert next(frames).headers[":event-type"] == name


def test_subscription_lives_five_minutes_on_virtual_time() -> None:
    """The server runs in a simulation too: 300 seconds and 59 heartbeats, at once."""

    async def main(simulation: Simulation) -> tuple[int, float]:
        async with served(FakeKinesis(simulation.clock)) as (server, opened):
            arn = await consumer(server, opened)
            began = simulation.clock.monotonic()
            answer = await opened.subscribe_to_shard(
                ConsumerARN=arn, ShardId=SHARD, StartingPosition=HORIZON
            )
            count = len([event async for event in answer["EventStream"]])
            return count, simulation.clock.monotonic() - began

    count, seconds = simulate(main)
    assert count == 59
    assert seconds == pytest.approx(300, abs=0.01)
