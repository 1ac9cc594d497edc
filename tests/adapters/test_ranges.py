"""Range readers from URLs, whatever the broker."""

from __future__ import annotations

import sys

import pytest

from consumer_sdk.adapters.ranges import open_for_tools, open_ranges
from consumer_sdk.errors import ConfigurationError, MissingExtraError


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


def test_missing_client_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
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
