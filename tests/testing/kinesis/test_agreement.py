"""The same claims about the fake, kinesis-local and kinesalite, through one client.

Where a server differs from AWS, `DIFFERENCES` says so: its answer is asserted, not passed over, so
that a version which fixes it is noticed.
"""

import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import ClientError

from consumer_sdk.testing.kinesis import FakeKinesis, FakeKinesisServer, ShardLimits
from consumer_sdk.testing.servers import KinesisEndpoint

SESSION = get_session()
FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"
GARBAGE = "bm8gaXRlcmF0b3I="

DIFFERENCES: dict[tuple[str, str], Any] = {
    ("kinesalite", "next of a closed and empty shard"): True,  # it is one call later there too
    ("kinesalite", "split of a closed shard"): None,  # accepted
    ("kinesalite", "null with last records"): False,  # one empty answer later
    ("kinesalite", "children are named"): False,
    ("kinesalite", "pages of shards"): [4],  # all at once
    ("kinesis-local", "unknown sequence"): "ResourceNotFoundException",
    ("kinesis-local", "unknown iterator"): "500",  # without a body
    ("kinesis-local", "time to come"): None,  # accepted
}
"""What a server answers where the fake answers as AWS does."""


@dataclass(frozen=True)
class Place:
    """A server, a client of it, and a stream of its own."""

    name: str
    server: KinesisEndpoint
    client: Any
    stream: str

    def expect(self, what: str, as_on_aws: Any) -> Any:
        """What this server answers."""
        return DIFFERENCES.get((self.name, what), as_on_aws)

    async def iterator(self, shard: str, kind: str = "TRIM_HORIZON", **more: Any) -> str:
        """A shard iterator."""
        answer = await self.client.get_shard_iterator(
            StreamName=self.stream, ShardId=shard, ShardIteratorType=kind, **more
        )
        token: str = answer["ShardIterator"]
        return token

    async def read(self, shard: str, kind: str = "TRIM_HORIZON", **more: Any) -> list[bytes]:
        """What one GetRecords gives from there."""
        token = await self.iterator(shard, kind, **more)
        answer = await self.client.get_records(ShardIterator=token)
        return [record["Data"] for record in answer["Records"]]

    async def put(self, *data: bytes, shard: str = FIRST) -> list[str]:
        """Stores records in one shard; returns their sequence numbers."""
        taken = await self.server.put(self.stream, [("key", each) for each in data], shard=shard)
        assert {where for where, _ in taken} == {shard}
        return [number for _, number in taken]


async def refusal(request: Awaitable[Any]) -> str | None:
    """The code with which a request is refused; None: it is not."""
    try:
        await request
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return None


def hash_keys(shard: dict[str, Any]) -> tuple[int, int]:
    """The first and the last hash key of a shard."""
    keys = shard["HashKeyRange"]
    return int(keys["StartingHashKey"]), int(keys["EndingHashKey"])


@pytest.fixture(
    params=[
        pytest.param(("fake", None), id="fake"),
        pytest.param(
            ("kinesis-local", "kinesis_server"),
            id="kinesis-local",
            marks=(pytest.mark.kinesis, pytest.mark.campaign),
        ),
        pytest.param(
            ("kinesalite", "kinesalite_server"), id="kinesalite", marks=pytest.mark.kinesis
        ),
    ]
)
def shared(request: pytest.FixtureRequest) -> tuple[str, KinesisEndpoint | None]:
    """A server that all tests share; None: the fake, which is of the test's own."""
    name, fixture = request.param
    return name, fixture and request.getfixturevalue(fixture)


@pytest.fixture
async def place(shared: tuple[str, KinesisEndpoint | None]) -> AsyncIterator[Place]:
    """A server with a new stream of two shards."""
    name, server = shared
    async with AsyncExitStack() as stack:
        if server is None:
            # The others have no limits; what the fake refuses is tested elsewhere.
            fake = FakeKinesis(limits=ShardLimits.none())
            server = await stack.enter_async_context(FakeKinesisServer(fake))
        client = await stack.enter_async_context(
            SESSION.create_client(
                "kinesis",
                endpoint_url=server.endpoint_url,
                region_name=server.region,
                config=AioConfig(proxies={}, retries={"total_max_attempts": 1}),
                **server.credentials,
            )
        )
        stream = f"agreement-{uuid4().hex}"
        await server.create_stream(stream, 2)
        yield Place(name, server, client, stream)
        await client.delete_stream(StreamName=stream)


async def test_stream_describes_itself(place: Place) -> None:
    """Name, ARN, state, time of creation and number of open shards."""
    answer = await place.client.describe_stream_summary(StreamName=place.stream)
    summary = answer["StreamDescriptionSummary"]
    assert summary["StreamName"] == place.stream
    assert summary["StreamARN"].endswith(f":stream/{place.stream}")
    assert (summary["StreamStatus"], summary["OpenShardCount"]) == ("ACTIVE", 2)
    assert abs(summary["StreamCreationTimestamp"].timestamp() - time.time()) < 60


async def test_shards_share_all_hash_keys(place: Place) -> None:
    """From 0 to 2^128 - 1, side by side, in two halves; kinesis-local's differ by one."""
    (first, low), (high, last) = map(hash_keys, await place.server.shards(place.stream))
    assert (first, last) == (0, 2**128 - 1)
    assert low + 1 == high
    assert abs(high - 2**127) <= 1


async def test_records_come_in_the_order_of_puts(place: Place) -> None:
    """With 56-digit sequence numbers that grow."""
    numbers = await place.put(b"a", b"b", b"c")
    assert await place.read(FIRST) == [b"a", b"b", b"c"]
    assert numbers == sorted(numbers)
    assert {len(number) for number in numbers} == {56}


async def test_key_decides_the_shard(place: Place) -> None:
    """By its MD5: the same shards on each server."""
    taken = await place.server.put(place.stream, [(f"key-{n}", b"x") for n in range(8)])
    halves = [int(shard[-1]) for shard, _ in taken]
    assert halves == [1, 0, 1, 0, 1, 1, 1, 0]


@pytest.mark.parametrize(
    "kind,expected",
    [("AT_SEQUENCE_NUMBER", [b"b", b"c"]), ("AFTER_SEQUENCE_NUMBER", [b"c"])],
)
async def test_sequence_number_is_a_place(place: Place, kind: str, expected: list[bytes]) -> None:
    """AT gives the record, AFTER what follows."""
    numbers = await place.put(b"a", b"b", b"c")
    assert await place.read(FIRST, kind, StartingSequenceNumber=numbers[1]) == expected


async def test_timestamp_of_the_past_is_the_beginning(place: Place) -> None:
    """A time at which nothing was there yet; what came later is given."""
    await place.put(b"a")
    moment = datetime.fromtimestamp(time.time() - 3600, UTC)
    assert await place.read(FIRST, "AT_TIMESTAMP", Timestamp=moment) == [b"a"]


async def test_timestamp_to_come_is_refused(place: Place) -> None:
    """An hour from now."""
    moment = datetime.fromtimestamp(time.time() + 3600, UTC)
    code = await refusal(place.iterator(FIRST, "AT_TIMESTAMP", Timestamp=moment))
    assert code == place.expect("time to come", "InvalidArgumentException")


async def test_latest_is_resolved_when_it_is_made(place: Place) -> None:
    """What is put between GetShardIterator and GetRecords is given."""
    await place.put(b"a")
    token = await place.iterator(FIRST, "LATEST")
    await place.put(b"b")
    answer = await place.client.get_records(ShardIterator=token)
    assert [record["Data"] for record in answer["Records"]] == [b"b"]


async def test_iterator_can_be_used_again(place: Place) -> None:
    """With the same answer."""
    await place.put(b"a")
    token = await place.iterator(FIRST)
    answers = [await place.client.get_records(ShardIterator=token) for _ in range(2)]
    assert [len(answer["Records"]) for answer in answers] == [1, 1]


async def test_pages_continue_one_another(place: Place) -> None:
    """Two records of three, then one, then none; an open shard always has a next."""
    await place.put(b"a", b"b", b"c")
    token, pages = await place.iterator(FIRST), []
    for _ in range(3):
        answer = await place.client.get_records(ShardIterator=token, Limit=2)
        pages.append([record["Data"] for record in answer["Records"]])
        token = answer["NextShardIterator"]
    assert pages == [[b"a", b"b"], [b"c"], []]


@pytest.mark.parametrize("kind", ["AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"])
async def test_sequence_number_plus_one_is_refused(place: Place, kind: str) -> None:
    """There is no "next" position."""
    (number,) = await place.put(b"a")
    code = await refusal(place.iterator(FIRST, kind, StartingSequenceNumber=str(int(number) + 1)))
    assert code == place.expect("unknown sequence", "InvalidArgumentException")


async def test_unknown_iterator_is_refused(place: Place) -> None:
    """With a code that says what it is, on AWS."""
    code = await refusal(place.client.get_records(ShardIterator=GARBAGE))
    assert code == place.expect("unknown iterator", "InvalidArgumentException")


async def test_unknown_stream_and_shard_are_not_found(place: Place) -> None:
    """One code for both."""
    with pytest.raises(place.client.exceptions.ResourceNotFoundException):
        await place.client.describe_stream_summary(StreamName="none-of-that-name")
    code = await refusal(place.iterator("shardId-000000000009"))
    assert code == "ResourceNotFoundException"


async def test_stream_that_exists_is_not_made_again(place: Place) -> None:
    """It is in use."""
    with pytest.raises(place.client.exceptions.ResourceInUseException):
        await place.client.create_stream(StreamName=place.stream, ShardCount=1)


async def test_children_of_a_split_name_their_parent(place: Place) -> None:
    """And lie side by side in its hash range; the parent has an end now."""
    children = await place.server.split(place.stream, FIRST)
    shards = {shard["ShardId"]: shard for shard in await place.server.shards(place.stream)}
    assert children == ["shardId-000000000002", "shardId-000000000003"]
    assert [shards[child]["ParentShardId"] for child in children] == [FIRST] * 2
    assert all("AdjacentParentShardId" not in shards[child] for child in children)
    (first, low), (high, last) = (hash_keys(shards[child]) for child in children)
    assert (first, last) == hash_keys(shards[FIRST])
    assert low + 1 == high
    assert "EndingSequenceNumber" in shards[FIRST]["SequenceNumberRange"]


async def test_child_of_a_merge_names_both_parents(place: Place) -> None:
    """The second of the request is the adjacent one."""
    child = await place.server.merge(place.stream, FIRST, SECOND)
    shards = {shard["ShardId"]: shard for shard in await place.server.shards(place.stream)}
    parents = shards[child]["ParentShardId"], shards[child]["AdjacentParentShardId"]
    assert parents == (FIRST, SECOND)


async def test_records_of_a_child_are_above_its_parents(place: Place) -> None:
    """Compared as numbers."""
    (before,) = await place.put(b"a")
    child = (await place.server.split(place.stream, FIRST))[0]
    (after,) = await place.put(b"b", shard=child)
    assert int(before) < int(after)


async def test_closed_shard_ends_without_a_next_iterator(place: Place) -> None:
    """With its last records, or one empty answer later; the key is missing then."""
    await place.put(b"a")
    await place.server.split(place.stream, FIRST)
    answer = await place.client.get_records(ShardIterator=await place.iterator(FIRST))
    assert [record["Data"] for record in answer["Records"]] == [b"a"]
    is_null = answer.get("NextShardIterator") is None
    assert is_null is place.expect("null with last records", as_on_aws=True)
    if not is_null:
        answer = await place.client.get_records(ShardIterator=answer["NextShardIterator"])
        assert (answer["Records"], answer.get("NextShardIterator")) == ([], None)
    has_children = [child["ShardId"] for child in answer.get("ChildShards", ())] != []
    assert has_children is place.expect("children are named", as_on_aws=True)


async def test_closed_shard_without_records_ends_too(place: Place) -> None:
    """At the first call, but on kinesalite."""
    await place.server.split(place.stream, FIRST)
    answer = await place.client.get_records(ShardIterator=await place.iterator(FIRST))
    has_next = answer.get("NextShardIterator") is not None
    assert answer["Records"] == []
    assert has_next is place.expect("next of a closed and empty shard", as_on_aws=False)


async def test_closed_shard_cannot_be_split_again(place: Place) -> None:
    """It has children already."""
    await place.server.split(place.stream, FIRST)
    again = place.client.split_shard(
        StreamName=place.stream, ShardToSplit=FIRST, NewStartingHashKey=str(2**126)
    )
    expected = place.expect("split of a closed shard", "ResourceInUseException")
    assert await refusal(again) == expected


async def test_shards_are_listed_in_pages(place: Place) -> None:
    """The token stands for the stream too."""
    await place.server.split(place.stream, FIRST)
    answer = await place.client.list_shards(StreamName=place.stream, MaxResults=3)
    sizes = [len(answer["Shards"])]
    while token := answer.get("NextToken"):
        answer = await place.client.list_shards(NextToken=token, MaxResults=3)
        sizes.append(len(answer["Shards"]))
    assert sizes == place.expect("pages of shards", [3, 1])


async def test_deleted_stream_is_gone(place: Place) -> None:
    """And its name is free again."""
    stream = f"{place.stream}-2"
    await place.server.create_stream(stream)
    await place.client.delete_stream(StreamName=stream)
    with pytest.raises(place.client.exceptions.ResourceNotFoundException):
        while True:  # DELETING for a moment
            await place.client.describe_stream_summary(StreamName=stream)
    await place.server.create_stream(stream)
