"""Pulsar adapters from URLs."""

from __future__ import annotations

import pytest

from consumer_sdk.adapters import open_url
from consumer_sdk.adapters.pulsar import PulsarAdapter
from consumer_sdk.errors import ConfigurationError


def test_url_gives_servers_topics_subscription_and_options() -> None:
    """Values take the type that the option has."""
    adapter = PulsarAdapter.from_url(
        "pulsar://a:6650,b:6650/orders,acme%2Fshop%2Freturns?subscription=billing&type=shared"
        "&receiver_queue=50&busy_timeout=2.5&persist_time=90&retry_topic=yes&retry_limit=3&operation_timeout=5"
        "&admin_url=http://a:8080&admin_token=t&token=a%2Bb&tls_validate_hostname=no"
    )
    options = adapter._options
    assert options.topics == ("orders", "acme/shop/returns")
    assert options.connection.service_url == "pulsar://a:6650,b:6650"
    assert (adapter.group, options.type, options.receiver_queue) == ("billing", "shared", 50)
    assert (options.busy_timeout, options.retry_limit, options.retry_topic) == (2.5, 3, True)
    assert options.persist_time == 90.0
    assert (options.admin_url, options.admin_token) == ("http://a:8080", "t")
    assert (options.connection.token, options.connection.operation_timeout) == ("a+b", 5.0)
    assert not options.connection.tls_validate_hostname


def test_url_with_tls_is_the_clients_own_form() -> None:
    """``pulsar+ssl://`` is opened by the scheme, too."""
    adapter = open_url("pulsar+ssl://h:6651/t?subscription=s")
    assert isinstance(adapter, PulsarAdapter)
    assert adapter._options.connection.service_url == "pulsar+ssl://h:6651"


def test_url_with_a_pattern_names_no_topic() -> None:
    """The pattern takes the topics' place."""
    adapter = PulsarAdapter.from_url(
        "pulsar://h:6650/?subscription=s&pattern=orders-.%2A&admin_url=http://h:8080"
    )
    assert (adapter._options.topics, adapter._options.pattern) == ((), "orders-.*")


@pytest.mark.parametrize(
    "url, message",
    [
        ("pulsar://h:1/t", "subscription= is missing"),
        ("pulsar://h:1/?subscription=s", "give topics, or pattern="),
        ("pulsar:///t?subscription=s", "write pulsar://host:port"),
        ("pulsar://me:pw@h:1/t?subscription=s", "write pulsar://host:port"),
        ("pulsar://h:1/t?subscription=s&subscription=r", "given twice"),
        ("pulsar://h:1/t?subscription=s&receiver_queue=many", "give a whole number"),
        ("pulsar://h:1/t?subscription=s&busy_timeout=soon", "give seconds"),
        ("pulsar://h:1/t?subscription=s&cumulative_acks=perhaps", "cumulative_acks='perhaps'"),
        ("pulsar://h:1/t?subscription=s&subscripton=r", "unknown option subscripton="),
        ("pulsar://h:1/t?subscription=s&service_url=pulsar://g:1", "before the topic"),
        ("pulsar://h:1/t?subscription=s&type=both", "give 'exclusive'"),
        ("pulsar://h:1/t?subscription=s&start=latest", "unknown option start="),
    ],
)
def test_wrong_url_is_an_error_that_says_why(url: str, message: str) -> None:
    """Found when the URL is read."""
    with pytest.raises(ConfigurationError, match=message):
        PulsarAdapter.from_url(url)


def test_token_in_a_wrong_url_is_not_repeated() -> None:
    """Errors end up in logs."""
    with pytest.raises(ConfigurationError) as caught:
        PulsarAdapter.from_url("pulsar://me:pw@h:1/t?subscription=s&token=secret")
    assert "pw" not in str(caught.value)
    assert "secret" not in str(caught.value)
