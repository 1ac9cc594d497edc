"""One manifest's text form."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.spark_bridge.errors import FeedFormatError
from consumer_sdk.spark_bridge.manifest import Manifest
from tests.spark_bridge.unhurried import unhurried

RANGES = st.dictionaries(st.text(), st.lists(st.tuples(st.integers(), st.integers())))
TEXTS = st.dictionaries(st.text(), st.lists(st.text()))
MANIFEST = Manifest(
    number=7, segment="a-0.arrow", rows=3, size=100, crc32=5, ranges={"orders/0": [(1, 3)]}
)


@unhurried
@given(RANGES, TEXTS)
def test_whatever_it_names_is_read_back(
    ranges: dict[str, list[tuple[int, int]]], texts: dict[str, list[str]]
) -> None:
    """``decode`` undoes ``encode``."""
    manifest = Manifest(number=1, segment="s", rows=2, size=3, crc32=4, ranges=ranges, texts=texts)
    assert Manifest.decode(manifest.encode(), 1, "here") == manifest


@unhurried
@given(st.integers(0, len(MANIFEST.encode()) - 2), st.integers(1, 255))
def test_a_changed_byte_is_noticed(at: int, flip: int) -> None:
    """Damage anywhere is a typed error that names the file."""
    data = bytearray(MANIFEST.encode())
    data[at] ^= flip
    with pytest.raises(FeedFormatError, match="here"):
        Manifest.decode(bytes(data), 7, "here")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"7", b"{}", MANIFEST.encode()[:-20]])
def test_a_torn_manifest_is_a_typed_error(data: bytes) -> None:
    """Half a manifest is never taken for a whole one."""
    with pytest.raises(FeedFormatError, match="damaged"):
        Manifest.decode(data, 7, "here")


def test_a_manifest_in_anothers_place_is_refused() -> None:
    """A copy under another number would repeat its records."""
    with pytest.raises(FeedFormatError, match="number 7"):
        Manifest.decode(MANIFEST.encode(), 8, "here")


def test_a_newer_format_is_named() -> None:
    """A later version's manifest says so, rather than that it is damaged."""
    body = {**json.loads(MANIFEST.encode()), "version": 3}
    with pytest.raises(FeedFormatError, match="version 3"):
        Manifest.decode(json.dumps(body).encode(), 7, "here")
