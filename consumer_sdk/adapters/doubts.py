"""How often something is fetched before it counts as unreadable. Pure.

A bit may have flipped between the broker and here, while the log is sound: what cannot be read is
fetched again, by consumers and by ranges alike.
"""

from __future__ import annotations

from consumer_sdk.records import Position

__all__ = ["REFETCHES", "Doubts"]

REFETCHES = 2
"""Times that a position is fetched again; what cannot be read then either is unreadable."""


class Doubts:
    """Failures in a row to read what lies at one position.

    Attributes:
        position: the last that could not be read.
        failures: how often that was.
    """

    __slots__ = ("failures", "position")

    def __init__(self) -> None:
        self.position: Position = None
        self.failures = 0

    def failed_at(self, position: Position) -> int:
        """How often in a row this position could not be read, with this time."""
        self.failures = self.failures + 1 if position == self.position else 1
        self.position = position
        return self.failures
