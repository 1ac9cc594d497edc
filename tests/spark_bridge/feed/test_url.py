"""Feed URLs."""

from __future__ import annotations

import pytest

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.feed.url import FeedUrl


def test_a_whole_url_is_read() -> None:
    """Directory (percent-decoded) and options come out."""
    url = FeedUrl.parse("feed:///data/a%20b?maxRowsPerTrigger=10&tasks=3")
    assert url == FeedUrl("/data/a b", max_rows=10, tasks=3)


def test_a_least_is_read_with_its_delay() -> None:
    """In Spark's way of writing durations."""
    url = FeedUrl.parse("feed:///d?minRowsPerTrigger=10&maxTriggerDelay=30s&maxRowsPerTrigger=20")
    assert url == FeedUrl("/d", min_rows=10, max_delay=30.0, max_rows=20)
    assert FeedUrl.parse("feed:///d?minRowsPerTrigger=10").max_delay == 900.0


def test_a_reader_that_lets_go_is_read() -> None:
    """A name and what it is for go together."""
    url = FeedUrl.parse("feed:///d?retention=committed&reader=delays&asyncProgress=true")
    assert url == FeedUrl("/d", reader="delays", is_async=True)
    assert FeedUrl.parse("feed:///d?retention=keep") == FeedUrl("/d")


def test_a_bucket_is_read() -> None:
    """Other file systems have a name of fsspec's, and what comes after it is theirs."""
    url = FeedUrl.parse("feed+s3://bucket/a/orders?maxBytesPerTrigger=7")
    assert url == FeedUrl("bucket/a/orders", max_bytes=7, protocol="s3")


@pytest.mark.parametrize(
    "url, complaint",
    [
        ("kafka://broker/orders", "'kafka' is not one"),
        ("/data/landing", "'no scheme' is not one"),
        ("feed://data/landing", "absolute directory after three slashes"),
        ("feed:data", "absolute directory"),
        ("feed:///", "absolute directory"),
        ("feed://[h/landing", "Invalid IPv6 URL; for example"),
        ("feed:///d?maxRows=1", "'maxRows' is unknown; options are maxRowsPerTrigger"),
        ("feed+s3://", "bucket and a directory"),
        ("feed+s3:///?tasks=1", "bucket and a directory"),
        ("feed:///d?retention=committed", "go together"),
        ("feed:///d?reader=a", "go together"),
        ("feed:///d?retention=forever", "one of keep, committed"),
        ("feed:///d?retention=committed&reader=../a", "up to 64 letters"),
        ("feed:///d?asyncProgress=true", "without retention"),
        ("feed:///d?tasks=1&tasks=2", "given twice"),
        ("feed:///d?maxTriggerDelay=1s", "without minRowsPerTrigger"),
        ("feed:///d?minRowsPerTrigger=1&maxTriggerDelay=soon", "a number and one of"),
        ("feed:///d?minRowsPerTrigger=0", "integer of at least 1"),
        ("feed:///d?minRowsPerTrigger=" + "9" * 5_000, "integer of at least 1"),
        ("feed:///d?minRowsPerTrigger=1&maxTriggerDelay=" + "9" * 5_000, "a number and one of"),
        ("feed:///d?minRowsPerTrigger=10&maxRowsPerTrigger=9", "more than maxRowsPerTrigger"),
        ("feed:///d?tasks=0", "integer of at least 1"),
        ("feed:///d?tasks=-1", "integer of at least 1"),
        ("feed:///d?tasks=", "integer of at least 1"),
        ("feed:///d?maxRowsPerTrigger=1&maxBytesPerTrigger=1", "not both"),
    ],
)
def test_a_wrong_url_says_what_to_do(url: str, complaint: str) -> None:
    """Every mistake in a URL is a ConfigurationError that names it."""
    with pytest.raises(ConfigurationError, match=complaint):
        FeedUrl.parse(url)
