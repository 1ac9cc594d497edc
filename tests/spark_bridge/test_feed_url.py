"""Feed URLs."""

from __future__ import annotations

import pytest

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.feed_url import FeedUrl


def test_a_whole_url_is_read() -> None:
    """Directory (percent-decoded) and options come out."""
    url = FeedUrl.parse("feed:///data/a%20b?maxRowsPerTrigger=10&tasks=3")
    assert url == FeedUrl("/data/a b", max_rows=10, tasks=3)


@pytest.mark.parametrize(
    "url, complaint",
    [
        ("kafka://broker/orders", "'kafka' is not one"),
        ("/data/landing", "'no scheme' is not one"),
        ("feed://data/landing", "absolute directory after three slashes"),
        ("feed:data", "absolute directory"),
        ("feed:///", "absolute directory"),
        ("feed:///d?maxRows=1", "'maxRows' is unknown; options are maxRowsPerTrigger"),
        ("feed:///d?tasks=1&tasks=2", "given twice"),
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
