"""``kinesis://region/stream?group=g&option=value``."""

from __future__ import annotations

from typing import Any

import pytest

from consumer_sdk.adapters.kinesis import KinesisAdapter, Limits
from consumer_sdk.adapters.kinesis.options import parse_url
from consumer_sdk.errors import ConfigurationError

ARN = "arn:aws:kinesis:eu-central-1:123456789012:stream/orders"


@pytest.mark.parametrize(
    "url,stream,region",
    [
        ("kinesis://eu-central-1/orders", "orders", "eu-central-1"),
        ("kinesis:///orders", "orders", None),
        (f"kinesis:///{ARN}", ARN, None),
        ("kinesis://eu-central-1/a%2Eb", "a.b", "eu-central-1"),
        ("kinesis://eu-central-1/orders,clicks", "orders,clicks", "eu-central-1"),
        (f"kinesis:///{ARN},clicks", f"{ARN},clicks", None),
    ],
)
def test_url_names_region_and_stream(url: str, stream: str, region: Any) -> None:
    """The region may be left to the AWS tools' own configuration."""
    assert parse_url(url) == (stream.split(","), {"region_name": region})


def test_options_have_their_types() -> None:
    """Text, seconds, numbers and truth values."""
    _, options = parse_url(
        "kinesis://r/s?group=g&fan_out=c&lease_duration=2.5&buffer_bytes=1000&connections=7"
        "&fast_decode=no&max_shards=3&weight=2&endpoint_url=http://127.0.0.1:4567&aws_access_key_id=a"
    )
    assert options == {
        "region_name": "r",
        "group": "g",
        "fan_out": "c",
        "lease_duration": 2.5,
        "max_shards": 3,
        "weight": 2,
        "buffer_bytes": 1000,
        "connections": 7,
        "fast_decode": False,
        "endpoint_url": "http://127.0.0.1:4567",
        "aws_access_key_id": "a",
    }


@pytest.mark.parametrize(
    "text,value",
    [("false", False), ("0", False), ("TRUE", True), ("/etc/ca.pem", "/etc/ca.pem")],
)
def test_verify_is_a_truth_value_or_a_file(text: str, value: Any) -> None:
    """``verify=false`` does not mean a file of that name."""
    _, options = parse_url(f"kinesis://r/s?verify={text}")
    assert options["verify"] == value


@pytest.mark.parametrize(
    "url",
    [
        "kinesis://",
        "kinesis://eu-central-1",
        "kinesis://eu-central-1/",
        "kafka://a/s",
        "kinesis://key:secret@r/s",
        "kinesis://[r/s",
        "kinesis://r/s?group=a&group=b",
        "kinesis://r/s?region_name=x",
        "kinesis://r/s?nothing=1",
        "kinesis://r/s?limits=1",
        "kinesis://r/s?limits=calls:0",
        "kinesis://r/s?limits=calls:2,words:3",
        "kinesis://r/s?limits=calls:2,bytes:nan",
        "kinesis://r/s?lease_duration=x",
        "kinesis://r/s?lease_duration=nan",
        "kinesis://r/s?buffer_bytes=1.5",
        "kinesis://r/s?fast_decode=perhaps",
        "kinesis://r/s?group=",
    ],
)
def test_url_that_cannot_work_is_refused(url: str) -> None:
    """When it is opened, and with an error of ours."""
    with pytest.raises(ConfigurationError):
        KinesisAdapter.from_url(url)


def test_refusal_tells_no_secret() -> None:
    """A URL ends up in logs."""
    secret = "TOPSECRET"  # noqa: S105 - of nothing
    for url in (
        f"kinesis://r?aws_secret_access_key={secret}",
        f"kinesis://key:{secret}@r/s",
        f"kinesis://r/s?aws_secret_access_key={secret}&aws_secret_access_key={secret}",
    ):
        with pytest.raises(ConfigurationError) as error:
            parse_url(url)
        assert secret not in str(error.value)


@pytest.mark.parametrize(
    "text,limits",
    [
        ("calls:2,bytes:1048576", Limits(calls=2, bytes=1048576.0)),
        ("calls:2", Limits(calls=2)),
        ("bytes:5e5", Limits(bytes=500_000.0)),
    ],
)
def test_limits_and_the_pause_between_polls_may_be_in_the_url(text: str, limits: Limits) -> None:
    """For groups that are to leave the others room."""
    _, options = parse_url(f"kinesis://r/s?limits={text}&poll_interval=5")
    assert (options["limits"], options["poll_interval"]) == (limits, 5.0)
