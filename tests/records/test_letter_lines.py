"""The form of a dead letter in Kinesis: nothing of it is lost, and its key is one."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.dead_letters import decode_letter
from consumer_sdk.records import DeadLetter, Partition
from consumer_sdk.records.letter_lines import encode_letter, partition_key

ANY_TEXT = st.text(st.characters(codec=None))
"""Lone surrogates too: an error may quote bytes so."""

LETTERS = st.builds(
    DeadLetter,
    partition=st.builds(Partition, st.text(min_size=1), st.text(min_size=1)),
    position=st.text(),
    key=st.none() | st.binary(),
    value=st.none() | st.binary(),
    headers=st.lists(st.tuples(ANY_TEXT, st.none() | st.binary())),
    timestamp=st.none() | st.integers(0, 2**62),
    error=ANY_TEXT,
    error_type=ANY_TEXT,
    attempts=st.integers(0, 1000),
    group=st.text(),
    failed_at=st.floats(0, 1e12),
)


def letter_with(
    key: bytes | None = None, value: bytes | None = b"v", error: str = ""
) -> DeadLetter:
    """A letter of which little matters."""
    return DeadLetter(
        partition=Partition("orders", "shardId-000000000002"),
        position="17",
        key=key,
        value=value,
        headers=[],
        timestamp=None,
        error=error,
        error_type="rejected",
        attempts=1,
        group="billing",
        failed_at=1.5,
    )


@given(LETTERS)
def test_any_letter_comes_back_as_it_was(letter: DeadLetter) -> None:
    """No value is not an empty one, and a value may have newlines."""
    assert decode_letter(encode_letter(letter)) == letter


@given(LETTERS)
def test_any_letter_has_a_key_that_kinesis_takes(letter: DeadLetter) -> None:
    """1 to 256 characters, of two bytes each in the service's own language."""
    key = partition_key(letter)
    assert 1 <= len(key.encode("utf-16-le")) // 2 <= 256
    assert key == partition_key(letter)


def test_a_letter_is_a_line_of_json_and_the_value_as_it_was() -> None:
    """A person can read it, and a large record does not grow by a third."""
    line, _, value = encode_letter(letter_with(value=b"\xff\n{}")).partition(b"\n")
    assert json.loads(line)["stream"] == "orders"
    assert value == b"\xff\n{}"


def test_a_long_error_is_cut() -> None:
    """So that no error makes a letter too large."""
    assert decode_letter(encode_letter(letter_with(error="x" * 9000))).error == "x" * 8192


@pytest.mark.parametrize(
    "key, fits",
    [
        (b"k", True),
        ("ü".encode() * 256, True),
        (b"k" * 257, False),
        ("😀".encode() * 129, False),
        (b"\xff", False),
        (b"", False),
        (None, False),
    ],
)
def test_a_key_is_kept_where_it_fits(key: bytes | None, *, fits: bool) -> None:
    """Else its digest stands for it, so that one key's letters stay together."""
    found = partition_key(letter_with(key))
    assert (found.encode() == key) is fits
    assert fits or len(found) == 64


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        b"[]\n",
        b"7\n",
        b"{}\n",
        b'{"dead_letter": 2}\n',
        b'{"dead_letter": 1}\n',
        b"[" * 100_000,
        encode_letter(letter_with(b"k")).replace(b'"key": "', b'"key": "!'),
        re.sub(rb'"failed_at": [^,]+', b'"failed_at": "now"', encode_letter(letter_with(b"k"))),
        re.sub(rb'"failed_at": [^,]+', b'"failed_at": NaN', encode_letter(letter_with(b"k"))),
        re.sub(rb'"error": "[^"]*"', b'"error": 7', encode_letter(letter_with(b"k"))),
        re.sub(rb'"headers": .*?\]', b'"headers": [[7, null]]', encode_letter(letter_with(b"k"))),
    ],
)
def test_bytes_that_are_no_letter_say_so(data: bytes) -> None:
    """Whatever else lies in the stream."""
    with pytest.raises(ValueError, match="these bytes are no dead letter"):
        decode_letter(data)
