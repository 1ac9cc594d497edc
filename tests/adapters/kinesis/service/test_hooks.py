"""The bytes of an event stream as pages, however they are cut."""

from __future__ import annotations

import io
import json
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.adapters.kinesis.service.hooks import (
    PAGE,
    STREAM,
    Events,
    encode_event,
    hand_over_stream,
    hooked,
    read_records,
    stream_large_body,
)
from consumer_sdk.adapters.kinesis.service.service import (
    Page,
    ShardGoneError,
    SubscriptionBusyError,
    ThrottledError,
)
from consumer_sdk.errors import AdapterError, PositionOutOfRangeError, TransientAdapterError

FIRST = encode_event({":message-type": "event", ":event-type": "initial-response"}, b"{}")


def event(next_: str | None, *data: str, **more: object) -> bytes:
    """A frame with records; ``data`` is base64."""
    records = [
        {
            "SequenceNumber": str(number),
            "ApproximateArrivalTimestamp": 1.5,
            "Data": text,
            "PartitionKey": "k",
        }
        for number, text in enumerate(data)
    ]
    body = {"Records": records, "MillisBehindLatest": 3, **more}
    if next_ is not None:
        body["ContinuationSequenceNumber"] = next_
    headers = {":message-type": "event", ":event-type": "SubscribeToShardEvent"}
    return encode_event(headers, json.dumps(body).encode())


def fault(code: str, message: str = "no") -> bytes:
    """A frame with an error."""
    headers = {":message-type": "exception", ":exception-type": code}
    return encode_event(headers, json.dumps({"message": message}).encode())


@given(st.lists(st.integers(0, 900), max_size=20))
def test_events_cut_anywhere_are_the_same_pages(cuts: list[int]) -> None:
    """A chunk of the network may hold half an event, or three."""
    stream = FIRST + event("5", "aGVsbG8=") + event("5") + event(None, ChildShards=[{}])
    events = Events("subscribing")
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = [stream[a:b] for a, b in pairwise(places)]
    assert [page for chunk in chunks for page in events.pages(chunk)] == [
        Page([0], [b"k"], [b"hello"], [1500], "5", 3, size=6),
        Page(next="5", behind=3),
        Page(next=None, behind=3, has_children=True),
    ]


def test_a_stream_without_a_first_frame_is_read_too() -> None:
    """Kinesis trap 28: the client demands one of type initial-response; we do not."""
    assert [page.next for page in Events("subscribing").pages(event("5"))] == ["5"]


def test_an_event_of_an_unknown_type_is_passed_over() -> None:
    """Amazon may add one."""
    unknown = encode_event({":message-type": "event", ":event-type": "Weather"}, b"rain")
    assert [page.next for page in Events("subscribing").pages(unknown + event("5"))] == ["5"]


@pytest.mark.parametrize(
    "code, kind",
    [
        ("ResourceInUseException", SubscriptionBusyError),
        ("ResourceNotFoundException", ShardGoneError),
        ("KMSThrottlingException", ThrottledError),
        ("KMSDisabledException", AdapterError),
        ("InternalFailureException", TransientAdapterError),
        ("InvalidArgumentException", PositionOutOfRangeError),
    ],
)
def test_an_error_in_the_stream_comes_after_the_pages_before_it(
    code: str, kind: type[AdapterError]
) -> None:
    """Kinesis trap 27: the code says which error it is; the caller's meaning goes first."""
    events = Events("subscribing", {"InvalidArgumentException": PositionOutOfRangeError})
    pages = events.pages(event("5") + fault(code, "the reason"))
    assert next(pages).next == "5"
    with pytest.raises(AdapterError, match=f"subscribing: {code}: the reason") as caught:
        next(pages)
    assert type(caught.value) is kind


def test_an_error_without_a_model_has_its_text_in_the_headers() -> None:
    """Such as a failure of the server itself; a payload that is not JSON is quoted."""
    headers = {
        ":message-type": "error",
        ":error-code": "InternalFailure",
        ":error-message": "broken",
    }
    with pytest.raises(TransientAdapterError, match="InternalFailure: broken"):
        list(Events("subscribing").pages(encode_event(headers)))
    raw = {":message-type": "exception", ":exception-type": "ResourceInUseException"}
    with pytest.raises(SubscriptionBusyError, match="oh no"):
        list(Events("subscribing").pages(encode_event(raw, b"oh no")))


def test_damage_is_a_transient_error() -> None:
    """Of each byte of a frame: the checksums of the form, and of its payload the JSON."""
    frame = event("5", "aGVsbG8=")
    for at in (0, 5, 9, 14, 40, len(frame) - 6, len(frame) - 1):
        damaged = frame[:at] + bytes([frame[at] ^ 1]) + frame[at + 1 :]
        # A length that has grown waits for more bytes, which come as the next event does.
        with pytest.raises(TransientAdapterError):
            list(Events("subscribing").pages(damaged + frame * 2))


# -- hooks ------------------------------------------------------------------------------------


def test_answer_with_records_is_read_past_the_client() -> None:
    """It has nothing left to parse; an error is left to it."""
    body = {"Records": [], "MillisBehindLatest": 3, "NextShardIterator": "i"}
    answer: dict[str, Any] = {"status_code": 200, "body": json.dumps(body).encode()}
    found: dict[str, Any] = {}
    read_records(answer, found, model="more")
    assert found == {PAGE: Page(next="i", behind=3)}
    assert answer["body"] == b"{}"
    refused = {"status_code": 400, "body": b"?"}
    found.clear()
    read_records(refused, found)
    assert (found, refused) == ({}, {"status_code": 400, "body": b"?"})


async def test_stream_is_handed_over_with_a_first_frame_for_the_client() -> None:
    """Which waits for one; an error is left to it."""
    answer: dict[str, Any] = {"status_code": 200, "body": "the stream"}
    found: dict[str, Any] = {}
    hand_over_stream(answer, found, model="more")
    assert found == {STREAM: "the stream"}
    chunks = [chunk async for chunk in answer["body"].content.iter_chunks()]
    assert chunks == [(FIRST, True)]
    refused = {"status_code": 400, "body": b"?"}
    found.clear()
    hand_over_stream(refused, found)
    assert (found, refused) == ({}, {"status_code": 400, "body": b"?"})


@pytest.mark.parametrize("size, is_in_pieces", [(2**20, False), (2**20 + 1, True)])
def test_only_a_large_request_is_written_in_pieces(size: int, *, is_in_pieces: bool) -> None:
    """It is the same request."""
    request = SimpleNamespace(body=b"x" * size)
    stream_large_body(request, model="more")
    body: Any = request.body
    assert isinstance(body, io.BytesIO) is is_in_pieces
    assert (body.read() if is_in_pieces else body) == b"x" * size


def test_answer_that_no_hook_has_seen_is_an_error() -> None:
    """Of another status it may pass; else the client is of another version."""
    assert hooked({PAGE: "page"}, PAGE) == "page"
    assert hooked({PAGE: "page", "ResponseMetadata": {"HTTPStatusCode": 200}}, PAGE) == "page"
    with pytest.raises(TransientAdapterError, match="cannot be read: status 302"):
        hooked({PAGE: "page", "ResponseMetadata": {"HTTPStatusCode": 302}}, PAGE)
    with pytest.raises(AdapterError, match="take another, or") as caught:
        hooked({}, PAGE)
    assert not isinstance(caught.value, TransientAdapterError)
