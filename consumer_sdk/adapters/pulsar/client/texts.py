"""Keys and properties that are no UTF-8, which producers of other languages may write.

The extension offers both only as text, and raises an error. The error has the bytes that could not
be decoded: all of a key, or the first property that failed. The text of the whole message has all
properties, so its error has all bytes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

from consumer_sdk.records import Headers

__all__ = ["headers_of", "key_of", "ordering_key_of"]

log = logging.getLogger(__name__)

PROPERTIES = re.compile(rb"Message\(prod=.*?, msg_id=\([-0-9,]*\), props=\{(.*)\}\)", re.DOTALL)
PROPERTY = re.compile(rb"'([^']*)':'([^']*)'(?:, |$)")


def key_of(raw: Any) -> bytes | None:
    """The key's bytes; None if there is no key."""
    return _bytes_of(raw.partition_key)


def ordering_key_of(raw: Any) -> bytes | None:
    """As `key_of`."""
    return _bytes_of(raw.ordering_key)


def _bytes_of(read: Callable[[], str]) -> bytes | None:
    try:
        return read().encode() or None
    except UnicodeDecodeError as error:
        return error.object


def headers_of(raw: Any) -> Headers:
    """The properties; in a name, what cannot be decoded is escaped.

    None if a quote in a property makes it unclear where the property ends; the log says so.
    """
    try:
        found: dict[str, str] = raw.properties()
    except UnicodeDecodeError:
        return _headers_in(raw)
    return tuple((name, text.encode()) for name, text in found.items())


def _headers_in(raw: Any) -> Headers:
    pairs = _parse(_text_of(raw))
    if pairs is None:
        log.warning("%r: its properties are no UTF-8, and are left out", raw.message_id())
        return ()
    return tuple((name.decode(errors="backslashreplace"), value) for name, value in pairs)


def _text_of(raw: Any) -> bytes:
    try:
        return str(raw).encode()
    except UnicodeDecodeError as error:
        return error.object


def _parse(text: bytes) -> list[tuple[bytes, bytes]] | None:
    found = PROPERTIES.fullmatch(text)
    if found is None:
        return None
    inner = found[1]
    pairs = PROPERTY.findall(inner)
    is_whole = b", ".join(b"'%b':'%b'" % pair for pair in pairs) == inner
    return pairs if is_whole else None
