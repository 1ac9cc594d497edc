"""What was settled, by position, where the broker wants to hear of each record."""

from __future__ import annotations

import math
from typing import Any

from consumer_sdk.records import Position

__all__ = ["Settled"]


class Settled:
    """Positions on their way to the broker, and those that it has been told of lately.

    The broker redelivers what it has not heard of, and what was on its way when it heard: such a
    record is recognised here, suppressed, and acked again with the native handle of its new
    delivery. (Pulsar's clients forget an ack once it is sent, which proves nothing: an ack that
    was lost, or sent into a closed connection, is a redelivery.)

    Two generations are remembered: when the younger one is full or old, the older one goes. So a
    flushed position is recognised for at least ``proof_count`` further positions or
    ``proof_age`` seconds, whichever comes first, and for twice that at most. (Storm's RotatingMap;
    an exact window would cost more for each record than all the rest of its ack.)

    Args:
        proof_count: flushed positions in a generation.
        proof_age: seconds.
    """

    __slots__ = ("_age", "_count", "_in_air", "_older", "_since", "_told", "pending")

    def __init__(self, proof_count: int, proof_age: float) -> None:
        self._count = proof_count
        self._age = proof_age
        self.pending: dict[Position, Any] = {}
        """Position → native handle, for the next flush."""
        self._in_air: dict[Position, Any] = {}
        self._told: set[Position] = set()
        self._older: set[Position] = set()
        self._since = -math.inf

    def add(self, position: Position, native: Any) -> None:
        """A record was settled, or came again although it is: the newest handle counts."""
        self.pending[position] = native

    def __contains__(self, position: Position) -> bool:
        known = (self.pending, self._in_air, self._told, self._older)
        return any(position in some for some in known)

    def knows(self, positions: frozenset[Position]) -> bool:
        """One of ``positions`` is known here."""
        known = (self.pending.keys(), self._in_air.keys(), self._told, self._older)
        return not all(some.isdisjoint(positions) for some in known)

    def take(self) -> list[tuple[Position, Any]]:
        """All that is pending is in the air now."""
        self._in_air, self.pending = self.pending, {}
        return list(self._in_air.items())

    def confirm(self, now: float) -> None:
        """What was in the air has reached the broker."""
        if len(self._told) >= self._count or now - self._since >= self._age:
            self._older, self._told, self._since = self._told, set(), now
        self._told.update(self._in_air)
        self._in_air = {}

    def put_back(self) -> None:
        """What was in the air goes into the next flush; a newer handle wins."""
        self.pending = self._in_air | self.pending
        self._in_air = {}
