"""Adapters from URLs, and what importing the package costs."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from consumer_sdk.adapters import open_url
from consumer_sdk.adapters.urls import (
    is_host,
    open_for_tools,
    open_ranges,
    open_writer,
    read_server_url,
    scheme_of,
    share_group_of,
    split_url,
)
from consumer_sdk.errors import ConfigurationError, MissingExtraError
from consumer_sdk.options import TEXT


def run_python(code: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_kafka_url_opens_a_kafka_adapter() -> None:
    """The scheme chooses."""
    adapter = open_url("kafka://a:9092/orders?group=g")
    assert (adapter.broker, adapter.group) == ("kafka", "g")


def test_kinesis_url_opens_a_kinesis_adapter() -> None:
    """The scheme chooses."""
    adapter = open_url("kinesis://eu-central-1/orders?group=g")
    assert (adapter.broker, adapter.group) == ("kinesis", "g")


def test_pulsar_url_opens_a_pulsar_adapter() -> None:
    """The scheme chooses; the group is the subscription."""
    adapter = open_url("pulsar://a:6650/orders?subscription=g")
    assert (adapter.broker, adapter.group) == ("pulsar", "g")


@pytest.mark.parametrize("url", ["nats://a/b", "orders", "", "kafka"])
def test_unknown_scheme_is_an_error_that_names_the_known_ones(url: str) -> None:
    """A typing mistake shows at once."""
    with pytest.raises(
        ConfigurationError, match=r"write kafka://.*, pulsar://.*, kinesis://.* or memory://"
    ):
        open_url(url)


def test_importing_the_package_imports_no_client() -> None:
    """Whoever uses one broker need not have the others' clients, nor wait for them."""
    code = (
        "import sys, consumer_sdk.adapters\n"
        "print({'_pulsar', 'aiobotocore', 'aiohttp', 'aiokafka', 'botocore', 'orjson'} & sys.modules.keys())"
    )
    assert run_python(code) == "set()"


@pytest.mark.parametrize(
    "name,client,extra",
    [
        ("KafkaAdapter", "aiokafka", "kafka"),
        ("KinesisAdapter", "aiobotocore", "kinesis"),
        ("KinesisAdapter", "orjson", "kinesis"),
        ("PulsarAdapter", "pulsar", "pulsar"),
    ],
)
def test_missing_client_is_an_error_that_names_the_extra(
    name: str, client: str, extra: str
) -> None:
    """Asking for the adapter says what to install."""
    code = (
        f"import sys; sys.modules[{client!r}] = None\n"
        "from consumer_sdk import adapters\n"
        "from consumer_sdk.errors import MissingExtraError\n"
        f"try: adapters.{name}\n"
        "except MissingExtraError as error: print(error)"
    )
    package = {"pulsar": "pulsar-client"}.get(client, client)
    assert run_python(code) == str(MissingExtraError(package, extra))


def test_unknown_name_is_an_attribute_error() -> None:
    """As of any module."""
    with pytest.raises(ImportError):
        from consumer_sdk.adapters import Nothing  # noqa: F401


def test_kafka_url_opens_kafkas_ranges() -> None:
    """The scheme chooses; nothing is connected."""
    reader = open_ranges("kafka://a:9092/orders?group=g")
    assert (reader.broker, reader.group) == ("kafka", "g")


@pytest.mark.parametrize("scheme", ["pulsar", "pulsar+ssl"])
def test_pulsar_url_opens_pulsars_ranges(scheme: str) -> None:
    """The scheme chooses; nothing is connected."""
    assert open_ranges(f"{scheme}://a:6650/orders").broker == "pulsar"


@pytest.mark.parametrize("url", ["kinesis://eu/orders?secret=s", "orders", "", "memory://x"])
def test_broker_without_ranges_is_an_error_that_names_the_others(url: str) -> None:
    """It also says what else there is, and shows no option."""
    with pytest.raises(ConfigurationError, match=r"kafka.* pulsar") as caught:
        open_ranges(url)
    assert "secret" not in str(caught.value)


def test_missing_client_of_ranges_is_an_error_that_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Asking says what to install."""
    for name in [name for name in sys.modules if name.startswith("consumer_sdk.adapters.kafka")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "aiokafka", None)
    with pytest.raises(MissingExtraError, match="kafka"):
        open_ranges("kafka://a:9092/orders")


@pytest.mark.parametrize(
    "url",
    [
        "kafka://a:9092/orders?group=g&session_timeout=9",
        "pulsar://a:6650/orders?subscription=g&type=shared&admin_url=http://a:8080",
        "kinesis://eu-west-1/orders?group=g&lease_duration=9&endpoint_url=http://a:4567",
    ],
)
async def test_tools_take_the_url_of_consumers(url: str) -> None:
    """What concerns consumers alone is left out, and so is the group."""
    reader, group = open_for_tools(url)
    assert (url.startswith(reader.broker), reader.group, group) == (True, None, "g")
    with pytest.raises(ConfigurationError, match="unknown option colour="):
        open_for_tools(f"{url}&colour=red")


KAFKA_FORM = "write kafka://host:port/topic"
SERVED = {"topic": TEXT, "group": TEXT}


def _read(url: str) -> tuple[list[str], dict[str, object]]:
    parts, texts = split_url(url, ["kafka", "redis"], KAFKA_FORM)
    return read_server_url(parts, texts, SERVED, KAFKA_FORM, servers="servers")


@pytest.mark.parametrize(
    "url, mistake",
    [
        (7, "give a URL"),
        ("kafka://[a/b", f"IPv6.*{KAFKA_FORM}"),
        ("nats://a/b", f"does not begin with kafka:// or redis://: {KAFKA_FORM}"),
        ("kafka:/a/b", f"'//' is missing behind 'kafka:': {KAFKA_FORM}"),
        ("kafka://me:secret@a/b", f"credentials before the host.*{KAFKA_FORM}"),
        ("kafka://a/b#c", f"'#' ends a URL.*{KAFKA_FORM}"),
        ("kafka://a/b?group=g&topic=t&group=h", "the option group= is given twice"),
        ("kafka://a/b?group=&group=h", "the option group= is given twice"),
        ("kafka:///b", f"the servers are missing in the URL: {KAFKA_FORM}"),
        ("kafka://a/b?servers=c", f"servers= in the URL: the servers stand.*{KAFKA_FORM}"),
        ("kafka://a/b?grup=g", "grup"),
    ],
)
def test_malformed_url_is_an_error_that_names_the_mistake_and_no_secret(
    url: Any, mistake: str
) -> None:
    """And what to write instead."""
    with pytest.raises(ConfigurationError, match=mistake) as raised:
        _read(url)
    assert "secret" not in str(raised.value)


def test_topics_and_options_of_a_url_are_read() -> None:
    """Topics may be several, and quoted; a scheme of no adapter may have one slash."""
    assert _read("kafka://a:1,b:2/x,y%2Fz,?group=g%20h") == (["x", "y/z"], {"group": "g h"})
    assert split_url("redis:/a", ["redis"], KAFKA_FORM)[0].path == "/a"
    assert share_group_of("kafka://a/b?share_group=s") == "s"
    assert share_group_of("kafka://a/b?group=s") is None


@pytest.mark.parametrize("scheme", ["kafka", "pulsar"])
def test_scheme_of_a_broker_that_is_written_to_opens_its_writer(scheme: str) -> None:
    """Which topics it writes to, each record says."""
    assert open_writer(f"{scheme}://a:1/t").__class__.__name__ == f"{scheme.capitalize()}Writer"


@pytest.mark.parametrize("url", ["kinesis://eu/orders", "memory://x/y", "orders", "", 7])
def test_broker_without_a_writer_is_an_error(url: Any) -> None:
    """Or what is no URL."""
    with pytest.raises(ConfigurationError, match=r"records are written to Kafka|write kafka|a URL"):
        open_writer(url)


@pytest.mark.parametrize(
    "url, scheme",
    [("kafka:a", "kafka"), ("nats://a", "nats"), ("kafka://a", "kafka")],
)
def test_scheme_is_told_of_a_url_that_another_check_may_refuse(url: str, scheme: str) -> None:
    """One that is known, or that two slashes follow."""
    assert scheme_of(url, KAFKA_FORM) == scheme


@pytest.mark.parametrize("url", ["nats:a", "a:9092", "kafka", "//a/b"])
def test_text_without_a_scheme_is_an_error(url: str) -> None:
    """Such as a host with its port."""
    with pytest.raises(ConfigurationError, match=f"does not begin with a scheme.*{KAFKA_FORM}"):
        scheme_of(url, KAFKA_FORM)


@pytest.mark.parametrize(
    "text, is_one",
    [
        ("a", True),
        ("a:1", True),
        ("a:65535", True),
        ("a:65536", False),
        ("a:0", False),
        ("a:", False),
        ("a:x", False),
        ("a:²", False),
        (":1", False),
        ("", False),
        ("a b", False),
        ("a :1", False),
        ("[::1]", True),
        ("[::1]:9092", True),
        ("[::1]:x", False),
    ],
)
def test_host_has_a_name_and_perhaps_a_port_that_there_is(text: str, *, is_one: bool) -> None:
    """Digits of another script are none."""
    assert is_host(text) == is_one
