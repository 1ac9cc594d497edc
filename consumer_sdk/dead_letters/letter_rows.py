"""A dead letter as a row of the table ``dead_letters``, and back."""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any

from consumer_sdk.records import DeadLetter, Headers, Partition

__all__ = ["COLUMNS", "encode_value", "from_row", "to_row"]

COLUMNS = (
    '"group", stream, partition, position, error, error_type, attempts, failed_at, '
    "timestamp, key, value, headers"
)


def to_row(letter: DeadLetter) -> tuple[Any, ...]:
    """The values of `COLUMNS`, and the record's digest."""
    headers = _encode_headers(letter.headers)
    return (
        letter.group,
        letter.partition.stream,
        letter.partition.id,
        letter.position,
        _printable(letter.error),
        _printable(letter.error_type),
        letter.attempts,
        letter.failed_at,
        letter.timestamp,
        letter.key,
        letter.value,
        headers,
        _digest(letter, headers),
    )


def from_row(row: Sequence[Any]) -> DeadLetter:
    """The letter whose `COLUMNS` these are."""
    group, stream, partition, position, error, error_type, attempts, failed_at, *record = row
    timestamp, key, value, headers = record
    return DeadLetter(
        partition=Partition(stream, partition),
        position=position,
        key=key,
        value=value,
        headers=_decode_headers(headers),
        timestamp=timestamp,
        error=error,
        error_type=error_type,
        attempts=attempts,
        group=group,
        failed_at=failed_at,
    )


def _digest(letter: DeadLetter, headers: str) -> bytes:
    """Tells records apart that had the same place: a stream may be deleted and made again."""
    record = hashlib.blake2b(digest_size=16)
    for part in (letter.key, letter.value, headers.encode(), str(letter.timestamp).encode()):
        record.update(b"-" if part is None else b"%d:" % len(part))
        record.update(part or b"")
    return record.digest()


def _printable(text: str) -> str:
    """An error's text may quote undecodable bytes as lone surrogates, which are no UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def _encode_headers(headers: Headers) -> str:
    """JSON pairs of name and text; bytes that are no UTF-8 are ``{"base64": …}``."""
    return json.dumps([[name, encode_value(value)] for name, value in headers])


def encode_value(value: bytes | None) -> str | dict[str, str] | None:
    """What JSON can hold: text, or ``{"base64": …}`` for bytes that are no UTF-8."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}


def _decode_headers(text: str) -> Headers:
    return tuple((name, _decode_value(value)) for name, value in json.loads(text))


def _decode_value(value: str | dict[str, str] | None) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else b64decode(value["base64"])
