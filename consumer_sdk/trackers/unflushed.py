"""Records that were settled, by position, of a broker that has to be told of each of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from consumer_sdk.records import Position, SettledRecords
from consumer_sdk.trackers.chunks import kept

__all__ = ["RecentlySettled", "Unflushed"]


class Unflushed:
    """Settled records on their way to the broker: for the next flush, or in the air.

    Attributes:
        positions, natives: what was settled since the last flush, side by side, each once. Whoever
            settles a record appends to both; nothing is hashed, since most are never looked for.
        again: what else is pending, by position.
    """

    __slots__ = ("_in_air", "again", "natives", "positions")

    def __init__(self) -> None:
        self.positions: list[Position] = []
        self.natives: list[Any] = []
        self.again: dict[Position, Any] = {}
        self._in_air = SettledRecords((), ())

    def __len__(self) -> int:
        """How many are pending."""
        return len(self.again) + len(self.positions)

    def add(self, position: Position, native: Any) -> None:
        """A record came again although it is settled: the newest handle counts."""
        self._by_position()[position] = native

    def _by_position(self) -> dict[Position, Any]:
        """All that is pending."""
        self.again.update(zip(self.positions, self.natives, strict=True))
        self.positions, self.natives = [], []
        return self.again

    @property
    def pending(self) -> SettledRecords:
        """Position and native handle of each, for the next flush."""
        if not self.again:
            return SettledRecords(self.positions, self.natives)
        return SettledRecords([*self.again, *self.positions], [*self.again.values(), *self.natives])

    def take(self) -> SettledRecords:
        """All that is pending is in the air now."""
        self._in_air = self.pending
        self.positions, self.natives, self.again = [], [], {}
        return self._in_air

    def confirm(self) -> None:
        """What was in the air has reached the broker."""
        self._in_air = SettledRecords((), ())

    def put_back(self) -> None:
        """What was in the air goes into the next flush; a newer handle wins."""
        held = {position: kept(native) for position, native in self._in_air}
        self.again = held | self._by_position()
        self.confirm()


class Known:
    """Positions that are hashed once somebody looks for one.

    Args:
        hashed: some.
        listed: others, each once.
    """

    __slots__ = ("_hashed", "_in_lists", "_listed")

    def __init__(self, hashed: Iterable[Position] = (), listed: Sequence[Position] = ()) -> None:
        self._hashed = set(hashed)
        self._listed = [listed] if listed else []
        self._in_lists = len(listed)

    def __len__(self) -> int:
        return len(self._hashed) + self._in_lists

    def all(self) -> set[Position]:
        """Each of them."""
        self._hashed.update(*self._listed)
        self._listed.clear()
        self._in_lists = 0
        return self._hashed

    def merge(self, other: Known) -> None:
        """Takes over what is in ``other``; what is listed there is not known here."""
        if other._hashed:
            self.all().update(other._hashed)
        self._listed += other._listed
        self._in_lists += other._in_lists


class RecentlySettled(Unflushed):
    """Positions on their way to the broker, and those that it has been told of lately.

    The broker redelivers what it has not heard of, and what was on its way when it heard: such a
    record is recognised here, suppressed, and acked again with the native handle of its new
    delivery. (Pulsar's clients forget an ack once it is sent, which proves nothing: an ack that
    was lost, or sent into a closed connection, is a redelivery.)

    Two generations are remembered. A flush that finds the younger one full or old begins another,
    and the older one goes. So a flushed position is recognised for at least ``proof_count``
    further positions or ``proof_age`` seconds, whichever comes first. It is forgotten after twice
    so many positions, and those of two flushes beyond; by age it is forgotten by the second flush
    that finds a generation old, or by a run that comes after that time: an operator may have set
    an idle subscription back. (Storm's RotatingMap; an exact window would cost more for each
    record than all the rest of its ack.)

    Args:
        proof_count: flushed positions in a generation.
        proof_age: seconds.
    """

    __slots__ = ("_age", "_count", "_flying", "_older", "_since", "_told")

    def __init__(self, proof_count: int, proof_age: float) -> None:
        super().__init__()
        self._count = proof_count
        self._age = proof_age
        self._flying = Known()
        self._told = Known()
        self._older = Known()
        self._since = -math.inf

    def _known(self) -> Iterator[AbstractSet[Position]]:
        yield self._by_position().keys()
        yield from (some.all() for some in (self._flying, self._told, self._older))

    def __contains__(self, position: Position) -> bool:
        return any(position in some for some in self._known())

    def knows(self, positions: frozenset[Position]) -> bool:
        """One of ``positions`` is known here."""
        return not all(some.isdisjoint(positions) for some in self._known())

    def take(self) -> SettledRecords:
        self._flying = Known(self.again, self.positions)
        return super().take()

    def forget_old(self, now: float) -> None:
        """Time has passed, maybe without a flush: what was flushed long ago is not known any more."""
        age = now - self._since
        if age >= self._age:
            self._older = self._told if age < 2 * self._age else Known()
            self._told, self._since = Known(), now

    def remember(self, now: float) -> None:
        """What was in the air has reached the broker: it is known for a while yet."""
        if len(self._told) >= self._count or now - self._since >= self._age:
            self._older, self._told, self._since = self._told, Known(), now
        self._told.merge(self._flying)
        self._flying = Known()
        self.confirm()
