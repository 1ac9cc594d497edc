"""Adapters from URLs, and what importing the package costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from consumer_sdk.adapters import open_url
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
