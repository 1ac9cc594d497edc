"""Claims about the pages of ListShards."""

import pytest

from consumer_sdk.testing.kinesis import FakeKinesis, RefusedError
from consumer_sdk.testing.kinesis.operations import list_shards
from tests.testing.kinesis.clock import EPOCH, HandClock


def numbers(answer: dict[str, list[dict[str, str]]]) -> list[int]:
    """The numbers of the listed shards."""
    return [int(shard["ShardId"][-3:]) for shard in answer["Shards"]]


def test_token_expires_after_five_minutes(kinesis: FakeKinesis, clock: HandClock) -> None:
    """The listing has to begin anew then."""
    token = list_shards(kinesis, {"MaxResults": 1}, "orders")["NextToken"]
    clock.now = 300
    assert numbers(list_shards(kinesis, {"NextToken": token}, None)) == [1]
    clock.now = 301
    with pytest.raises(RefusedError, match="ExpiredNextTokenException"):
        list_shards(kinesis, {"NextToken": token}, None)


def test_token_keeps_the_filter(kinesis: FakeKinesis) -> None:
    """A request with a token says neither stream nor filter."""
    kinesis.split("orders", "shardId-000000000000")
    body = {"ShardFilter": {"Type": "AT_LATEST"}, "MaxResults": 1}
    answer = list_shards(kinesis, body, "orders")
    found = numbers(answer)
    while token := answer.get("NextToken"):
        answer = list_shards(kinesis, {"NextToken": token, "MaxResults": 1}, None)
        found += numbers(answer)
    assert found == [1, 2, 3]


@pytest.mark.parametrize(
    "kind,time,expected",
    [
        ("AT_TIMESTAMP", 5, [0, 1]),
        ("AT_TIMESTAMP", 15, [1, 2, 3]),
        ("FROM_TIMESTAMP", 5, [0, 1, 2, 3]),
        ("FROM_TIMESTAMP", 15, [1, 2, 3]),
    ],
)
def test_listing_of_a_time_has_what_was_open_then(
    kinesis: FakeKinesis, clock: HandClock, kind: str, time: int, expected: list[int]
) -> None:
    """AT it, or FROM it on; the first shard was split after ten seconds."""
    clock.now = 10
    kinesis.split("orders", "shardId-000000000000")
    body = {"ShardFilter": {"Type": kind, "Timestamp": EPOCH + time}}
    assert numbers(list_shards(kinesis, body, "orders")) == expected


def test_made_up_token_is_refused(kinesis: FakeKinesis) -> None:
    """It is the argument that is wrong."""
    with pytest.raises(RefusedError, match="InvalidArgumentException"):
        list_shards(kinesis, {"NextToken": "bm8gdG9rZW4="}, None)
