"""What requests are made of."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from consumer_sdk.adapters.kinesis.service.requests import (
    address,
    faults_of,
    next_token,
    place,
    read_consumer,
    read_facts,
    read_shard,
    required,
    words,
)
from consumer_sdk.adapters.kinesis.service.service import (
    FanOutConsumer,
    IteratorStart,
    Shard,
    StreamFacts,
)
from consumer_sdk.errors import ConfigurationError, TransientAdapterError

ARN = "arn:aws-cn:kinesis:cn-north-1:123456789012:stream/Orders_1.a-b"


def test_a_stream_is_named_by_its_name_or_its_arn() -> None:
    """An ARN names a region too."""
    assert address("Orders_1.a-b") == (None, {"StreamName": "Orders_1.a-b"})
    assert address(ARN) == ("cn-north-1", {"StreamARN": ARN})


@pytest.mark.parametrize(
    "stream",
    ["", "a b", "ü", "a" * 129, "orders\n", "arn:aws:sqs:eu-west-1:1:orders", ARN + "/x", 42, None],
)
def test_what_is_no_name_is_refused(stream: Any) -> None:
    """Before anybody is asked."""
    with pytest.raises(ConfigurationError, match="give the name"):
        address(stream)


def test_a_start_has_a_sequence_number_or_a_time_or_neither() -> None:
    """A sequence number of 0 is one."""
    assert place(IteratorStart("AT_SEQUENCE_NUMBER", 0), "Here") == {"Here": "0"}
    noon = datetime(2023, 11, 14, 12, tzinfo=UTC)
    assert place(IteratorStart("AT_TIMESTAMP", time=noon.timestamp()), "") == {"Timestamp": noon}
    assert place(IteratorStart("TRIM_HORIZON"), "") == {}
    assert faults_of(IteratorStart("AT_SEQUENCE_NUMBER", 0))
    assert not faults_of(IteratorStart("AT_TIMESTAMP", time=0.0))


def test_messages_say_where_a_start_is() -> None:
    """With its number, where it has one."""
    assert words(IteratorStart("TRIM_HORIZON")) == "TRIM_HORIZON"
    assert words(IteratorStart("AT_SEQUENCE_NUMBER", 17)) == "AT_SEQUENCE_NUMBER 17"
    assert words(IteratorStart("AT_SEQUENCE_NUMBER", 0)) == "AT_SEQUENCE_NUMBER 0"
    assert words(IteratorStart("AT_TIMESTAMP", time=1.5)) == "AT_TIMESTAMP 1.5"


NOON = datetime(2023, 11, 14, 12, tzinfo=UTC)
CONSUMER = {
    "ConsumerName": "billing",
    "ConsumerStatus": "ACTIVE",
    "ConsumerCreationTimestamp": NOON,
}


def test_registered_consumer_says_since_when_it_is() -> None:
    """For people; a clock without a zone says none."""
    registered = "registered 2023-11-14 12:00:00"
    assert read_consumer(CONSUMER) == FanOutConsumer("billing", "ACTIVE", f"{registered} UTC")
    naive = CONSUMER | {"ConsumerCreationTimestamp": NOON.replace(tzinfo=None)}
    assert read_consumer(naive) == FanOutConsumer("billing", "ACTIVE", registered)


def test_stream_is_known_by_its_arn_and_when_it_was_made() -> None:
    """A stream of the same name that is made again is another one."""
    found = {"StreamARN": ARN, "StreamCreationTimestamp": NOON}
    assert read_facts(found) == StreamFacts(ARN, NOON.timestamp())


@pytest.mark.parametrize(
    "found, shard",
    [
        ({}, Shard("s-1", (), is_closed=False)),
        ({"ParentShardId": "s-0"}, Shard("s-1", ("s-0",), is_closed=False)),
        (
            {"ParentShardId": "s-0", "AdjacentParentShardId": "s-9"},
            Shard("s-1", ("s-0", "s-9"), is_closed=False),
        ),
        (
            {"SequenceNumberRange": {"StartingSequenceNumber": "1"}},
            Shard("s-1", (), is_closed=False),
        ),
        ({"SequenceNumberRange": {"EndingSequenceNumber": "9"}}, Shard("s-1", (), is_closed=True)),
        ({"SequenceNumberRange": None}, Shard("s-1", (), is_closed=False)),
    ],
)
def test_shard_is_closed_where_it_has_a_last_record(found: dict[str, Any], shard: Shard) -> None:
    """And has up to two parents."""
    assert read_shard({"ShardId": "s-1"} | found) == shard


@pytest.mark.parametrize("name", ["", None, 7])
def test_what_stands_for_a_name_and_is_none_is_an_error(name: object) -> None:
    """The caller says that the answer cannot be read."""
    for call in (
        lambda: read_shard({"ShardId": name}),
        lambda: read_consumer(CONSUMER | {"ConsumerName": name}),
        lambda: read_facts({"StreamARN": name, "StreamCreationTimestamp": NOON}),
    ):
        with pytest.raises(ValueError, match="where a name should be"):
            call()


def test_field_that_is_missing_or_of_another_kind_may_be_there_the_next_time() -> None:
    """Some proxy may have answered; no token is the end of a list."""
    assert required({"a": "x"}, "a", str, "asking") == "x"
    assert required({"a": 0}, "a", int, "asking") == 0
    for answer in ({}, {"a": ""}, {"a": 7}):
        with pytest.raises(TransientAdapterError, match=r"^asking: the answer has .* for a$"):
            required(answer, "a", str, "asking")
    assert next_token({"NextToken": "t"}, "listing") == "t"
    for last in ({}, {"NextToken": None}, {"NextToken": ""}):
        assert next_token(last, "listing") is None
    with pytest.raises(TransientAdapterError, match=r"^listing: the answer has 7 for NextToken"):
        next_token({"NextToken": 7}, "listing")
