"""Claims about servers that already run."""

import pytest

from consumer_sdk import ConfigurationError
from consumer_sdk.testing.servers import (
    ExternalKafka,
    ExternalKinesis,
    ExternalServerError,
    ExternalZooKeeper,
    external_address,
    external_url,
)


def test_address_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several hosts are allowed; unset and empty mean none."""
    monkeypatch.setenv("CONSUMER_SDK_KAFKA", "one:9092,two:9092")
    assert external_address("CONSUMER_SDK_KAFKA") == "one:9092,two:9092"
    monkeypatch.setenv("CONSUMER_SDK_KAFKA", "")
    assert external_address("CONSUMER_SDK_KAFKA") is None


@pytest.mark.parametrize("text", ["host", "host:", ":9092", "one:1,two"])
def test_wrong_address_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A slip of the pen is found before a client hangs on it."""
    monkeypatch.setenv("CONSUMER_SDK_KAFKA", text)
    with pytest.raises(ConfigurationError, match="CONSUMER_SDK_KAFKA"):
        external_address("CONSUMER_SDK_KAFKA")


async def test_external_server_is_used_and_never_ended() -> None:
    """What would end somebody else's server is refused; leaving it does nothing."""
    async with ExternalKafka("one:9092") as kafka:
        assert kafka.bootstrap_servers == "one:9092"
        for end in (kafka.stop, kafka.kill, kafka.restart):
            with pytest.raises(ExternalServerError, match="one:9092"):
                await end()
        for hold in (kafka.pause, kafka.resume):
            with pytest.raises(ExternalServerError, match="not started here"):
                hold()
    assert ExternalZooKeeper("two:2181").hosts == "two:2181"


def test_url_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinesis is named by a URL; unset and empty mean none."""
    monkeypatch.setenv("CONSUMER_SDK_KINESIS", "http://one:4567")
    assert external_url("CONSUMER_SDK_KINESIS") == "http://one:4567"
    monkeypatch.setenv("CONSUMER_SDK_KINESIS", "")
    assert external_url("CONSUMER_SDK_KINESIS") is None


@pytest.mark.parametrize("text", ["one:4567", "http://", "ftp://one:4567", "http://one:port"])
def test_wrong_url_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A URL without http or a host is a slip of the pen too."""
    monkeypatch.setenv("CONSUMER_SDK_KINESIS", text)
    with pytest.raises(ConfigurationError, match="CONSUMER_SDK_KINESIS"):
        external_url("CONSUMER_SDK_KINESIS")


async def test_external_kinesis_is_used_and_never_ended() -> None:
    """A Kinesis elsewhere has its URL, our harmless credentials, and no end."""
    async with ExternalKinesis("http://one:4567") as kinesis:
        assert kinesis.endpoint_url == "http://one:4567"
        assert set(kinesis.credentials.values()) == {"test"}
        with pytest.raises(ExternalServerError, match="one:4567"):
            await kinesis.kill()
