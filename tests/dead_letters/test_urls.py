"""Dead-letter destinations from URLs."""

from __future__ import annotations

from pathlib import Path

import pytest

from consumer_sdk.dead_letters import (
    KafkaDeadLetters,
    KinesisDeadLetters,
    LocalDeadLetters,
    PulsarDeadLetters,
)
from consumer_sdk.dead_letters.urls import dead_letters_from_url
from consumer_sdk.errors import ConfigurationError


@pytest.mark.parametrize(
    "url,kind,topic",
    [
        ("kafka://k1:9092,k2:9092/dlq?security_protocol=SSL", KafkaDeadLetters, "dlq"),
        ("kafka://k1:9092?creates_topics=no&linger_ms=5", KafkaDeadLetters, None),
        (
            "pulsar://p1:6650/dlq?initial_subscription=look&io_threads=2",
            PulsarDeadLetters,
            "persistent://public/default/dlq",
        ),
        ("pulsar+ssl://p1:6651?token=abc", PulsarDeadLetters, None),
    ],
)
def test_a_topic_and_options_are_those_of_the_destination(
    url: str, kind: type, topic: str | None
) -> None:
    """Texts become the options' types; without a topic the destination's default counts."""
    found = dead_letters_from_url(url)
    assert isinstance(found, kind)
    assert found.topic == topic  # type: ignore[attr-defined]  # both kinds have one


def test_a_stream_and_a_file_are_named() -> None:
    """The region stands before a stream; a file is an absolute path."""
    stream = dead_letters_from_url(
        "kinesis://eu-central-1/dlq?endpoint_url=http://127.0.0.1:1&request_timeout=3"
    )
    assert isinstance(stream, KinesisDeadLetters)
    assert stream.stream == "dlq"
    file = dead_letters_from_url("sqlite:///tmp/a%20b.db?busy_timeout=2.5")
    assert isinstance(file, LocalDeadLetters)
    assert repr(file) == f"LocalDeadLetters({str(Path('/tmp/a b.db'))!r})"  # noqa: S108 - never made


@pytest.mark.parametrize(
    "url",
    [
        "dlq",
        "http://host/dlq",
        "kafka:///dlq",
        "pulsar:///dlq",
        "kinesis://eu-central-1/",
        "sqlite://host/dlq.db",
        "sqlite:///",
        "kafka://user:hidden@host:9092/dlq",
        "kafka://host:9092/dlq?nonsense=hidden",
        "kafka://host:9092/dlq?bootstrap_servers=hidden",
        "pulsar://host:6650/dlq?subscription=hidden",
        "kinesis://eu-central-1/dlq?region_name=hidden",
        "kafka://host:9092/dlq?acks=hidden",
    ],
)
def test_what_names_no_destination_is_refused_without_its_secrets(url: str) -> None:
    """An error says what to write, and shows no value that may be a secret (Spark trap 22)."""
    with pytest.raises(ConfigurationError) as caught:
        dead_letters_from_url(url)
    assert "hidden" not in str(caught.value)
