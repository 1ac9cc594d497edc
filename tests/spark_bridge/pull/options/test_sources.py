"""URLs that Spark reads from."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

import pytest

from consumer_sdk.adapters.kafka.ranges import KafkaRanges
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.pull.options.sources import UrlSource


def test_a_url_says_what_is_read() -> None:
    """Broker and group; its options are not shown."""
    source = UrlSource.parse("kafka://h:9092/orders?group=etl&sasl_plain_password=pw", None)
    assert (source.broker, source.group, source.shown) == ("kafka", "etl", "kafka://h:9092/orders")
    assert "pw" not in repr(source)


@pytest.mark.parametrize(
    "url, whole",
    [
        ("kafka://h/t", "kafka://h/t?group=etl"),
        ("kafka://h/t?group=etl", "kafka://h/t?group=etl"),
        ("pulsar://h/t", "pulsar://h/t?subscription=etl"),
        ("pulsar+ssl://h/t", "pulsar+ssl://h/t?subscription=etl"),
    ],
)
def test_the_option_group_goes_into_the_url(url: str, whole: str) -> None:
    """By the name that it has there."""
    source = UrlSource.parse(url, "etl")
    assert (source.url, source.group) == (whole, "etl")


def test_tasks_have_no_group_and_ask_for_no_other_topic() -> None:
    """They read ranges, and nothing else."""
    kafka = UrlSource.parse("kafka://h/t?group=etl", None).for_tasks()
    assert (kafka.url, kafka.group) == ("kafka://h/t?require_topics=false", None)
    pulsar = UrlSource.parse("pulsar://h/t?subscription=s&token=env:T", None).for_tasks()
    assert (pulsar.url, pulsar.group) == ("pulsar://h/t?token=env%3AT", None)


@pytest.mark.parametrize(
    "url, complaint",
    [
        ("kafka://h/t?group=other", "group='etl', but the URL has group='other'"),
        ("pulsar://h/t?subscription=s", "the URL has subscription='s'"),
        ("kinesis://eu-west-1/orders", "SparkFeed"),
        ("orders", "give kafka://host:port"),
        ("http://h/t", "give kafka://host:port"),
        ("kafka://user:pw@h/t", "h/t': credentials .* give kafka://"),
        ("kafka://h/t?group=a&group=b", "given twice"),
    ],
)
def test_a_wrong_url_says_what_to_do(url: str, complaint: str) -> None:
    """And shows no password."""
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        UrlSource.parse(url, "etl")
    assert "pw" not in str(caught.value)


def test_secrets_are_looked_up_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap 22: what travels holds the name; special characters survive."""
    source = UrlSource.parse("pulsar://h/t?token=env:PULL_TOKEN&admin_url=http://h:8080", None)
    assert "PULL_TOKEN" in source.url
    with pytest.raises(ConfigurationError, match="PULL_TOKEN"):
        source.resolved()
    monkeypatch.setenv("PULL_TOKEN", "a&b=c%2F")
    assert source.resolved() == (
        "pulsar://h/t?token=a%26b%3Dc%252F&admin_url=http%3A%2F%2Fh%3A8080"
    )


def test_other_options_name_no_secret() -> None:
    """``file:`` elsewhere is what it is."""
    url = "kafka://h/t?client_id=env%3AHOME"
    assert UrlSource.parse(url, None).resolved() == url


def test_a_reader_comes_out() -> None:
    """Made, not open: nothing listens there."""
    reader = UrlSource.parse("kafka://127.0.0.1:1/orders?group=etl", None).open_reader()
    assert isinstance(reader, KafkaRanges)
    assert reader.group == "etl"
    tasks = UrlSource.parse("kafka://127.0.0.1:1/orders?group=etl", None).for_tasks()
    assert tasks.open_reader().group is None


@pytest.mark.parametrize(
    "url, waits",
    [
        ("kafka://a:1/t?read_timeout=400", {"connect_timeout": "300.0", "read_timeout": "400.0"}),
        ("pulsar://a:1/t", {"stall_timeout": "300.0"}),
    ],
)
def test_tasks_wait_through_an_outage_that_was_allowed(url: str, waits: dict[str, str]) -> None:
    """And never less than the URL says."""
    source = UrlSource.parse(url, None)
    texts = dict(parse_qsl(urlsplit(source.for_tasks(300.0).url).query))
    assert {name: texts[name] for name in waits} == waits
    assert not waits.keys() & dict(parse_qsl(urlsplit(source.for_tasks().url).query)).keys() - {
        "read_timeout"
    }
