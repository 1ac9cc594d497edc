"""One manifest's text form."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.spark_bridge.errors import FeedFormatError
from consumer_sdk.spark_bridge.feed.manifests import Manifest, encode
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


def sealed(**changes: object) -> bytes:
    """A manifest with a right checksum that no feed has written."""
    body = {**json.loads(MANIFEST.encode()), **changes}
    return encode({k: v for k, v in body.items() if k not in {"version", "checksum"}})


@pytest.mark.parametrize(
    "segment",
    ["../../victim.txt", "a/b", "/etc/passwd", "..", ".", "", "a\0b", "\udc80", "x" * 300, 7, None],
)
def test_segment_that_leads_elsewhere_is_refused(segment: object) -> None:
    """Retention deletes segments, and readers map them: the name may not leave the folder."""
    with pytest.raises(FeedFormatError, match="here is damaged"):
        Manifest.decode(sealed(segment=segment), 7, "here")


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": "3"},
        {"at": None},
        {"ranges": []},
        {"ranges": {"orders/0": [[1]]}},
        {"ranges": {"orders/0": [[1, "3"]]}},
        {"ranges": {"orders/0": [7]}},
        {"texts": {"orders/0": "abc"}},
        {"texts": {"orders/0": [1]}},
        {"writer": ["w", 1]},
        {"writer": ["w", 1, 2, 3]},
    ],
)
def test_sealed_field_of_another_kind_is_a_typed_error(changes: dict[str, object]) -> None:
    """Its name and the file are said."""
    with pytest.raises(FeedFormatError, match=f"here is damaged: its '{next(iter(changes))}'"):
        Manifest.decode(sealed(**changes), 7, "here")


def test_nesting_without_end_is_a_typed_error() -> None:
    """Deeper than the JSON reader goes."""
    with pytest.raises(FeedFormatError, match="here is damaged"):
        Manifest.decode(b"[" * 100_000, 7, "here")


def test_a_manifest_in_anothers_place_is_refused() -> None:
    """A copy under another number would repeat its records."""
    with pytest.raises(FeedFormatError, match="number 7"):
        Manifest.decode(MANIFEST.encode(), 8, "here")


def test_a_newer_format_is_named() -> None:
    """A later version's manifest says so, rather than that it is damaged."""
    body = {**json.loads(MANIFEST.encode()), "version": 3}
    with pytest.raises(FeedFormatError, match="version 3"):
        Manifest.decode(json.dumps(body).encode(), 7, "here")
