"""Checkpoints as few bytes, versioned and checksummed: for where each character counts.

Layout: magic 1 · version 1 · owner 8 · length 2 · identity · what `checkpoint_rows` writes ·
CRC-32 4, where ``owner`` is a digest of broker, stream and partition. A hole takes two bytes where
holes are near to one another and positions are whole numbers: some 3 800 of them fit into the
metadata of a Kafka commit (4 096 characters of 15 bits).
"""

from __future__ import annotations

import hashlib
import struct
import zlib

from consumer_sdk.errors import (
    CheckpointFormatError,
    CheckpointMismatchError,
    ConfigurationError,
)
from consumer_sdk.records import Checkpoint, Partition, Position
from consumer_sdk.trackers.checkpoint_forms import check, covered, match
from consumer_sdk.trackers.checkpoint_rows import MOST_PARTS, read_body, write_body

__all__ = ["decode_checkpoint_bytes", "encode_checkpoint_bytes"]

MAGIC = bytes((0xC5, 1))
"""Ends with the version. No text in ASCII starts so: it is never taken for JSON."""
HEAD = struct.Struct(">2s8sH")
CRC = struct.Struct(">I")
UNKNOWN = 0xFFFF
"""The length of an identity that is None."""
MAX_SIZE = 1_000_000
"""More bytes are not read: they could fill a hundred times as much memory."""


def encode_checkpoint_bytes(
    checkpoint: Checkpoint, *, broker: str, partition: Partition, max_size: int = MAX_SIZE
) -> tuple[bytes, Position | None]:
    """The checkpoint's bytes, within a size budget.

    Due times are kept to the millisecond. The cost is O(what may fit).

    Args:
        checkpoint: what to write. Its positions are whole numbers, or tuples of as many each.
        broker: the adapter's name for what it reads from.
        partition: whose checkpoint it is.
        max_size: bytes. Top ranges and attempts are dropped to fit; a checkpoint without either
            is its identity and some 40 bytes, and is never cut.

    Returns:
        the bytes, and None, or the last position they cover when ranges were dropped: the
        records in them are redelivered.

    Raises:
        ConfigurationError: its positions are of another kind; `encode_checkpoint` takes any.
    """
    try:
        head = _head(checkpoint.identity, _owner(broker, partition))
        room = min(max_size, MAX_SIZE) - len(head) - CRC.size
        body, kept = write_body(checkpoint, room)
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"a checkpoint of {broker} {partition} without a binary form: {error}; positions are "
            f"all whole numbers, or tuples of as many, 1 to {MOST_PARTS}; encode_checkpoint takes any"
        ) from error
    signed = head + body
    return signed + CRC.pack(zlib.crc32(signed)), covered(checkpoint, kept)


def _owner(broker: str, partition: Partition) -> bytes:
    return hashlib.blake2b(f"{broker}/{partition}".encode(), digest_size=8).digest()


def _head(identity: str | None, owner: bytes) -> bytes:
    text = (identity or "").encode("utf-8", "surrogatepass")
    if len(text) >= UNKNOWN:
        raise ValueError(f"an identity of {len(text)} bytes")
    return HEAD.pack(MAGIC, owner, UNKNOWN if identity is None else len(text)) + text


def decode_checkpoint_bytes(
    data: bytes, *, broker: str, partition: Partition, identity: str | None
) -> Checkpoint:
    """Reads `encode_checkpoint_bytes` back.

    Args:
        data: what is stored.
        broker: the adapter's name for what it reads from.
        partition: whose checkpoint is wanted.
        identity: the stream's identity now; None where it is unknown.

    Raises:
        CheckpointFormatError: ``data`` is not a checkpoint of this version.
        CheckpointMismatchError: it belongs to another broker, stream, partition or
            incarnation of the stream.
    """
    signed = _signed(data)
    try:
        owner, stored, body = _split(signed)
        checkpoint = check(read_body(body, stored))
    except ValueError as error:
        raise CheckpointFormatError(f"a checkpoint with a malformed field: {error}") from error
    if owner != _owner(broker, partition):
        raise CheckpointMismatchError(
            f"the checkpoint was made for another broker, stream or partition than {broker!r}, "
            f"{str(partition)!r}; delete it, or use another group or store root"
        )
    if identity is not None and stored is not None:
        match("identity", stored, identity)
    return checkpoint


def _signed(data: bytes) -> bytes:
    """All but the checksum, if that is right."""
    if not HEAD.size + CRC.size < len(data) <= MAX_SIZE:
        raise CheckpointFormatError(f"no checkpoint has {len(data)} bytes: at most {MAX_SIZE}")
    if not data.startswith(MAGIC):
        raise CheckpointFormatError(f"not a checkpoint of version {MAGIC[1]}: {data[:40]!r}")
    signed, checksum = data[: -CRC.size], data[-CRC.size :]
    if checksum != CRC.pack(zlib.crc32(signed)):
        raise CheckpointFormatError(f"a checkpoint with a wrong checksum: {data[:40]!r}")
    return signed


def _split(signed: bytes) -> tuple[bytes, str | None, bytes]:
    """The owner, the identity, and the rest."""
    _, owner, length = HEAD.unpack_from(signed)
    rest = signed[HEAD.size :]
    if length == UNKNOWN:
        return owner, None, rest
    if length > len(rest):
        raise ValueError("an identity that is cut off")
    return owner, rest[:length].decode("utf-8", "surrogatepass"), rest[length:]
