"""Kafka adapters from URLs."""

from __future__ import annotations

import pytest

from consumer_sdk.adapters.kafka import KafkaAdapter
from consumer_sdk.errors import ConfigurationError


def test_url_gives_servers_topics_group_and_options() -> None:
    """Values take the type that the option has."""
    adapter = KafkaAdapter.from_url(
        "kafka://a:9092,b:9093/orders,re%2Dturns?group=billing&session_timeout=6"
        "&check_crcs=false&fetch_max_bytes=1000&isolation_level=read_uncommitted"
    )
    options = adapter._options
    assert options.topics == ("orders", "re-turns")
    assert options.servers == ["a:9092", "b:9093"]
    assert adapter.group == "billing"
    assert options.session_timeout == 6.0
    assert options.client_options == {"check_crcs": False, "fetch_max_bytes": 1000}
    assert options.isolation_level == "read_uncommitted"


def test_url_may_have_a_pattern_in_the_place_of_topics() -> None:
    """A plus sign is written as %2B, as anywhere in a query."""
    adapter = KafkaAdapter.from_url("kafka://a:9092/?pattern=orders-.%2B&group=billing")
    assert adapter._options.pattern == "orders-.+"
    assert adapter._options.topics == ()
    assert "pattern='orders-.+'" in repr(adapter)


@pytest.mark.parametrize(
    "url, message",
    [
        ("kafka://a:1", "write kafka://host"),
        ("kafka://a:1/t?pattern=t.*", "beside the topics"),
        ("kafka://a:1/?pattern=%28", "is no regular expression"),
        ("kafka://a:1/t?group=g&protocol=new", "protocol='new' in the URL: give 'classic'"),
        ("kafka:///t", "write kafka://host"),
        ("kafka://me:pw@a:1/t", "write kafka://host"),
        ("kafka://a:1/t?group=g&group=h", "given twice"),
        ("kafka://a:1/t?fetch_max_bytes=many", "give a whole number"),
        ("kafka://a:1/t?session_timeout=soon", "give seconds"),
        ("kafka://a:1/t?check_crcs=perhaps", "in the URL"),
        ("kafka://a:1/t?grup=g", "did you mean group="),
        ("kafka://a:x/t", "give 'host:port'"),
        ("kafka://a:1/t?bootstrap_servers=b:2", "stand before the topic"),
    ],
)
def test_wrong_url_is_an_error_that_says_why(url: str, message: str) -> None:
    """Found when the URL is read."""
    with pytest.raises(ConfigurationError, match=message):
        KafkaAdapter.from_url(url)


def test_password_in_a_wrong_url_is_not_repeated() -> None:
    """Errors end up in logs."""
    with pytest.raises(ConfigurationError) as caught:
        KafkaAdapter.from_url("kafka://me:pw@a:1/t?sasl_plain_password=secret")
    assert "pw" not in str(caught.value)
    assert "secret" not in str(caught.value)
