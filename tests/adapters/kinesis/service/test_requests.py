"""What requests are made of."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from consumer_sdk.adapters.kinesis.service.requests import address, faults_of, place, words
from consumer_sdk.adapters.kinesis.service.service import IteratorStart
from consumer_sdk.errors import ConfigurationError

ARN = "arn:aws-cn:kinesis:cn-north-1:123456789012:stream/Orders_1.a-b"


def test_a_stream_is_named_by_its_name_or_its_arn() -> None:
    """An ARN names a region too."""
    assert address("Orders_1.a-b") == (None, {"StreamName": "Orders_1.a-b"})
    assert address(ARN) == ("cn-north-1", {"StreamARN": ARN})


@pytest.mark.parametrize(
    "stream", ["", "a b", "ü", "a" * 129, "orders\n", "arn:aws:sqs:eu-west-1:1:orders", ARN + "/x"]
)
def test_what_is_no_name_is_refused(stream: str) -> None:
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
