"""The form of dead letters in Pulsar."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from consumer_sdk.adapters.pulsar.dead_letters import default_topic, record_of
from consumer_sdk.records import DeadLetter, Partition

ORDERS = "persistent://public/default/orders"


def letter_of(stream: str = ORDERS, **changes: Any) -> DeadLetter:
    """A dead letter from partition 2."""
    letter = DeadLetter(
        partition=Partition(stream, "2"),
        position="17:4:3",
        key=b"k",
        value=b"\xff not json",
        headers=(("trace", b"1"),),
        timestamp=1_600_000_000_000,
        error="ValueError: no",
        error_type="builtins.ValueError",
        attempts=5,
        group="billing",
        failed_at=1_700_000_000.5,
    )
    return replace(letter, **changes)


@pytest.mark.parametrize(
    "stream, group, topic",
    [
        (ORDERS, "billing", f"{ORDERS}-billing-DLQ"),
        (f"{ORDERS}-billing-RETRY", "billing", f"{ORDERS}-billing-DLQ"),
        (f"{ORDERS}-other-RETRY", "billing", f"{ORDERS}-other-RETRY-billing-DLQ"),
        (ORDERS, "a/b", f"{ORDERS}-a_b-DLQ"),
        ("non-persistent://t/n/orders", "billing", "persistent://t/n/orders-billing-DLQ"),
        ("clicks", "billing", "persistent://public/default/clicks-billing-DLQ"),
        ("arn:aws:k:1:stream/s", "", "persistent://public/default/arn:aws:k:1:stream_s-DLQ"),
    ],
)
def test_topic_is_named_as_pulsar_names_it_without_the_partition(
    stream: str, group: str, topic: str
) -> None:
    """Pulsar trap 24: all partitions, and the retry topic, share one; it is always persistent."""
    assert default_topic(letter_of(stream, group=group)) == topic


def test_properties_are_those_of_pulsars_clients_and_why() -> None:
    """What Java's consumers and tools look for, and ours beside it."""
    record = record_of(letter_of())
    assert (record.key, record.value, record.timestamp) == (
        b"k",
        b"\xff not json",
        1_600_000_000_000,
    )
    assert record.properties == {
        "trace": "1",
        "REAL_TOPIC": ORDERS,
        "REAL_SUBSCRIPTION": "billing",
        "ORIGIN_MESSAGE_ID": "17:4:2:3",
        "RECONSUMETIMES": "4",
        "dlq.stream": ORDERS,
        "dlq.partition": "2",
        "dlq.position": "17:4:3",
        "dlq.error": "ValueError: no",
        "dlq.error-type": "builtins.ValueError",
        "dlq.attempts": "5",
        "dlq.failed-at": "1700000000.5",
    }


@pytest.mark.parametrize(
    "position, text",
    [("17:4:2147483647", "17:4:2"), ("17:4:0", "17:4:2:0"), ("41999", "41999"), ("9:0", "9:0")],
)
def test_origin_id_is_written_as_java_writes_it(position: str, text: str) -> None:
    """Of other brokers' records it is the position's text."""
    assert record_of(letter_of(position=position)).properties["ORIGIN_MESSAGE_ID"] == text


def test_record_from_the_retry_topic_keeps_its_first_origin_and_counts_on() -> None:
    """Tries in the retry topic and deliveries of the last one are one count."""
    headers = (
        ("RECONSUMETIMES", b"3"),
        ("REAL_TOPIC", ORDERS.encode()),
        ("ORIGIN_MESSAGE_ID", b"1:2:-1"),
    )
    letter = letter_of(f"{ORDERS}-billing-RETRY", headers=headers, attempts=2)
    found = record_of(letter).properties
    assert found["REAL_TOPIC"] == ORDERS
    assert found["ORIGIN_MESSAGE_ID"] == "1:2:-1"
    assert found["RECONSUMETIMES"] == "4"
    assert found["dlq.stream"] == f"{ORDERS}-billing-RETRY"


@pytest.mark.parametrize("text", [b"", b"many", b"-1", b"\xd9\xa3", b"9" * 5000])
def test_count_that_somebody_else_has_written_stops_nothing(text: bytes) -> None:
    """A property is anybody's to write."""
    letter = letter_of(headers=(("RECONSUMETIMES", text),))
    assert record_of(letter).properties["RECONSUMETIMES"] == "4"


def test_letter_of_a_letter_says_why_it_was_given_up_last() -> None:
    """There is one set of reasons, and the first origin."""
    first = record_of(letter_of(error="first", headers=(("dlq.mine", b"x"),)))
    headers = tuple((name, value.encode()) for name, value in first.properties.items())
    again = record_of(letter_of(f"{ORDERS}-billing-DLQ", error="second", headers=headers))
    assert again.properties["dlq.error"] == "second"
    assert again.properties["REAL_TOPIC"] == ORDERS
    assert "dlq.mine" not in again.properties


def test_headers_of_other_brokers_are_kept_as_text_and_keys_as_bytes() -> None:
    """Names may repeat and bytes be anything there; nothing is dropped."""
    headers = (("a", b"1"), ("a", b"\xff"), ("a#2", None))
    record = record_of(letter_of(key=b"\xff", headers=headers))
    assert record.key == b"\xff"
    found = {name: record.properties[name] for name in ("a", "a#2", "a#2#2")}
    assert found == {"a": "1", "a#2": "\\xff", "a#2#2": ""}


def test_long_error_is_cut() -> None:
    """A stack of megabytes does not make its letter too large."""
    assert len(record_of(letter_of(error="x" * 10**6)).properties["dlq.error"]) == 8192
