"""What a registry's clients write before a value: a zero, the schema's number, and Protobuf's indexes.

The Protobuf indexes say which message of the schema's file the value is: ``(1, 0)`` is the first one
within the second. They are zigzag varints, their count first; a count of zero stands for ``(0,)``.
"""

from __future__ import annotations

__all__ = ["read_message_indexes", "read_schema_number"]

_HEAD = 5
_DEEPEST = 100
"""Messages within messages: what Protobuf's decoders allow in a value."""
_LONGEST_VARINT = 5


def read_schema_number(data: bytes) -> tuple[int, int]:
    """The schema's number, and where what follows begins.

    Raises:
        ValueError: the value has no such head.
    """
    if len(data) < _HEAD or data[0] != 0:
        raise ValueError("the value does not begin with a zero and a schema's number")
    return int.from_bytes(data[1:_HEAD], "big"), _HEAD


def read_message_indexes(data: bytes, begin: int) -> tuple[tuple[int, ...], int]:
    """The indexes of the message, and where the value itself begins.

    Raises:
        ValueError: there are none.
    """
    count, begin = _number(data, begin)
    if not 0 <= count <= _DEEPEST:
        raise ValueError(f"the value's head has {count} message indexes")
    indexes = []
    for _ in range(count):
        index, begin = _number(data, begin)
        indexes.append(index)
    if any(index < 0 for index in indexes):
        raise ValueError(f"the value's head has the message indexes {indexes}")
    return tuple(indexes) or (0,), begin


def _number(data: bytes, begin: int) -> tuple[int, int]:
    found = 0
    for shift, byte in enumerate(data[begin : begin + _LONGEST_VARINT]):
        found |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:  # noqa: PLR2004 - the last one
            return (found >> 1) ^ -(found & 1), begin + shift + 1
    raise ValueError("the value's head ends within its message indexes")
