"""What an adapter may be configured with."""

from __future__ import annotations

import math
from typing import Any

import pytest

from consumer_sdk.adapters.kinesis import KinesisAdapter, Limits
from consumer_sdk.adapters.kinesis.options import KinesisOptions
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.options import SECONDS, kinds_of

ARN = "arn:aws:kinesis:eu-central-1:123456789012:stream/orders"


@pytest.mark.parametrize("stream", ["", ARN.removesuffix("orders")])
def test_stream_without_a_name_is_refused(stream: str) -> None:
    """The message says what it may be."""
    with pytest.raises(ConfigurationError, match="give the name or the ARN of a stream"):
        KinesisAdapter(stream)


@pytest.mark.parametrize("streams", [("a", "b"), (["a", "b"],), (("a", "b"),)])
def test_streams_are_given_one_by_one_or_in_a_sequence(streams: Any) -> None:
    """As topics of Kafka are."""
    assert repr(KinesisAdapter(*streams, group="g")) == "KinesisAdapter('a', 'b', group='g')"


@pytest.mark.parametrize(
    "streams, words",
    [
        (("orders", ARN), "orders: two streams of one name"),
        (("a", "a"), "a: two streams of one name"),
        (("a", "b c"), "give the name or the ARN of a stream"),
        ((["a"], "b"), "give the name or the ARN of a stream"),
        (([],), "or several"),
    ],
)
def test_streams_that_cannot_be_read_together_are_refused(streams: Any, words: str) -> None:
    """Two of one name would share checkpoints and leases."""
    with pytest.raises(ConfigurationError, match=words):
        KinesisAdapter(*streams, group="g")


def test_region_is_that_of_each_stream() -> None:
    """An ARN names its own; dead letters have to, where there are two."""
    other = ARN.replace("eu-central-1", "us-east-1").replace("orders", "clicks")
    KinesisAdapter(ARN, other, dead_letter_stream=ARN)
    with pytest.raises(ConfigurationError, match="of several regions: give its ARN"):
        KinesisAdapter(ARN, other, dead_letter_stream="dead")
    with pytest.raises(ConfigurationError, match=r"region_name='us-east-1'.*eu-central-1"):
        KinesisAdapter("clicks", ARN, region_name="us-east-1")


@pytest.mark.parametrize(
    "name", [name for name, wanted in kinds_of(KinesisOptions).items() if wanted is SECONDS]
)
@pytest.mark.parametrize("value", [0, -1, math.inf, math.nan, True, "1", None])
def test_seconds_that_are_none_are_refused(name: str, value: Any) -> None:
    """With the name of the option."""
    with pytest.raises(ConfigurationError, match=f"{name}=.*: give seconds, above 0"):
        KinesisAdapter("s", **{name: value})


@pytest.mark.parametrize("options", [{"group": ""}, {"group": " "}, {"fan_out": ""}])
def test_blank_names_are_refused(options: Any) -> None:
    """An environment variable that is empty would be another group."""
    with pytest.raises(ConfigurationError, match="give a name, or None"):
        KinesisAdapter("s", **options)


def test_buffer_without_room_is_refused() -> None:
    """Nothing could ever be read."""
    with pytest.raises(ConfigurationError, match="buffer_bytes=0"):
        KinesisAdapter("s", buffer_bytes=0)


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "2"])
def test_maximum_of_shards_that_is_none_is_refused(value: Any) -> None:
    """None is the even share."""
    with pytest.raises(ConfigurationError, match="max_shards="):
        KinesisAdapter("s", group="g", max_shards=value)


def test_maximum_of_shards_needs_a_group() -> None:
    """Alone there is nobody who would read the others."""
    with pytest.raises(ConfigurationError, match="max_shards=2 without a group"):
        KinesisAdapter("s", max_shards=2)
    with pytest.raises(ConfigurationError, match="weight=2 without a group"):
        KinesisAdapter("s", weight=2)
    with pytest.raises(ConfigurationError, match="weight="):
        KinesisAdapter("s", group="g", weight=0)


def test_unknown_option_is_refused_with_the_one_that_was_meant() -> None:
    """A typing mistake shows at once."""
    with pytest.raises(ConfigurationError, match=r"did you mean endpoint_url=\?"):
        KinesisAdapter("s", endpoint="http://127.0.0.1:1")
    with pytest.raises(ConfigurationError, match=r"there are aws_access_key_id, .*region_name"):
        KinesisAdapter("s", zzz=1)


def test_capabilities_follow_from_the_group() -> None:
    """Leases are for groups; the end of a shard is told to either."""
    alone, grouped = KinesisAdapter("s"), KinesisAdapter("s", group="g")
    assert (alone.capabilities.needs_leases, grouped.capabilities.needs_leases) == (False, True)
    for adapter in (alone, grouped):
        has = adapter.capabilities
        assert (has.wants_ends, has.commits, has.knows_ends) == (True, False, False)
        assert has.lag_unit == "milliseconds"


def test_limits_are_those_of_aws_unless_given() -> None:
    """Five calls and 2 MiB a second."""
    assert Limits() == Limits(calls=5, bytes=2_097_152)
