"""Heads of values."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer_sdk.schema_registry import read_message_indexes, read_schema_number


@pytest.mark.parametrize(
    "data,found",
    [
        (b"\0rest", ((0,), 1)),
        (b"\2\0rest", ((0,), 2)),
        (b"\4\2\4rest", ((1, 2), 3)),
        (b"\2\x80\2", ((128,), 3)),
    ],
)
def test_message_indexes_are_read(data: bytes, found: object) -> None:
    """Zigzag varints, and one zero for the first message."""
    assert read_message_indexes(data, 0) == found


@pytest.mark.parametrize("data", [b"", b"\1", b"\2", b"\2\1", b"\x80", b"\xff" * 9, b"\xca\1"])
def test_indexes_that_are_none_are_refused(data: bytes) -> None:
    """Too few, below zero, without an end, or more than messages can be nested."""
    with pytest.raises(ValueError, match="head"):
        read_message_indexes(data, 0)


@settings(max_examples=50)
@given(st.binary(max_size=12))
def test_any_bytes_have_a_head_or_not(data: bytes) -> None:
    """Nothing but a ValueError comes out, and nothing is read twice or beyond the end."""
    try:
        number, begin = read_schema_number(data)
        indexes, end = read_message_indexes(data, begin)
    except ValueError:
        return
    assert 0 <= number < 2**32
    assert begin < end <= len(data)
    assert 1 <= len(indexes) <= 100
