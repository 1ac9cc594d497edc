"""What one answer has brought of one partition, before anything of it is decoded. Pure."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from consumer_sdk.adapters.kafka.decoding.record_batches import FORMAT_OF_BATCHES
from consumer_sdk.adapters.kafka.decoding.unpacking import AHEAD

__all__ = ["Chunk", "Fault", "Reach", "reach_of"]

HEAD = struct.Struct(">qiib")
"""First offset, length of what follows it, the leader's epoch (of an old format the checksum), format."""
BEFORE_LENGTH = 12
LEAST_BATCH, LEAST_MESSAGE = 49, 14
"""Bytes behind the length: of an empty batch, and of a message of the oldest format."""
LAST_DELTA = struct.Struct(">i")
LAST_DELTA_AT, ATTRIBUTES_AT, OLD_ATTRIBUTES_AT = 23, 22, 17
CODEC = 0x07
TRANSACTIONAL = 0x10
NO_EPOCH = -1
OVERHEAD = 512
"""Bytes that a chunk takes besides its batches."""


class Reach(NamedTuple):
    """How far complete batches go, by their heads, which no checksum has been compared with yet.

    Attributes:
        end: the offset behind the last one.
        epoch: of the leader that wrote it; -1 for old formats.
        is_compressed: one of them is.
        is_transactional: one of them is.
    """

    end: int
    epoch: int
    is_compressed: bool
    is_transactional: bool = False


def reach_of(data: bytes) -> Reach | None:
    """Walks the heads; None where there is no complete batch."""
    at, size, last, codecs = 0, len(data), -1, 0
    unpack = HEAD.unpack_from
    while at + HEAD.size <= size:
        _first, length, _epoch, magic = unpack(data, at)
        is_old = magic < FORMAT_OF_BATCHES
        end = at + BEFORE_LENGTH + length
        if length < (LEAST_MESSAGE if is_old else LEAST_BATCH) or end > size:
            break
        codecs |= data[at + (OLD_ATTRIBUTES_AT if is_old else ATTRIBUTES_AT)]
        last, at = at, end
    if last < 0:
        return None
    first, _length, epoch, magic = unpack(data, last)
    if magic < FORMAT_OF_BATCHES:
        return Reach(first + 1, NO_EPOCH, bool(codecs & CODEC))
    (delta,) = LAST_DELTA.unpack_from(data, last + LAST_DELTA_AT)
    return Reach(first + delta + 1, epoch, bool(codecs & CODEC), bool(codecs & TRANSACTIONAL))


class Fault(NamedTuple):
    """Nothing more comes of a partition before this was dealt with."""

    error: Exception


class Chunk:
    """Record batches of one partition from one answer.

    Attributes:
        position: the offset that was asked for.
        end: the offset behind it.
        epoch: of its last batch.
        size: bytes that it takes.
        aborted: producer and first offset of each aborted transaction in it.
        highwater: the partition's high watermark, as the answer says.
        continues: the position is where a batch has ended.
        is_sure: what comes behind it may be asked for before it was read.
        unpacker: reads it; None before it is first looked at.
    """

    __slots__ = (
        "aborted",
        "continues",
        "data",
        "end",
        "epoch",
        "highwater",
        "is_compressed",
        "is_sure",
        "position",
        "size",
        "unpacker",
    )

    def __init__(
        self,
        data: bytes,
        position: int,
        reach: Reach,
        *,
        aborted: Sequence[tuple[int, int]] = (),
        highwater: int = -1,
        continues: bool = False,
    ) -> None:
        self.data = data
        self.position = position
        self.end, self.epoch, self.is_compressed, _ = reach
        self.size = len(data) + OVERHEAD
        self.aborted = aborted
        self.highwater = highwater
        self.continues = continues
        # A bit in a head: the next request would ask for what there is not, or leave a gap.
        self.is_sure = position < self.end <= highwater + AHEAD
        self.unpacker: Any = None

    def left(self, position: int) -> int:
        """Bytes that are left of it, about, when it was read up to a position."""
        span = self.end - self.position
        if span <= 0:
            return self.size
        return self.size * min(max(self.end - position, 0), span) // span
