"""Range readers from URLs."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from consumer_sdk.adapters.kafka.ranges import KafkaRanges
from consumer_sdk.errors import ConfigurationError


def test_url_names_servers_topics_and_options() -> None:
    """Each option has the type of its default."""
    reader = KafkaRanges.from_url(
        "kafka://a:1,b:2/orders,a%2Db?group=g&read_timeout=5&require_topics=no"
        "&retry_backoff_ms=7&isolation_level=read_uncommitted"
    )
    options = reader._options
    assert (options.servers, options.topics) == (["a:1", "b:2"], ["orders", "a-b"])
    assert (options.group, options.read_timeout, options.level) == ("g", 5.0, 0)
    assert options.require_topics is False
    assert options.client_options == {"retry_backoff_ms": 7}


def test_url_may_choose_by_pattern_or_partitions() -> None:
    """As Spark's subscribePattern and assign do."""
    by_pattern = KafkaRanges.from_url(f"kafka://a:1/?pattern={quote('o.*')}")
    assert by_pattern._options.pattern == "o.*"
    chosen = KafkaRanges.from_url("kafka://a:1?partitions=" + quote('{"a": [0, 1]}'))
    assert chosen._options.partitions == {"a": [0, 1]}


@pytest.mark.parametrize(
    "url,message",
    [
        ("kafka://a:1", "topics are missing"),
        ("kafka:///t", "servers are missing"),
        ("kafka://u:p@a:1/t", "write kafka://"),
        ("kafka://a:1/t?topics=b", "unknown option topics="),
        ("kafka://a:1/t?read_timeout=long", "give seconds"),
        ("kafka://a:1/t?retry_backoff_ms=long", "give milliseconds"),
        ("kafka://a:1?partitions=0-3", "give topics and their"),
        ("kafka://a:1?partitions=[0]", "give topics and their"),
        ("kafka://a:1/t?grupp=g", "did you mean group="),
    ],
)
def test_url_that_cannot_work_is_refused(url: str, message: str) -> None:
    """The error says what is wrong."""
    with pytest.raises(ConfigurationError, match=message):
        KafkaRanges.from_url(url)
