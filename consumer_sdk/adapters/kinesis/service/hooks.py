"""Where answers are read past the client: its hooks, and the event stream of a subscription. Pure.

``before-parse`` hooks are called with an answer before it is parsed. What they put into
``customized_response_dict`` is added to what the client returns; errors are left to the client.
``before-send`` hooks are called with a request that is signed.

The form of an event stream is https://docs.aws.amazon.com/transcribe/latest/dg/event-stream.html; waiting
for its bytes is the caller's. Events are read past the client for the sake of `decoding`'s speed, and because
it waits for a first frame of type ``initial-response`` before it hands the stream over: cancelled there, it
would leave the connection behind, and some of the servers for tests send no such frame.
"""

from __future__ import annotations

import io
import struct
from binascii import crc32
from collections.abc import AsyncIterator, Iterator, Mapping
from http import HTTPStatus
from typing import Any

from consumer_sdk.adapters.kinesis import client_support as _support  # noqa: F401 - is it there?

# isort: split
import orjson
from botocore.eventstream import EventStreamBuffer, ParserError

from consumer_sdk.adapters.kinesis.service.decoding import NEXT_OF_SUBSCRIPTION, page_of_body
from consumer_sdk.adapters.kinesis.service.service import Page
from consumer_sdk.adapters.kinesis.service.translation import Faults, refusal, translate
from consumer_sdk.errors import AdapterError, TransientAdapterError

__all__ = [
    "PAGE",
    "STREAM",
    "Events",
    "encode_event",
    "hand_over_stream",
    "hooked",
    "read_records",
    "stream_large_body",
]


# -- the event stream of a subscription ------------------------------------------------------

RECORDS = "SubscribeToShardEvent"
STRING = 7
"""The type of a header that is text."""


class Events:
    """Makes pages of bytes as they come.

    Args:
        doing: what the subscription is of; an error's message starts with it.
        faults: what the service's codes mean here.
    """

    __slots__ = ("_buffer", "_doing", "_faults")

    def __init__(self, doing: str, faults: Faults | None = None) -> None:
        self._buffer = EventStreamBuffer()
        self._doing = doing
        self._faults = faults

    def pages(self, chunk: bytes) -> Iterator[Page]:
        """The events that these bytes complete. Events of an unknown type are passed over.

        Raises:
            AdapterError: an event is an error, or is damaged; those before it are given first.
        """
        self._buffer.add_data(chunk)
        try:
            for event in self._buffer:
                if event.headers.get(":message-type") in {"exception", "error"}:
                    raise self._error(event)
                if event.headers.get(":event-type") == RECORDS:
                    yield page_of_body(event.payload, NEXT_OF_SUBSCRIPTION)
        except ParserError as error:
            raise translate(error, self._doing) from error

    def _error(self, event: Any) -> Exception:
        headers = event.headers
        code = headers.get(":exception-type") or headers.get(":error-code") or "unknown"
        message = headers.get(":error-message") or _message(event.payload)
        return refusal(code, message, self._doing, self._faults)


def encode_event(headers: dict[str, str], payload: bytes = b"") -> bytes:
    """One frame of an event stream."""
    head = b"".join(_header(name, value) for name, value in headers.items())
    prelude = struct.pack("!II", 16 + len(head) + len(payload), len(head))
    prelude += struct.pack("!I", crc32(prelude))
    frame = prelude + head + payload
    return frame + struct.pack("!I", crc32(frame))


def _header(name: str, value: str) -> bytes:
    text = value.encode()
    start = struct.pack("!B", len(name)) + name.encode()
    return start + struct.pack("!BH", STRING, len(text)) + text


def _message(payload: bytes) -> str:
    try:
        return str(orjson.loads(payload)["message"])
    except (KeyError, TypeError, ValueError):
        return payload.decode(errors="replace")


# -- hooks ------------------------------------------------------------------------------------

PAGE = "Page"
"""Where the answer to GetRecords has its `Page`."""

STREAM = "EventStream"
"""Where the answer to SubscribeToShard has the HTTP response, to be read and closed."""

LARGE = 2**20
"""Bytes from which on aiohttp warns."""

FIRST_FRAME = encode_event({":message-type": "event", ":event-type": "initial-response"}, b"{}")


def read_records(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    """Makes a `Page` of an answer to GetRecords, and leaves the client nothing to parse.

    Raises:
        TransientAdapterError: it cannot be read.
    """
    if response_dict["status_code"] == HTTPStatus.OK:
        customized_response_dict[PAGE] = page_of_body(response_dict["body"])
        response_dict["body"] = b"{}"


def hand_over_stream(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    """Hands over the HTTP response itself, and gives the client the frame that it waits for."""
    if response_dict["status_code"] == HTTPStatus.OK:
        customized_response_dict[STREAM] = response_dict["body"]
        response_dict["body"] = _FirstFrame()


def stream_large_body(request: Any, **_: Any) -> None:
    """Has a large request written in pieces; aiohttp warns of one that would be written at once."""
    if len(request.body) > LARGE:
        request.body = io.BytesIO(request.body)


def hooked(answer: Mapping[str, Any], name: str) -> Any:
    """What a hook has put into an answer.

    Raises:
        TransientAdapterError: the answer has another status than the service gives; some proxy may
            have answered.
        AdapterError: the hook was not called.
    """
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", HTTPStatus.OK)
    if status != HTTPStatus.OK:
        raise TransientAdapterError(f"Kinesis sent an answer that cannot be read: status {status}")
    try:
        return answer[name]
    except KeyError as error:
        raise AdapterError(
            "this version of aiobotocore does not call before-parse hooks: take another, or, "
            "without enhanced fan-out, give fast_decode=False"
        ) from error


class _FirstFrame:
    """As much of an HTTP response as the client looks at."""

    @property
    def content(self) -> _FirstFrame:
        return self

    async def iter_chunks(self) -> AsyncIterator[tuple[bytes, bool]]:
        yield FIRST_FRAME, True
