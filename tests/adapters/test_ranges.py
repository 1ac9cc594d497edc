"""Range readers from URLs, whatever the broker."""

from __future__ import annotations

import sys

import pytest

from consumer_sdk.adapters.ranges import open_ranges
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
    with pytest.raises(ConfigurationError, match="kafka, pulsar") as caught:
        open_ranges(url)
    assert "secret" not in str(caught.value)


def test_missing_client_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking says what to install."""
    for name in [name for name in sys.modules if name.startswith("consumer_sdk.adapters.kafka")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "aiokafka", None)
    with pytest.raises(MissingExtraError, match="kafka"):
        open_ranges("kafka://a:9092/orders")
