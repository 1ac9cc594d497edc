r"""The form of a dead letter in Kinesis, which has no headers. Pure.

A line of JSON, and behind it the record's own bytes as they were, so that a large record does not
grow::

    {"dead_letter": 1, "stream": "orders", "partition": "shardId-000000000002", …}\n<value>

=============  ==================================================================================
``stream``     the stream (or Kafka topic, Pulsar topic) it came from
``partition``  the partition (shard) there
``position``   the position there
``key``        the record's key in base64, or null
``headers``    pairs of a name and a value in base64, or null
``timestamp``  the record's own timestamp, milliseconds since the epoch, or null
``group``      the group that gave it up
``error``      what went wrong; cut to 8 KiB
``error_type`` the exception's qualified name, or ``rejected``
``attempts``   deliveries that failed
``failed_at``  seconds since the epoch
``has_value``  false if the record had none, which is not the same as an empty one
=============  ==================================================================================

The letter's partition key is the record's key where Kinesis can have it: 1 to 256 characters.
"""

from __future__ import annotations

import hashlib
import json
import math
from base64 import b64decode, b64encode
from collections.abc import Mapping
from types import UnionType
from typing import Any

from consumer_sdk.records import DeadLetter, Partition

__all__ = ["decode_letter", "encode_letter", "partition_key"]

FORM = 1
LONGEST_ERROR = 8192
LONGEST_KEY = 256
TYPES: Mapping[str, type | UnionType] = {
    **dict.fromkeys(("stream", "partition", "position", "group", "error", "error_type"), str),
    "attempts": int,
    "failed_at": int | float,
    "timestamp": int | None,
}
"""Field → what JSON has there."""


def encode_letter(letter: DeadLetter) -> bytes:
    """A record's data."""
    head = {
        "dead_letter": FORM,
        "stream": letter.partition.stream,
        "partition": letter.partition.id,
        "position": letter.position,
        "key": _base64(letter.key),
        "headers": [[name, _base64(value)] for name, value in letter.headers],
        "timestamp": letter.timestamp,
        "group": letter.group,
        "error": letter.error[:LONGEST_ERROR],
        "error_type": letter.error_type,
        "attempts": letter.attempts,
        "failed_at": letter.failed_at,
        "has_value": letter.value is not None,
    }
    # In ASCII: an error's text may quote undecodable bytes as lone surrogates, which are no UTF-8.
    return json.dumps(head, ensure_ascii=True).encode() + b"\n" + (letter.value or b"")


def decode_letter(data: bytes) -> DeadLetter:
    """The letter in a record of a dead-letter stream.

    Raises:
        ValueError: these bytes are no dead letter, or one of a later form.
    """
    line, _, value = data.partition(b"\n")
    try:
        return _letter(json.loads(line), value)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        what = f"no {error} in it" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"these bytes are no dead letter: {what}") from error


def partition_key(letter: DeadLetter) -> str:
    """The record's key, or a digest of it; without one, letters spread by where they came from."""
    if letter.key:
        return _fitting(letter.key) or hashlib.sha256(letter.key).hexdigest()
    origin = f"{letter.partition}@{letter.position}"
    return hashlib.sha256(origin.encode(errors="surrogatepass")).hexdigest()


def _fitting(key: bytes) -> str | None:
    """A key as text, if Kinesis can have it; it counts a character beyond U+FFFF as two."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return None
    return text if len(text.encode("utf-16-le")) <= 2 * LONGEST_KEY else None


def _letter(head: dict[str, Any], value: bytes) -> DeadLetter:
    if head["dead_letter"] != FORM:
        raise ValueError(f"its form is {head['dead_letter']!r}, and {FORM} is known")
    _check_types(head)
    return DeadLetter(
        partition=Partition(head["stream"], head["partition"]),
        position=head["position"],
        key=_bytes(head["key"]),
        value=value if head["has_value"] else None,
        headers=[(name, _bytes(text)) for name, text in head["headers"]],
        timestamp=head["timestamp"],
        error=head["error"],
        error_type=head["error_type"],
        attempts=head["attempts"],
        group=head["group"],
        failed_at=head["failed_at"],
    )


def _check_types(head: dict[str, Any]) -> None:
    fields = [(name, head[name], kind) for name, kind in TYPES.items()]
    fields += [("a header", name, str) for name, _ in head["headers"]]
    for name, found, kind in fields:
        if not isinstance(found, kind):
            raise TypeError(f"{name} is {found!r:.80}")
    if not math.isfinite(head["failed_at"]):
        raise ValueError(f"failed_at is {head['failed_at']}")


def _base64(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text, validate=True)
