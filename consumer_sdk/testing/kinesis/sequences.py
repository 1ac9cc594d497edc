"""Sequence numbers: 56 digits, laid out as Kinesis does.

From the top, in hexadecimal digits: ``2``, the second in which the shard was made (9), the last
digit of the shard's number (1), the record's index (16), two zeros, the second of the record's
arrival (9), the shard's number (8), ``2``. So they grow within a shard, a child's are above its
parent's, and the number after one that was given is not one.
"""

from __future__ import annotations

__all__ = ["LAST_INDEX", "compose", "index_of"]

LAST_INDEX = 2**63 - 1
"""The index in the ending sequence number of a closed shard, as on AWS."""


def compose(born: int, shard: int, index: int, second: int) -> int:
    """The sequence number of a record.

    Args:
        born: second in which the shard was made.
        shard: its number.
        index: 0 is the shard's start, 1 its first record.
        second: of the arrival.
    """
    top = 2 << 184 | born << 148 | (shard & 15) << 144
    return top | index << 80 | second << 36 | shard << 4 | 2


def index_of(sequence: int, born: int, shard: int) -> int | None:
    """The index in a sequence number of this shard; None: it is none of its."""
    index = (sequence >> 80) & (2**64 - 1)
    second = (sequence >> 36) & (2**36 - 1)
    return index if compose(born, shard, index, second) == sequence else None
