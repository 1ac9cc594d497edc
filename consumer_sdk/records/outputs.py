"""What a handler sends with its record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

from consumer_sdk.errors import OutputError
from consumer_sdk.records.messages import Headers

__all__ = ["Output"]

OVERHEAD = 100
"""Bytes of memory that an output takes beside its key, value and headers, about."""
LONGEST_NAME = 249


@dataclass(frozen=True, slots=True)
class Output:
    """A record that is written in the transaction that commits its source record.

    Attributes:
        stream: the topic to write to.
        value, key: bytes, or None.
        headers: pairs of name and bytes (or None).
        partition: its number; None lets the key choose.
        size: bytes of key, value and headers.
    """

    stream: str
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    size: int = 0

    @classmethod
    def make(
        cls,
        stream: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> Output:
        """Checks the arguments, and makes an output.

        Raises:
            OutputError: it cannot be written.
        """
        _check_stream(stream)
        _check_bytes("value", value)
        _check_bytes("key", key)
        headers = _checked_headers(headers)
        size = len(value or b"") + len(key or b"")
        size += sum(len(name.encode()) + len(each or b"") for name, each in headers)
        return cls(stream, value, key, headers, partition, size)

    @property
    def held(self) -> int:
        """Bytes of memory, about."""
        return self.size + OVERHEAD


def _check_stream(stream: object) -> None:
    if not _is_text(stream) or not 0 < len(stream) <= LONGEST_NAME:
        raise OutputError(
            f"message.send({stream!r:.80}, …): give the name of a topic, of up to {LONGEST_NAME} characters"
        )


def _check_bytes(name: str, given: object) -> None:
    if given is not None and not isinstance(given, bytes):
        raise OutputError(
            f"message.send(…, {name}={given!r:.80}): give bytes or None; encode a text by .encode(), and "
            f"anything else as JSON, say"
        )


def _checked_headers(headers: object) -> Headers:
    pairs = tuple(headers) if isinstance(headers, list | tuple) else None
    if pairs is None or not all(map(_is_header, pairs)):
        raise OutputError(
            f"message.send(…, headers={headers!r:.80}): give a list of pairs of a text and bytes or None"
        )
    return pairs


def _is_header(pair: object) -> bool:
    match pair:
        case (str() as name, None | bytes()):
            return _is_text(name)
    return False


def _is_text(given: object) -> TypeGuard[str]:
    """One that has bytes: a lone surrogate would fail when the transaction is written."""
    if not isinstance(given, str):
        return False
    try:
        given.encode()
    except UnicodeEncodeError:
        return False
    return True
