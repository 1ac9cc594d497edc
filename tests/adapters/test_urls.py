"""Adapters from URLs, and what importing the package costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from consumer_sdk.adapters import open_url
from consumer_sdk.adapters.urls import open_for_tools, open_ranges
from consumer_sdk.errors import ConfigurationError, MissingExtraError


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
