"""What a position is: a number to a consumer group, an entry and an index to a subscription."""

from __future__ import annotations

from typing import Protocol

from consumer_sdk.adapters.memory.log import PartitionLog
from consumer_sdk.checkpoints.positions import decode_offset
from consumer_sdk.records import Position

__all__ = ["ENTRIES", "NUMBERS", "Positions"]


class Positions(Protocol):
    """How positions look from outside."""

    def at(self, log: PartitionLog, number: int) -> Position:
        """The position of the record that is stored under a number."""
        ...

    def encode(self, position: Position) -> str:
        """Its text form."""
        ...

    def decode(self, text: str) -> Position:
        """Reads `encode` back.

        Raises:
            CheckpointFormatError: ``text`` is no position.
        """
        ...


class Numbers:
    """Whole numbers, as a log counts them."""

    def at(self, log: PartitionLog, number: int) -> int:  # noqa: ARG002 - they are the same
        return number

    def encode(self, position: int) -> str:
        return str(position)

    def decode(self, text: str) -> int:
        return decode_offset(text)


class Entries:
    """``(entry, index)``: an entry has the number of its first record."""

    def at(self, log: PartitionLog, number: int) -> tuple[int, int]:
        return log.place(number)

    def encode(self, position: tuple[int, int]) -> str:
        return f"{position[0]}:{position[1]}"

    def decode(self, text: str) -> tuple[int, int]:
        entry, _, index = text.partition(":")
        return decode_offset(entry), decode_offset(index)


NUMBERS = Numbers()
ENTRIES = Entries()
