"""Checkpoints as few bytes, versioned and checksummed: for where each character counts.

Layout: magic 1 · version 1 · owner 8 · length 2 · identity · what `checkpoint_rows` writes ·
CRC-32 4, where ``owner`` is a digest of broker, stream and partition. Version 2 has a length of 2 and
the application after the identity. Versions 3 and 4 are 1 and 2 with rows of a kind that releases
before did not know, so that these refuse the whole. The lowest version that can say it is written.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from dataclasses import replace

from consumer_sdk.checkpoints.forms import Fitted, check, covered, match
from consumer_sdk.checkpoints.rows import MOST_PARTS, has_new_rows, read_body, write_body
from consumer_sdk.errors import (
    CheckpointFormatError,
    CheckpointMismatchError,
    ConfigurationError,
)
from consumer_sdk.records import Checkpoint, Partition, Position

__all__ = ["decode_checkpoint_bytes", "encode_checkpoint_bytes", "fit_checkpoint_bytes"]

MAGIC = 0xC5
"""Before the version. No text in ASCII starts so: it is never taken for JSON."""
WITH_APPLICATION = 1
NEW_ROWS = 2
"""What is added to version 1."""
HEAD = struct.Struct(">2s8s")
LENGTH = struct.Struct(">H")
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
        max_size: bytes. Top ranges and attempts are dropped to fit, so that a restart repeats as
            few deliveries as can be; a checkpoint without either is its identity, its application
            and some 40 bytes, and is never cut.

    Returns:
        the bytes, and None, or the last position they cover when ranges were dropped: the
        records in them are redelivered.

    Raises:
        ConfigurationError: its positions are of another kind; `encode_checkpoint` takes any.
    """
    return fit_checkpoint_bytes(checkpoint, broker=broker, partition=partition, max_size=max_size)[
        :2
    ]


def fit_checkpoint_bytes(
    checkpoint: Checkpoint, *, broker: str, partition: Partition, max_size: int
) -> Fitted:
    """`encode_checkpoint_bytes`, which also says how many attempts were dropped."""
    if checkpoint.unseen:  # of a broker whose commits carry no bytes: what is settled has no form
        checkpoint = replace(checkpoint, watermark=None, ranges=(), unseen=())
    try:
        names = _names(checkpoint)
        room = min(max_size, MAX_SIZE) - HEAD.size - len(names) - CRC.size
        body, ranges, attempts = write_body(checkpoint, room)
        version = _version(checkpoint.application is not None, body)
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"a checkpoint of {broker} {partition} without a binary form: {error}; positions are "
            f"all whole numbers, or tuples of as many, 1 to {MOST_PARTS}; encode_checkpoint takes any"
        ) from error
    signed = HEAD.pack(version, _owner(broker, partition)) + names + body
    data = signed + CRC.pack(zlib.crc32(signed))
    return Fitted(data, covered(checkpoint, ranges), len(checkpoint.attempts) - attempts)


def _owner(broker: str, partition: Partition) -> bytes:
    return hashlib.blake2b(f"{broker}/{partition.path}".encode(), digest_size=8).digest()


def _version(has_application: bool, body: bytes) -> bytes:  # noqa: FBT001 - a bit of it
    version = 1 + WITH_APPLICATION * has_application + NEW_ROWS * has_new_rows(body)
    return bytes((MAGIC, version))


def _names(checkpoint: Checkpoint) -> bytes:
    identity = _named("identity", checkpoint.identity)
    if checkpoint.application is None:
        return identity
    return identity + _named("application", checkpoint.application)


def _named(what: str, name: str | None) -> bytes:
    text = (name or "").encode("utf-8", "surrogatepass")
    if len(text) >= UNKNOWN:
        raise ValueError(f"an {what} of {len(text)} bytes")
    return LENGTH.pack(UNKNOWN if name is None else len(text)) + text


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
        version, owner = HEAD.unpack_from(signed)
        stored, body = _name(signed[HEAD.size :], "identity")
        application, body = _application(version, body)
        checkpoint = check(replace(read_body(body, stored), application=application))
    except ValueError as error:
        raise CheckpointFormatError(f"a checkpoint with a malformed field: {error}") from error
    if owner != _owner(broker, partition):
        raise CheckpointMismatchError(
            f"the checkpoint was made for another broker, stream or partition than {broker!r}, "
            f"{partition.path!r}; delete it, or use another group or store root"
        )
    if identity is not None and stored is not None:
        match("identity", stored, identity)
    return checkpoint


def _signed(data: bytes) -> bytes:
    """All but the checksum, if that is right."""
    if not HEAD.size + LENGTH.size + CRC.size < len(data) <= MAX_SIZE:
        raise CheckpointFormatError(f"no checkpoint has {len(data)} bytes: at most {MAX_SIZE}")
    if data[0] != MAGIC or not 1 <= data[1] <= 1 + WITH_APPLICATION + NEW_ROWS:
        raise CheckpointFormatError(f"not a checkpoint of versions 1 to 4: {data[:40]!r}")
    signed, checksum = data[: -CRC.size], data[-CRC.size :]
    if checksum != CRC.pack(zlib.crc32(signed)):
        raise CheckpointFormatError(f"a checkpoint with a wrong checksum: {data[:40]!r}")
    return signed


def _application(version: bytes, data: bytes) -> tuple[str | None, bytes]:
    """The application and the rows. What another version says would be a second way to write it."""
    has_one = bool(version[1] - 1 & WITH_APPLICATION)
    name, rest = _name(data, "application") if has_one else (None, data)
    if has_one and name is None:
        raise ValueError("no application")
    if version != _version(has_one, rest):
        raise ValueError(f"version {version[1]}, and rows of another")
    return name, rest


def _name(data: bytes, what: str) -> tuple[str | None, bytes]:
    """The text that ``data`` begins with, None for none, and the rest."""
    length, rest = int.from_bytes(data[: LENGTH.size], "big"), data[LENGTH.size :]
    if length == UNKNOWN:
        return None, rest
    if length > len(rest):
        raise ValueError(f"an {what} that is cut off")
    return rest[:length].decode("utf-8", "surrogatepass"), rest[length:]
