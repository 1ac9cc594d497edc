"""What was settled, by position, where the broker wants to hear of each record."""

from __future__ import annotations

import math
from typing import Any

from consumer_sdk.records import Position
from consumer_sdk.trackers.chunks import kept

__all__ = ["Settled", "Unsent"]


class Unsent:
    """Settled records on their way to the broker: for the next flush, or in the air."""

    __slots__ = ("_in_air", "pending")

    def __init__(self) -> None:
        self.pending: dict[Position, Any] = {}
        """Position → native handle, for the next flush."""
        self._in_air: dict[Position, Any] = {}

    def add(self, position: Position, native: Any) -> None:
        """A record was settled, or came again although it is: the newest handle counts."""
        self.pending[position] = native

    def take(self) -> list[tuple[Position, Any]]:
        """All that is pending is in the air now."""
        self._in_air, self.pending = self.pending, {}
        return list(self._in_air.items())

    def confirm(self) -> None:
        """What was in the air has reached the broker."""
        self._in_air = {}

    def put_back(self) -> None:
        """What was in the air goes into the next flush; a newer handle wins."""
        held = {position: kept(native) for position, native in self._in_air.items()}
        self.pending = held | self.pending
        self._in_air = {}


class Settled(Unsent):
    """Positions on their way to the broker, and those that it has been told of lately.

    The broker redelivers what it has not heard of, and what was on its way when it heard: such a
    record is recognised here, suppressed, and acked again with the native handle of its new
    delivery. (Pulsar's clients forget an ack once it is sent, which proves nothing: an ack that
    was lost, or sent into a closed connection, is a redelivery.)

    Two generations are remembered. A flush that finds the younger one full or old begins another,
    and the older one goes. So a flushed position is recognised for at least ``proof_count``
    further positions or ``proof_age`` seconds, whichever comes first. It is forgotten after twice
    so many positions, and those of two flushes beyond; by age it is forgotten by the second flush
    that finds a generation old: where nothing is flushed, nothing is. (Storm's RotatingMap; an
    exact window would cost more for each record than all the rest of its ack.)

    Args:
        proof_count: flushed positions in a generation.
        proof_age: seconds.
    """

    __slots__ = ("_age", "_count", "_older", "_since", "_told")

    def __init__(self, proof_count: int, proof_age: float) -> None:
        super().__init__()
        self._count = proof_count
        self._age = proof_age
        self._told: set[Position] = set()
        self._older: set[Position] = set()
        self._since = -math.inf

    def __contains__(self, position: Position) -> bool:
        known = (self.pending, self._in_air, self._told, self._older)
        return any(position in some for some in known)

    def knows(self, positions: frozenset[Position]) -> bool:
        """One of ``positions`` is known here."""
        known = (self.pending.keys(), self._in_air.keys(), self._told, self._older)
        return not all(some.isdisjoint(positions) for some in known)

    def remember(self, now: float) -> None:
        """What was in the air has reached the broker: it is known for a while yet."""
        if len(self._told) >= self._count or now - self._since >= self._age:
            self._older, self._told, self._since = self._told, set(), now
        self._told.update(self._in_air)
        self.confirm()
