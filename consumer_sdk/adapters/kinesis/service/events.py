"""The event stream of a subscription. Pure; waiting for its bytes is the caller's.

The form is https://docs.aws.amazon.com/transcribe/latest/dg/event-stream.html. Events are read past
the client for the sake of `decoding`'s speed, and because it waits for a first frame of type
``initial-response`` before it hands the stream over: cancelled there, it would leave the connection
behind, and some of the servers for tests send no such frame.
"""

from __future__ import annotations

import struct
from binascii import crc32
from collections.abc import Iterator
from typing import Any

from consumer_sdk.adapters.kinesis import client_support as _support  # noqa: F401 - is it there?

# isort: split
import orjson
from botocore.eventstream import EventStreamBuffer, ParserError

from consumer_sdk.adapters.kinesis.service.decoding import NEXT_OF_SUBSCRIPTION, page_of_body
from consumer_sdk.adapters.kinesis.service.service import Page
from consumer_sdk.adapters.kinesis.service.translation import Faults, refusal, translate

__all__ = ["Events", "encode_event"]

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
