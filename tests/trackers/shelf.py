"""Where the drivers keep what is durable: as text and as bytes in turn."""

from __future__ import annotations

from consumer_sdk.records import Checkpoint, Position
from tests.trackers.codec import decode, decode_bytes, encode, encode_bytes, position_of

SHARE = 6
"""Text takes so many times the room of bytes."""


class Shelf:
    """The last checkpoint that was stored.

    Args:
        words: positions are words, which have no binary form; nor has what was not seen.
    """

    def __init__(self, *, words: bool = False) -> None:
        self.words = words
        self.saves = 0
        self.saved: str | bytes | None = None

    def save(self, checkpoint: Checkpoint, size: int = 1_000_000) -> Position | None:
        """Stores what fits; the last position that it covers if that is not all."""
        self.saves += 1
        if self.saves % 2 or self.words or checkpoint.unseen:
            self.saved, covered = encode(checkpoint, size)
        else:
            self.saved, covered = encode_bytes(checkpoint, size // SHARE)
        return covered

    def load(self) -> Checkpoint:
        """What a restart finds."""
        if self.saved is None:
            return Checkpoint()
        if isinstance(self.saved, bytes):
            return decode_bytes(self.saved)
        return decode(self.saved, read=str if self.words else position_of)
