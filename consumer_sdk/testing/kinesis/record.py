"""What is stored."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FakeRecord"]


@dataclass(frozen=True, slots=True)
class FakeRecord:
    """A stored record.

    Attributes:
        sequence: its number.
        key: partition key.
        data: the blob.
        time: of arrival, seconds since the epoch.
    """

    sequence: int
    key: str
    data: bytes
    time: float

    @property
    def size(self) -> int:
        """Bytes of data and key, as AWS counts them."""
        return len(self.data) + len(self.key.encode())
