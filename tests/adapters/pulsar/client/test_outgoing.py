"""Records that are written: what the client's message has."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import _pulsar
import pytest

from consumer_sdk.adapters.pulsar.client.outgoing import (
    OutgoingRecord,
    SchemaOf,
    make_message,
    schema_of,
    tries_of,
)
from consumer_sdk.adapters.pulsar.client.texts import headers_of, key_of, ordering_key_of
from consumer_sdk.adapters.pulsar.details import PulsarDetails


def record(**changes: Any) -> OutgoingRecord:
    """A record that has nothing but its value."""
    return OutgoingRecord(**{"key": None, "value": b"v", "properties": {}} | changes)


def contents(message: Any) -> tuple[Any, ...]:
    """Key, ordering key, value, event time and properties; the value None is a null."""
    value = None if message.has_null_value() else message.data()
    time = message.event_timestamp()
    return key_of(message), ordering_key_of(message), value, time, headers_of(message)


@pytest.mark.parametrize(
    "changes, found",
    [
        ({}, (None, None, b"v", 0, ())),
        ({"key": b"", "ordering_key": b""}, (None, None, b"v", 0, ())),
        ({"key": b"k"}, (b"k", None, b"v", 0, ())),
        ({"ordering_key": b"\xfe"}, (None, b"\xfe", b"v", 0, ())),
        ({"key": b"\xff", "ordering_key": b"o"}, (b"\xff", b"o", b"v", 0, ())),
        ({"value": None}, (None, None, None, 0, ())),
        ({"value": b""}, (None, None, b"", 0, ())),
        ({"timestamp": 1}, (None, None, b"v", 1, ())),
        ({"timestamp": -1}, (None, None, b"v", 0, ())),
        ({"properties": {"p": "1"}}, (None, None, b"v", 0, (("p", b"1"),))),
    ],
)
def test_message_has_what_the_record_has_and_nothing_else(
    changes: dict[str, Any], found: tuple[Any, ...]
) -> None:
    """Bytes that are no text stay as they are; a time before 1970 is none, as Pulsar has none."""
    assert contents(make_message(record(**changes))) == found


@pytest.mark.parametrize("delay, sent", [(0.0, []), (0.5, [timedelta(seconds=0.5)])])
def test_only_a_record_with_a_delay_is_delivered_later(
    delay: float, sent: list[timedelta], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client's message does not show it."""
    later: list[timedelta] = []

    class Builder:
        def __getattr__(self, name: str) -> Any:
            return later.append if name == "deliver_after" else lambda *_: None

    monkeypatch.setattr(_pulsar, "MessageBuilder", Builder)
    make_message(record(delay=delay))
    assert later == sent


def details(version: int | None) -> PulsarDetails:
    """Of a record whose schema has a version."""
    return PulsarDetails(
        schema_version=version,
        publish_time=0,
        event_time=None,
        producer_name="p",
        redelivery_count=0,
        is_encrypted=False,
    )


@pytest.mark.parametrize(
    "found, schema",
    [(details(0), SchemaOf("t", 0)), (details(None), None), (None, None), ("another", None)],
)
def test_schema_is_that_of_a_record_of_pulsar(found: object, schema: SchemaOf | None) -> None:
    """Other brokers' records have none here."""
    assert schema_of("t", found) == schema


@pytest.mark.parametrize(
    "text, tries", [(None, 0), ("7", 7), ("1" * 9, 111_111_111), ("1" * 10, 0), ("٣", 0)]
)
def test_tries_are_a_number_that_a_broker_may_have_counted(text: str | None, tries: int) -> None:
    """A property is anybody's to write."""
    assert tries_of({} if text is None else {"RECONSUMETIMES": text}) == tries
