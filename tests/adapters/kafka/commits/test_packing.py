"""Bytes as text: nothing is changed on the way, and nothing else is read."""

from __future__ import annotations

import time
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.adapters.kafka.commits.packing import ALPHABET, pack, room, unpack
from consumer_sdk.errors import CheckpointFormatError

packable = st.text(st.integers(min(ALPHABET), max(ALPHABET)).map(chr), max_size=64)


@given(st.binary(max_size=200))
def test_bytes_are_read_back(data: bytes) -> None:
    """Whatever they are and end in, in the characters that `room` counts."""
    text = pack(data)
    assert unpack(text) == data
    assert room(len(text) - 1) < len(data) <= room(len(text))
    assert {ord(character) for character in text} <= set(ALPHABET)


@given(packable | st.text(max_size=64))
def test_text_is_refused_or_is_what_its_bytes_are_packed_as(text: str) -> None:
    """There is one text for each row of bytes; nothing but the typed error is raised."""
    try:
        data = unpack(text)
    except CheckpointFormatError:
        return
    assert pack(data) == text


@given(st.binary(max_size=60), st.data())
def test_text_that_is_cut_off_is_never_longer_bytes(data: bytes, draw: st.DataObject) -> None:
    """What a cut leaves is refused or shorter; checksums are for those that use it."""
    text = pack(data)
    cut = text[: draw.draw(st.integers(0, len(text) - 1))]
    with suppress(CheckpointFormatError):
        assert len(unpack(cut)) < len(data)


def test_alphabet_has_one_utf_16_unit_for_each_of_15_bits() -> None:
    """Brokers count these units; surrogates would be two of them, or none."""
    assert len(ALPHABET) == 2**15
    assert all(len(chr(point).encode("utf-16-le")) == 2 for point in ALPHABET)


def test_limit_of_a_broker_holds_7679_bytes() -> None:
    """15 bits a character, less the end."""
    assert room(4096) == 7679
    assert len(pack(b"\xff" * 7679)) == 4096
    assert room(0) < 0


@pytest.mark.parametrize("text", ["", "Ā", "abc", "\ud800", "耀\U0001f600", "ā" * 9, "ÿ耀"])
def test_text_of_others_is_refused(text: str) -> None:
    """The message shows where it ends."""
    with pytest.raises(CheckpointFormatError, match="at the end"):
        unpack(text)


def test_longest_text_that_a_request_carries_is_read_in_little_time_and_memory() -> None:
    """32 767 characters, whatever they are: linear, and no more than some hundred bytes each."""
    tracemalloc.start()
    began = time.process_time()
    for text in ("耿" * 32_767, "Ā" * 32_766 + "耀", "x" * 32_767):
        with suppress(CheckpointFormatError):
            unpack(text)
    elapsed, (_, peak) = time.process_time() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert elapsed < 2.0
    assert peak < 300 * 32_767
