"""What an adapter may be configured with."""

from __future__ import annotations

import math
from typing import Any

import pytest

from consumer_sdk.adapters.kinesis import KinesisAdapter, Limits
from consumer_sdk.adapters.kinesis.options import SECONDS
from consumer_sdk.errors import ConfigurationError

ARN = "arn:aws:kinesis:eu-central-1:123456789012:stream/orders"


@pytest.mark.parametrize("stream", ["", ARN.removesuffix("orders")])
def test_stream_without_a_name_is_refused(stream: str) -> None:
    """The message says what it may be."""
    with pytest.raises(ConfigurationError, match="give the name or the ARN of a stream"):
        KinesisAdapter(stream)


@pytest.mark.parametrize("name", SECONDS)
@pytest.mark.parametrize("value", [0, -1, math.inf, math.nan, True, "1", None])
def test_seconds_that_are_none_are_refused(name: str, value: Any) -> None:
    """With the name of the option."""
    with pytest.raises(ConfigurationError, match=f"{name}=.*: give seconds, above 0"):
        KinesisAdapter("s", **{name: value})


@pytest.mark.parametrize("options", [{"group": ""}, {"group": " "}, {"fan_out": ""}])
def test_blank_names_are_refused(options: Any) -> None:
    """An environment variable that is empty would be another group."""
    with pytest.raises(ConfigurationError, match="give a name, or leave it out"):
        KinesisAdapter("s", **options)


def test_buffer_without_room_is_refused() -> None:
    """Nothing could ever be read."""
    with pytest.raises(ConfigurationError, match="buffer_bytes=0"):
        KinesisAdapter("s", buffer_bytes=0)


def test_unknown_option_is_refused_with_the_one_that_was_meant() -> None:
    """A typing mistake shows at once."""
    with pytest.raises(ConfigurationError, match=r"did you mean endpoint_url=\?"):
        KinesisAdapter("s", endpoint="http://127.0.0.1:1")
    with pytest.raises(ConfigurationError, match="there are region_name, endpoint_url"):
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
