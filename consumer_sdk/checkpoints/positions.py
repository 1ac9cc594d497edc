"""The text forms of positions, for whoever reads checkpoints without an adapter.

============  =========================  ===================================================
broker        position                   text
============  =========================  ===================================================
``kafka``     offset                     ``41999``
``kinesis``   (sequence, sub-sequence)   ``49590338271490256608559692538361571095921575989136588898:0``
``memory``    number, (entry, index)     ``41999``, ``41999:3``
``pulsar``    (ledger, entry, index)     ``17:4:0``, ``17:5:2147483647``
============  =========================  ===================================================

All are decimal digits without leading zeros, so that a position has one text. A text that is read
here is ordered as its adapter orders it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from consumer_sdk.errors import CheckpointFormatError
from consumer_sdk.records.partitions import Position

__all__ = [
    "BEGINNING",
    "LAST_BATCH_INDEX",
    "LAST_SUB_SEQUENCE",
    "POSITION_READERS",
    "decode_message_id",
    "decode_offset",
    "decode_sequence",
    "encode_message_id",
    "encode_sequence",
]

LAST_BATCH_INDEX = 2**31 - 1
"""The index of a message of Pulsar that was not sent in a batch: it is all of its entry."""

LAST_SUB_SEQUENCE = 2**63 - 1
"""Above every sub-sequence number, which is a Java ``long`` to Amazon's libraries: a position with
it stands for all user records of one Kinesis record."""

BEGINNING = (0, 0)
"""Where a shard of Kinesis begins: below every record, and the place of none."""

NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
"""What a signed 64-bit integer may be; longer digits would cost quadratic time to read."""

SEQUENCE = re.compile(r"0|[1-9][0-9]{0,128}")
"""The pattern of a sequence number in the Kinesis API."""


def encode_sequence(position: tuple[int, int]) -> str:
    """A position of Kinesis as ``sequence:sub-sequence``."""
    return f"{position[0]}:{position[1]}"


def decode_sequence(text: str) -> tuple[int, int]:
    """Reads `encode_sequence` back.

    Raises:
        CheckpointFormatError: ``text`` is something else.
    """
    sequence, colon, sub = text.partition(":")
    if not (colon and SEQUENCE.fullmatch(sequence) and _is_number(sub)):
        raise CheckpointFormatError(
            f"{text[:200]!r} is not a position of Kinesis: sequence:sub-sequence in decimal digits"
        )
    return int(sequence), int(sub)


def _is_number(text: str) -> bool:
    return NUMBER.fullmatch(text) is not None and int(text) <= LAST_SUB_SEQUENCE


def decode_offset(text: str) -> int:
    """Reads an offset's decimal digits.

    Raises:
        CheckpointFormatError: ``text`` is something else.
    """
    if not _is_number(text):
        raise CheckpointFormatError(f"{text[:40]!r} is not an offset in decimal digits")
    return int(text)


def encode_message_id(position: tuple[int, int, int]) -> str:
    """A position of Pulsar as ``ledger:entry:index``."""
    return ":".join(map(str, position))


def decode_message_id(text: str) -> tuple[int, int, int]:
    """Reads `encode_message_id` back.

    Raises:
        CheckpointFormatError: ``text`` is something else.
    """
    numbers = text.split(":", 3)
    if len(numbers) != 3 or not all(map(_is_number, numbers)):  # noqa: PLR2004 - see above
        raise CheckpointFormatError(
            f"{text[:200]!r} is not a position of Pulsar: ledger:entry:index in decimal digits"
        )
    ledger, entry, index = map(int, numbers)
    return ledger, entry, index


def _number_or_entry(text: str) -> Position:
    numbers = tuple(map(decode_offset, text.split(":", 1)))
    return numbers[0] if len(numbers) == 1 else numbers


POSITION_READERS: Mapping[str, Callable[[str], Position]] = {
    "kafka": decode_offset,
    "kinesis": decode_sequence,
    "memory": _number_or_entry,
    "pulsar": decode_message_id,
}
"""Broker → what reads a position's text; raises `CheckpointFormatError` for any other text."""
