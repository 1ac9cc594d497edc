"""The event stream encoding of AWS: how SubscribeToShard's answer is written. Pure.

A frame is its length, the length of its headers, a checksum of both, the headers, the payload, and
a checksum of all (https://smithy.io/2.0/aws/amazon-eventstream.html).
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any

__all__ = ["INITIAL_RESPONSE", "event_frame", "exception_frame"]

CONTENT_TYPE = "application/x-amz-json-1.1"
STRING = 7
"""The type number of a header whose value is text."""

OVERHEAD = 16
"""Bytes of a frame beside headers and payload."""


def event_frame(name: str, payload: Mapping[str, Any]) -> bytes:
    """An event of that type."""
    headers = {":event-type": name, ":content-type": CONTENT_TYPE, ":message-type": "event"}
    return _frame(headers, payload)


def exception_frame(code: str, message: str) -> bytes:
    """An error in the midst of a stream; it is the last frame."""
    headers = {
        ":exception-type": code,
        ":content-type": CONTENT_TYPE,
        ":message-type": "exception",
    }
    return _frame(headers, {"message": message})


def _frame(headers: Mapping[str, str], payload: Mapping[str, Any]) -> bytes:
    head = b"".join(_header(name, value) for name, value in headers.items())
    body = json.dumps(payload).encode()
    prelude = struct.pack(">II", OVERHEAD + len(head) + len(body), len(head))
    checked = prelude + struct.pack(">I", zlib.crc32(prelude)) + head + body
    return checked + struct.pack(">I", zlib.crc32(checked))


def _header(name: str, value: str) -> bytes:
    return (
        struct.pack(">B", len(name))
        + name.encode()
        + struct.pack(">BH", STRING, len(value))
        + value.encode()
    )


INITIAL_RESPONSE = event_frame("initial-response", {})
"""What a client waits for before the first event."""
