"""Tokens: sealed bytes of a branch's anchors, and what is not one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk import ConsumerSdkError, TokenFormatError
from consumer_sdk.records.tokens import Anchor, decode_token, encode_token, seal

NUMBER = st.integers(0, 2**64 - 1)
ANCHORS = st.lists(st.builds(Anchor, NUMBER, NUMBER, st.integers(1, 2**64 - 1)), max_size=5)
TOKEN = encode_token([Anchor(1, 2, 3)])


@given(ANCHORS)
def test_token_reads_back(anchors: list[Anchor]) -> None:
    """Whatever the numbers, as bytes or as the bytearray that Spark makes of them."""
    token = encode_token(anchors)

    assert decode_token(token) == decode_token(bytearray(token)) == anchors
    assert len(token) == 7 + 24 * len(anchors)


@given(ANCHORS, st.data())
def test_damaged_token_is_refused(anchors: list[Anchor], data: st.DataObject) -> None:
    """A changed byte or a cut end is a typed error, never another branch."""
    token = bytearray(encode_token(anchors))
    at = data.draw(st.integers(0, len(token) - 1))
    token[at] ^= data.draw(st.integers(1, 255))

    for damaged in (bytes(token), encode_token(anchors)[:at]):
        with pytest.raises(TokenFormatError):
            decode_token(damaged)


@given(st.binary(max_size=100))
def test_any_bytes_are_refused(data: bytes) -> None:
    """Bytes from elsewhere are a typed error."""
    with pytest.raises(TokenFormatError, match="token"):
        decode_token(data)


@pytest.mark.parametrize(
    "token, says",
    [
        (b"", "is not a token"),
        (b"br\x01" + TOKEN[3:], "is not a token"),
        (b"bt\x02" + TOKEN[3:], "another version than 1: upgrade"),
        (TOKEN + b"\0", "32 bytes was cut short or changed"),
        (seal(b"bt\x01", bytes(25)), "no whole number of anchors"),
        (encode_token([Anchor(1, 2, 0)]), "the edge 0"),
        (10**12, "is bytes, not int"),
        (None, "is bytes, not NoneType"),
    ],
)
def test_wrong_token_error_says_what_is_wrong(token: bytes, says: str) -> None:
    """In words that tell what to look for; whoever expects a ValueError gets one."""
    with pytest.raises(TokenFormatError, match=says) as caught:
        decode_token(token)
    assert isinstance(caught.value, ConsumerSdkError)
    assert isinstance(caught.value, ValueError)
