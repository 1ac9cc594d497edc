"""Where entries lie: counts and cuts, from a topic's list of ledgers. Pure.

A topic's log is a chain of ledgers, each with entries from 0 on. A ledger's id is larger than those
of the ones before it, and nothing is between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from consumer_sdk.adapters.pulsar.client.ids import Place

__all__ = ["Ledger", "Ledgers", "is_doubtful", "is_lost"]


class Ledger(NamedTuple):
    """One of a topic.

    Attributes:
        entries: how many there are; those of the last one grow.
        size: their bytes.
    """

    id: int
    entries: int
    size: int


class Ledgers:
    """All ledgers of a topic that are not deleted, in order."""

    def __init__(self, ledgers: Sequence[Ledger]) -> None:
        self._ledgers = ledgers

    @classmethod
    def of(cls, internals: Mapping[str, Any]) -> Ledgers:
        """From a topic's ``internalStats``; the list there has nothing of the open ledger."""
        found = [
            Ledger(each["ledgerId"], each["entries"], each["size"])
            for each in internals.get("ledgers", ())
        ]
        if found and not found[-1].entries:
            entries, size = internals["currentLedgerEntries"], internals["currentLedgerSize"]
            found[-1] = Ledger(found[-1].id, max(entries, 0), max(size, 0))
        return cls(found)

    @property
    def first(self) -> Place | None:
        """Where the log begins."""
        return (self._ledgers[0].id, 0, 0) if self._ledgers else None

    @property
    def last(self) -> Place | None:
        """The last entry; None where there is none."""
        filled = [ledger for ledger in self._ledgers if ledger.entries]
        return (filled[-1].id, filled[-1].entries - 1, 0) if filled else None

    @property
    def entries(self) -> int:
        """Of all ledgers."""
        return sum(ledger.entries for ledger in self._ledgers)

    @property
    def size(self) -> int:
        """Bytes of all entries."""
        return sum(ledger.size for ledger in self._ledgers)

    def reaches(self, stop: Place) -> bool:
        """The entries below a stop are counted."""
        last = self.last
        return last is not None and stop[:2] <= (last[0], last[1] + 1)

    def count(self, start: Place, stop: Place) -> int:
        """Entries that have something at or after ``start`` and before ``stop``."""
        return sum(high - low for _, low, high in self._spans(start, stop))

    def first_entry(self, start: Place, stop: Place) -> Place | None:
        """The first entry that `count` counts."""
        for ledger, low, _ in self._spans(start, stop):
            return ledger.id, low, 0
        return None

    def advance(self, start: Place, stop: Place, entries: int) -> Place:
        """The begin of the entry that is ``entries`` after the first one; at most ``stop``.

        From the end of a ledger it goes on in the next one, so that it is above ``start``.
        """
        for ledger, low, high in self._spans(start, stop):
            if entries < high - low:
                return ledger.id, low + entries, 0
            entries -= high - low
        return stop

    def each(self, start: Place, stop: Place) -> Iterator[tuple[int, int]]:
        """The ledger and number of each entry that `count` counts."""
        for ledger, low, high in self._spans(start, stop):
            for entry in range(low, high):
                yield ledger.id, entry

    def back(self, place: Place, entries: int) -> Place:
        """The entry that many before a place; at most the first one of all."""
        if place[1] >= entries:
            return place[0], place[1] - entries, 0
        begin, missing = place[0], entries - place[1]
        for ledger in reversed(self._ledgers):
            if ledger.id < place[0]:
                begin = ledger.id
                if ledger.entries >= missing:
                    return ledger.id, ledger.entries - missing, 0
                missing -= ledger.entries
        return begin, 0, 0

    def _spans(self, start: Place, stop: Place) -> Iterator[tuple[Ledger, int, int]]:
        """The ledgers' shares in a range that are not empty: from and up to which entry."""
        for ledger in self._ledgers:
            low = 0 if ledger.id > start[0] else start[1]
            # An entry with a stop in the middle of it is read too.
            high = ledger.entries if ledger.id < stop[0] else stop[1] + (stop[2] > 0)
            high = min(high, ledger.entries)
            if start[0] <= ledger.id <= stop[0] and low < high:
                yield ledger, low, high


def is_lost(start: Place, stop: Place, first: Place) -> bool:
    """Records of a range are known to be deleted.

    What a deleted ledger had is known only from positions in it: there were entries below a stop, and
    an entry at a start that is a record of a batch, or the position of a record. A start that is an
    entry's begin may well have been the ledger's end; that is how every idle topic without retention
    goes on, so that it is no sign: see `is_doubtful`.

    Args:
        first: where the log begins now.
    """
    if not start < stop or start[0] >= first[0]:
        return False
    has_begun = stop > (stop[0], 0, 0)
    return start[2] > 0 or stop[0] == start[0] or (stop[0] < first[0] and has_begun)


def is_doubtful(start: Place, first: Place) -> bool:
    """Whether records of a range were deleted cannot be told: its start lies in a deleted ledger.

    The broker forgets how many entries a ledger had that it deletes. ``(0, 0, 0)``, which stands for the
    begin of what has nothing, is in no ledger.

    Args:
        first: where the log begins now.
    """
    return start > (0, 0, 0) and start[0] < first[0]
