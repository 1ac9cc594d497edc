"""The page on Spark names what there is: every option, every column, every function."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from consumer_sdk import spark_bridge
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.columns import COLUMNS
from consumer_sdk.spark_bridge.feed.url import FeedUrl
from consumer_sdk.spark_bridge.pull.options.options import PullOptions
from consumer_sdk.spark_bridge.sink.options import OURS

PAGE = (Path(__file__).parent.parent / "docs" / "spark.md").read_text(encoding="utf-8")
WORDS = set(re.findall(r"\w+", PAGE))


def named_in(error: ConfigurationError, before: str) -> set[str]:
    """The options that an error lists."""
    _, _, rest = str(error).partition(before)
    return set(re.findall(r"\w+", rest))


def test_every_option_of_pull_is_on_the_page() -> None:
    """An option that is added needs a row."""
    with pytest.raises(ConfigurationError) as found:
        PullOptions.parse({"zzzzzzzz": "1"})
    options = named_in(found.value, "there are ")
    assert {"url", "ackMode", "minPartitions"} <= options
    assert options - WORDS == set()


def test_every_option_of_the_sink_is_on_the_page() -> None:
    """An option that is added needs a row."""
    assert set(OURS) - WORDS == set()


def test_every_option_of_a_feed_is_on_the_page() -> None:
    """An option that is added needs a row."""
    with pytest.raises(ConfigurationError) as found:
        FeedUrl.parse("feed:///d?zzzzzzzz=1")
    options = named_in(found.value, "options are ")
    assert {"reader", "tasks"} <= options
    assert options - WORDS == set()


def test_every_column_and_function_is_on_the_page() -> None:
    """Nobody finds what is named nowhere."""
    functions = {name for name in spark_bridge.__all__ if name.islower()}
    assert "watch" in functions
    assert (COLUMNS.keys() | functions) - WORDS == set()
