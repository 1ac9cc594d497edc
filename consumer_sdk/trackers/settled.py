"""What was settled, by position, where the broker wants to hear of each record."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from consumer_sdk.records import Position

__all__ = ["Settled"]


class Settled:
    """Positions on their way to the broker, and those that it has been told of lately.

    The broker redelivers what it has not heard of, and what was on its way when it heard: such a
    record is recognised here, suppressed, and acked again with the native handle of its new
    delivery. (Pulsar's clients forget an ack once it is sent, which proves nothing: an ack that
    was lost, or sent into a closed connection, is a redelivery.)

    Args:
        proof_count: how many positions are remembered after they were flushed.
        proof_age: for how many seconds.
    """

    __slots__ = ("_age", "_count", "_in_air", "_proven", "_told", "pending")

    def __init__(self, proof_count: int, proof_age: float) -> None:
        self._count = proof_count
        self._age = proof_age
        self.pending: dict[Position, Any] = {}
        """Position → native handle, for the next flush."""
        self._in_air: dict[Position, Any] = {}
        self._told: dict[Position, float] = {}
        self._proven: deque[tuple[Position, float]] = deque()

    def add(self, position: Position, native: Any) -> None:
        """A record was settled, or came again although it is: the newest handle counts."""
        self.pending[position] = native

    def __contains__(self, position: Position) -> bool:
        return position in self.pending or position in self._in_air or position in self._told

    def is_disjoint(self, positions: Iterable[Position]) -> bool:
        """None of ``positions`` is known here."""
        known: tuple[dict[Position, Any], ...] = (self.pending, self._in_air, self._told)
        wanted = frozenset(positions)
        return all(wanted.isdisjoint(some) for some in known)

    def take(self) -> list[tuple[Position, Any]]:
        """All that is pending is in the air now."""
        self._in_air, self.pending = self.pending, {}
        return list(self._in_air.items())

    def confirm(self, now: float) -> None:
        """What was in the air has reached the broker."""
        self._told.update(dict.fromkeys(self._in_air, now))
        self._proven.extend((position, now) for position in self._in_air)
        self._in_air = {}
        self.forget(now)

    def put_back(self) -> None:
        """What was in the air goes into the next flush; a newer handle wins."""
        self.pending = self._in_air | self.pending
        self._in_air = {}

    def forget(self, now: float) -> None:
        """Drops what was flushed too long ago, or too many flushed positions ago."""
        proven, told = self._proven, self._told
        while proven and (len(proven) > self._count or proven[0][1] < now - self._age):
            position, at = proven.popleft()
            if told.get(position) == at:  # not told again since
                del told[position]
