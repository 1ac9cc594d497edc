"""Checkpoints in the metadata of a commit: ``consumer-sdk/1 5f0c9a77 ĂŇ…``.

The head is the same in all versions: a name with the version of the rest; the word ``copy`` where
a store holds the checkpoint; and the *seal*, a digest of the group, topic, partition and offset
that the text was written for. If another program commits an offset, or copies a commit to another place, the seal does
not fit. Then the commit is foreign, and only its offset counts. The rest is the packed binary form of
`consumer_sdk.checkpoints`, or ``-`` if there was no room for it. It is missing if the checkpoint has nothing beside its
offset. If the rest is damaged, only the offset counts.

Packed means 15 bits a character, because the broker counts characters, not bytes. The alphabet is U+0100 to U+80FF: one
UTF-16 unit each, no surrogates, and no character that a broker or a client changes. A bit is set after the last byte,
and the zeros after it are not written. So each text stands for one sequence of bytes, and each sequence of bytes for
one text.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace

from consumer_sdk.checkpoints.binary import fit_checkpoint_bytes
from consumer_sdk.checkpoints.forms import Fitted
from consumer_sdk.errors import CheckpointFormatError, CheckpointMismatchError
from consumer_sdk.records import Checkpoint, Committed, Partition
from consumer_sdk.trackers import decode_checkpoint_bytes

__all__ = [
    "ALPHABET",
    "HEAD_SIZE",
    "MOST",
    "at_offset",
    "offset_of",
    "pack",
    "read_metadata",
    "room",
    "unpack",
    "write_metadata",
]

MOST = 4096
"""UTF-16 units that a broker takes by default (``offset.metadata.max.bytes``)."""
BROKER = "kafka"
VERSION = 1
NAME = "consumer-sdk/"
COPY = "copy "
CUT = " -"
HEAD = re.compile(rf"{NAME}([1-9][0-9]{{0,8}}) ({COPY})?([0-9a-f]{{8}})(.*)", re.DOTALL)
HEAD_SIZE = len(f"{NAME}{VERSION} {COPY}{'':8}{CUT}")
"""UTF-16 units of the longest text without a packed rest: with less, there is none at all."""


def offset_of(checkpoint: Checkpoint) -> int | None:
    """What to commit: the first position that may still be unsettled.

    The resume position can lie beyond ``watermark + 1``: past a gap that compaction or a
    transaction marker left.
    """
    found = [] if checkpoint.resume is None else [int(checkpoint.resume)]
    if checkpoint.watermark is not None:
        found.append(int(checkpoint.watermark) + 1)
    return max(found, default=None)


def at_offset(offset: int) -> Checkpoint:
    """What an offset alone says: everything before it is settled."""
    return Checkpoint(watermark=offset - 1 if offset else None, resume=offset)


def write_metadata(
    checkpoint: Checkpoint,
    offset: int,
    *,
    group: str,
    partition: Partition,
    limit: int,
    is_copy: bool = False,
) -> Fitted:
    """The metadata for a commit.

    Args:
        offset: what is committed; the `offset_of` the checkpoint.
        limit: UTF-16 units. Top ranges and attempts are dropped to fit, then all of them, at
            last the head.
        is_copy: a store holds the checkpoint.
    """
    if limit < HEAD_SIZE:
        return _without_rest("", checkpoint, offset)
    head = f"{NAME}{VERSION} {COPY * is_copy}{_seal(group, partition, offset)}"
    if _is_bare(checkpoint):
        return Fitted(head, None, 0)
    size = room(limit - len(head) - 1)
    fitted = fit_checkpoint_bytes(
        _bound(checkpoint, offset), broker=BROKER, partition=partition, max_size=size
    )
    if len(fitted.data) > size:
        return _without_rest(head + CUT, checkpoint, offset)
    return fitted._replace(data=f"{head} {pack(fitted.data)}")


def _seal(group: str, partition: Partition, offset: int) -> str:
    place = "\0".join((group, partition.stream, partition.id, str(offset)))
    return hashlib.blake2b(place.encode(), digest_size=4).hexdigest()


def _is_bare(checkpoint: Checkpoint) -> bool:
    return replace(checkpoint, watermark=None, resume=None, identity=None) == Checkpoint()


def _without_rest(text: str, checkpoint: Checkpoint, offset: int) -> Fitted:
    return Fitted(text, offset - 1 if checkpoint.ranges else None, len(checkpoint.attempts))


def _bound(checkpoint: Checkpoint, offset: int) -> Checkpoint:
    """The checkpoint with the offset's own watermark and resume position."""
    bare, ranges = at_offset(offset), checkpoint.ranges
    if ranges and ranges[0][0] < offset:  # retention has cut into it
        ranges = tuple((max(first, offset), last) for first, last in ranges if last >= offset)
    return replace(checkpoint, watermark=bare.watermark, resume=offset, ranges=ranges)


def read_metadata(
    text: str | None, offset: int, *, group: str, partition: Partition, identity: str | None
) -> tuple[Committed, str | None]:
    """What a commit says, whoever wrote it; never raises.

    Returns:
        the checkpoint, of the offset alone where the metadata adds nothing to it; and None, or
        what is wrong with the metadata.
    """
    bare, found = at_offset(offset), HEAD.fullmatch(text or "")
    if found is None:
        what = f"{text[:40]!r}" if text else "nothing"
        return Committed(bare, is_foreign=True), f"another program has written {what}"
    version, copy, seal, rest = found.groups()
    if seal != _seal(group, partition, offset):
        what = f"{found[0][:40]!r} was written for another offset or place"
        return Committed(bare, is_foreign=True), what
    committed = Committed(bare, is_copy=copy is not None)
    try:
        checkpoint = _read(int(version), rest, bare, partition, identity)
    except (CheckpointFormatError, CheckpointMismatchError) as error:
        return replace(committed, is_partial=True), str(error)
    return replace(committed, checkpoint=checkpoint), None


def _read(
    version: int, rest: str, bare: Checkpoint, partition: Partition, identity: str | None
) -> Checkpoint:
    if version != VERSION:
        raise CheckpointFormatError(f"it has version {version}, not {VERSION}")
    if not rest:
        return bare
    if rest == CUT:
        raise CheckpointFormatError("the broker's limit left no room for more")
    data = unpack(rest.removeprefix(" "))
    checkpoint = decode_checkpoint_bytes(
        data, broker=BROKER, partition=partition, identity=identity
    )
    if (checkpoint.watermark, checkpoint.resume) != (bare.watermark, bare.resume):
        raise CheckpointFormatError(f"it is of offset {checkpoint.resume!r:.40}")
    return checkpoint


# -- bytes as text ---------------------------------------------------------------------------

BITS = 15
ZERO = 0x100
ALPHABET = range(ZERO, ZERO + (1 << BITS))
"""The code points that are used, in the order of what they stand for."""
BLOCK = 15
"""Bytes that fill whole characters: eight of them."""
SHIFTS = range(BLOCK * 8 - BITS, -1, -BITS)
MASK = (1 << BITS) - 1
END = b"\x80"


def room(characters: int) -> int:
    """Bytes that so many characters hold; negative if not even the end fits."""
    return (characters * BITS - 1) // 8


def pack(data: bytes) -> str:
    """The text for ``data``: eight characters for 15 bytes."""
    whole = data + END
    whole += bytes(-len(whole) % BLOCK)
    characters = []
    for at in range(0, len(whole), BLOCK):
        block = int.from_bytes(whole[at : at + BLOCK])
        characters += [chr(ZERO + (block >> shift & MASK)) for shift in SHIFTS]
    return "".join(characters).rstrip(chr(ZERO))


def unpack(text: str) -> bytes:
    """Reads `pack` back, in time and memory that are linear in the text's length.

    Raises:
        CheckpointFormatError: ``text`` is nothing that `pack` writes.
    """
    digits = [ord(character) - ZERO for character in text]
    if not digits or not digits[-1] or min(digits) < 0 or max(digits) > MASK:
        raise CheckpointFormatError(f"not packed, or cut off: {text[-20:]!r} at the end")
    digits += [0] * (-len(digits) % len(SHIFTS))
    blocks = (digits[at : at + len(SHIFTS)] for at in range(0, len(digits), len(SHIFTS)))
    data, _, padding = b"".join(map(_block, blocks)).rpartition(END)
    if padding.strip(b"\0"):  # text without an end is all padding, and never all zero
        raise CheckpointFormatError(f"packed text that is cut off: {text[-20:]!r} at the end")
    return data


def _block(digits: list[int]) -> bytes:
    block = 0
    for digit in digits:
        block = block << BITS | digit
    return block.to_bytes(BLOCK)
