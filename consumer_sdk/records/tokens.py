"""Branches as bytes, for other processes; a checksum detects damage.

A sealed value is two bytes that say what it is, one byte of version, the body, and the CRC-32 of
all that. The checksum is against accidents, not against attackers: whoever can make tokens can
settle branches.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from consumer_sdk.errors import TokenFormatError

__all__ = ["Anchor", "Bytes", "decode_token", "encode_token", "seal", "unseal"]

Bytes: TypeAlias = bytes | bytearray | memoryview
"""Spark hands binary columns over as bytearrays."""

TOKEN = b"bt\x01"
_CHECKSUM = struct.Struct("<I")
_ANCHOR = struct.Struct("<QQQ")


class Anchor(NamedTuple):
    """One edge of one tree, as another process knows it.

    Attributes:
        table: the random 64-bit number of the assignment's tree tracker.
        root: the tree's number there.
        edge: what remains to be XORed for the branch; its identity, since it is random.
    """

    table: int
    root: int
    edge: int


def encode_token(anchors: Iterable[Anchor]) -> bytes:
    """31 bytes for a branch with one anchor, 24 more for each further one."""
    return seal(TOKEN, b"".join(_ANCHOR.pack(*anchor) for anchor in anchors))


def decode_token(token: Bytes) -> list[Anchor]:
    """Reads `encode_token` back.

    Raises:
        TokenFormatError: these are not the bytes of a token.
    """
    body = unseal(TOKEN, token, "a token")
    if len(body) % _ANCHOR.size:
        raise TokenFormatError(f"a token of {len(body)} bytes holds no whole number of anchors")
    anchors = [Anchor(*fields) for fields in _ANCHOR.iter_unpack(body)]
    if not all(anchor.edge for anchor in anchors):
        raise TokenFormatError("a token with the edge 0, which no branch has")
    return anchors


def seal(kind: bytes, body: bytes) -> bytes:
    """``kind`` (two bytes and the version), ``body`` and their checksum."""
    return kind + body + _CHECKSUM.pack(zlib.crc32(body, zlib.crc32(kind)))


def unseal(kind: bytes, data: Bytes, name: str) -> bytes:
    """The body of a sealed value.

    Args:
        kind: what it has to be.
        data: the value.
        name: how the error calls it.

    Raises:
        TokenFormatError: it is something else, of another version, cut short or changed.
    """
    if not isinstance(data, Bytes):
        raise TokenFormatError(f"{name} is bytes, not {type(data).__name__}")
    data = bytes(data)
    if data[:2] != kind[:2]:
        raise TokenFormatError(f"{data[:16]!r} is not {name} of this SDK")
    if data[2:3] != kind[2:]:
        raise TokenFormatError(f"{name} of another version than {kind[2]}: upgrade this process")
    body = data[3:-4]
    if seal(kind, body) != data:
        raise TokenFormatError(f"{name} of {len(data)} bytes was cut short or changed on its way")
    return body
