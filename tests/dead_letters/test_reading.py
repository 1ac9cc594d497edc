"""What destinations have written is read back as the letter that it was."""

from __future__ import annotations

from dataclasses import replace

import pytest

from consumer_sdk.adapters.kafka.dead_letters import letter_headers
from consumer_sdk.adapters.pulsar import dead_letters as pulsar_letters
from consumer_sdk.dead_letters.reading import broker_of, letter_in
from consumer_sdk.records import DeadLetter, Partition
from consumer_sdk.records.letter_lines import encode_letter
from tests.adapters.kafka.test_dead_letters import letter_of

LETTER = letter_of("orders")


def test_letter_of_kafka_is_read_back() -> None:
    """Headers that were added are gone, and the record's own time is in its place."""
    found = letter_in(
        "kafka", key=b"k", value=LETTER.value, headers=letter_headers(LETTER), timestamp=1
    )
    assert found == LETTER
    assert broker_of(found) == "kafka"


def test_letter_of_pulsar_is_read_back() -> None:
    """Its group is a property of Pulsar's own."""
    letter = replace(
        LETTER,
        partition=Partition("persistent://public/default/orders", "2"),
        position="1:2:3",
        headers=[("trace", b"1")],
    )
    written = pulsar_letters.record_of(letter)
    properties = [(name, text.encode()) for name, text in written.properties.items()]
    found = letter_in(
        "pulsar", key=b"k", value=LETTER.value, headers=properties, timestamp=LETTER.timestamp
    )
    assert found == letter
    assert broker_of(found) == "pulsar"


def test_letter_of_kinesis_is_read_back() -> None:
    """All of it is in the value."""
    letter = replace(LETTER, partition=Partition("orders", "shardId-000000000000"))
    found = letter_in("kinesis", key=b"k", value=encode_letter(letter), headers=())
    assert (found, broker_of(found)) == (letter, "kinesis")


@pytest.mark.parametrize("name", ["failed-at", "attempts", "position"])
@pytest.mark.parametrize("text", [None, b"nan", b"\xff"])
def test_record_that_is_no_letter_is_an_error(name: str, text: bytes | None) -> None:
    """It says what is missing or wrong."""
    headers = dict(letter_headers(LETTER))
    del headers[f"dlq.{name}"]
    if text is not None and name != "position":
        headers[f"dlq.{name}"] = text
    with pytest.raises(ValueError, match=r"dlq\.|invalid literal|could not convert"):
        _read(headers)


def _read(headers: dict[str, bytes | None]) -> DeadLetter:
    return letter_in("kafka", key=None, value=None, headers=[*headers.items()])
