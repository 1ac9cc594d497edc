"""Answers as columns: our own way and the client's end in the same page, or in an error."""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.adapters.kinesis.service.decoding import (
    NEXT_OF_SUBSCRIPTION,
    page_of_body,
    page_of_parsed,
)
from consumer_sdk.adapters.kinesis.service.service import Page
from consumer_sdk.errors import TransientAdapterError

SEQUENCE = 49590338271490256608559692538361571095921575989136588898


def stored(**changes: Any) -> dict[str, Any]:
    """One record as the service sends it."""
    return {
        "SequenceNumber": str(SEQUENCE),
        "ApproximateArrivalTimestamp": 1_700_000_000.123,
        "Data": b64encode(b"hello").decode(),
        "PartitionKey": "k",
        **changes,
    }


def body(*records: dict[str, Any], **changes: Any) -> bytes:
    """An answer to GetRecords as it comes over the wire."""
    answer = {"Records": list(records), "NextShardIterator": "more", "MillisBehindLatest": 0}
    return json.dumps({**answer, **changes}).encode()


def test_an_answer_becomes_columns() -> None:
    """Numbers of 56 digits, bytes, milliseconds, and the size that counts for limits."""
    second = stored(SequenceNumber=str(SEQUENCE + 1), PartitionKey="ü", Data="")
    assert page_of_body(body(stored(), second, MillisBehindLatest=7)) == Page(
        sequences=[SEQUENCE, SEQUENCE + 1],
        keys=[b"k", "ü".encode()],
        data=[b"hello", b""],
        times=[1_700_000_000_123, 1_700_000_000_123],
        next="more",
        behind=7,
        size=5 + 1 + 2,
    )


def test_an_answer_without_records_is_an_empty_page() -> None:
    """The most frequent answer of an idle shard."""
    assert page_of_body(body()) == Page(next="more", behind=0)


@pytest.mark.parametrize("answer", [body(stored(), NextShardIterator=None), None])
def test_the_last_answer_of_a_shard_keeps_its_records(answer: bytes | None) -> None:
    """Kinesis trap 20: the iterator is null, or missing, in an answer with records."""
    missing = json.dumps({"Records": [stored()], "MillisBehindLatest": 0}).encode()
    page = page_of_body(answer or missing)
    assert (page.next, page.data) == (None, [b"hello"])


@pytest.mark.parametrize("children, has", [([], False), ([{"ShardId": "s"}], True)])
def test_child_shards_are_noticed(children: list[Any], *, has: bool) -> None:
    """An empty list names none."""
    assert page_of_body(body(ChildShards=children)).has_children is has
    assert page_of_parsed({"Records": [], "ChildShards": children}).has_children is has


def test_an_unknown_lag_is_unknown_and_a_negative_one_is_the_tip() -> None:
    """None is not 0: nobody is to think that the tip was reached."""
    assert page_of_body(b'{"Records": []}').behind is None
    assert page_of_body(body(MillisBehindLatest=-5)).behind == 0


def test_an_event_of_a_subscription_is_read_by_its_own_name_of_the_next_place() -> None:
    """A continuation sequence number instead of an iterator."""
    event = body(stored(), ContinuationSequenceNumber="17", NextShardIterator="not this")
    assert page_of_body(event, NEXT_OF_SUBSCRIPTION).next == "17"


@pytest.mark.parametrize("changes", [{}, {"ContinuationSequenceNumber": None}])
def test_the_last_event_of_a_subscription_keeps_its_records(changes: dict[str, Any]) -> None:
    """Kinesis trap 20: it has no place to read on from, or null for one."""
    page = page_of_body(body(stored(), **changes), NEXT_OF_SUBSCRIPTION)
    assert (page.next, page.data) == (None, [b"hello"])


@pytest.mark.parametrize("place", ["shard-open", " 7", "1_7", "-7", "1.5", "٣", "9" * 5000])
def test_a_continuation_that_is_no_number_is_refused(place: str) -> None:
    """Kinesis trap 27: it is sent back as a sequence number."""
    event = body(stored(), ContinuationSequenceNumber=place)
    with pytest.raises(TransientAdapterError):
        page_of_body(event, NEXT_OF_SUBSCRIPTION)


@given(st.integers(0, 4_102_444_800_000))
def test_any_millisecond_survives_its_way_through_seconds(milliseconds: int) -> None:
    """Times come as fractions of a second, which binary numbers do not have."""
    record = stored(ApproximateArrivalTimestamp=milliseconds / 1000)
    assert page_of_body(body(record)).times == [milliseconds]
    parsed = parsed_record(milliseconds)
    assert page_of_parsed({"Records": [parsed]}).times == [milliseconds]


def parsed_record(milliseconds: int) -> dict[str, Any]:
    """One record as the client parses it."""
    arrival = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    return stored(ApproximateArrivalTimestamp=arrival, Data=b"hello")


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"<html>",
        b"[]",
        b"null",
        b"{}",
        b'{"message": "hello"}',
        b'{"Records": null}',
        b'{"Records": ""}',
        b'{"Records": {}}',
        b'{"Records": [7]}',
        body(stored())[:-9],
        body(NextShardIterator=7),
        body(NextShardIterator=""),
        body(MillisBehindLatest="soon"),
    ],
)
def test_an_answer_of_another_form_is_a_transient_error(bad: bytes) -> None:
    """What is no answer is never taken for the end of a shard."""
    with pytest.raises(TransientAdapterError, match="an answer that cannot be read"):
        page_of_body(bad)


@given(st.data())
def test_any_damage_is_an_error_or_a_page_of_whole_columns(data: st.DataObject) -> None:
    """No other exception, and no column that is shorter than another."""
    damaged = bytearray(body(stored(), stored()))
    for _ in range(data.draw(st.integers(1, 5))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        page = page_of_body(bytes(damaged))
    except TransientAdapterError:
        return
    columns = (page.sequences, page.keys, page.data, page.times)
    assert len({len(column) for column in columns}) == 1


@pytest.mark.parametrize("name", ["SequenceNumber", "Data", "PartitionKey"])
def test_a_record_without_a_field_refuses_the_whole_answer(name: str) -> None:
    """Nothing is half-read, and the message says what is missing."""
    broken = stored()
    del broken[name]
    with pytest.raises(TransientAdapterError, match=f"no '{name}' in it"):
        page_of_body(body(stored(), broken))
    sound = parsed_record(0)
    broken = parsed_record(0)
    del broken[name]
    with pytest.raises(TransientAdapterError, match=f"no '{name}' in it"):
        page_of_parsed({"Records": [sound, broken]})


@pytest.mark.parametrize(
    "bad",
    [
        {"Data": "aGVs bG8="},
        {"Data": "aGVsbG8"},
        {"Data": "!"},
        {"Data": None},
        {"Data": "ü"},
        {"SequenceNumber": ""},
        {"SequenceNumber": " 7"},
        {"SequenceNumber": "1_0"},
        {"SequenceNumber": "-7"},
        {"SequenceNumber": "٣"},
        {"SequenceNumber": 7},
        {"PartitionKey": None},
        {"ApproximateArrivalTimestamp": "now"},
        {"ApproximateArrivalTimestamp": None},
    ],
)
def test_a_damaged_record_refuses_the_whole_answer(bad: dict[str, Any]) -> None:
    """Base64 is checked to the letter, and a sequence number is made of digits alone."""
    with pytest.raises(TransientAdapterError, match="an answer that cannot be read"):
        page_of_body(body(stored(), stored(**bad)))


@pytest.mark.parametrize(
    "bad", [{"Records": None}, {}, {"Records": [{}]}, {"Records": [], "NextShardIterator": 7}]
)
def test_what_the_client_could_not_parse_is_a_transient_error(bad: dict[str, Any]) -> None:
    """The client makes an empty answer of a body that is not JSON."""
    with pytest.raises(TransientAdapterError, match="an answer that cannot be read"):
        page_of_parsed(bad)
