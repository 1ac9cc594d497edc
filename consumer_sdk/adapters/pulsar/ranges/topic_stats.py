"""The broker's statistics of a topic's log: its ledgers, its entries, and how many records they have.

A topic's log is a chain of ledgers, each with entries from 0 on. A ledger's id is larger than those of the
ledgers before it, and nothing lies between them. An entry is a producer's batch, a single message, or a chunk
of a large message.

- `Ledgers` is the list of ledgers, and counts and cuts ranges. It is pure; so are `is_lost` and `is_doubtful`.
- `Sizes` estimates records and bytes of ranges.
- `Entries` tells what single entries are, where some of them were not received.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from consumer_sdk.adapters.pulsar.client.admin import Admin, Entry
from consumer_sdk.adapters.pulsar.client.ids import Place
from consumer_sdk.adapters.pulsar.client.topics import topic_of
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.range_reads import PartitionRange
from consumer_sdk.records import Partition

__all__ = ["Entries", "Ledger", "Ledgers", "Sizes", "is_doubtful", "is_lost"]


class Ledger(NamedTuple):
    """One ledger of a topic.

    Attributes:
        entries: how many it has; the last ledger still grows.
        size: bytes of its entries.
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
        """The position at which the log begins; None where there is no ledger."""
        return (self._ledgers[0].id, 0, 0) if self._ledgers else None

    @property
    def last(self) -> Place | None:
        """The position of the last entry; None where there is no entry."""
        filled = [ledger for ledger in self._ledgers if ledger.entries]
        return (filled[-1].id, filled[-1].entries - 1, 0) if filled else None

    @property
    def entries(self) -> int:
        """Entries of all ledgers."""
        return sum(ledger.entries for ledger in self._ledgers)

    @property
    def size(self) -> int:
        """Bytes of all entries."""
        return sum(ledger.size for ledger in self._ledgers)

    def reaches(self, stop: Place) -> bool:
        """The list has all entries below a stop."""
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
        """The entry ``entries`` before a place; the first of all, if there are fewer."""
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
        """Each ledger that has entries in a range, with the first of them and the one behind the last."""
        for ledger in self._ledgers:
            low = 0 if ledger.id > start[0] else start[1]
            # An entry with a stop in the middle of it is read too.
            high = ledger.entries if ledger.id < stop[0] else stop[1] + (stop[2] > 0)
            high = min(high, ledger.entries)
            if start[0] <= ledger.id <= stop[0] and low < high:
                yield ledger, low, high


def is_lost(start: Place, stop: Place, first: Place) -> bool:
    """Whether records of a range are known to be deleted.

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
    """Whether nobody can tell if records of a range were deleted: its start lies in a deleted ledger.

    The broker forgets how many entries a ledger had that it deletes. ``(0, 0, 0)``, which stands for the
    begin of what has nothing, is in no ledger.

    Args:
        first: where the log begins now.
    """
    return start > (0, 0, 0) and start[0] < first[0]


# -- records and bytes ------------------------------------------------------------------------

FRESH = 1.0
"""Seconds for which an answer is used again: one plan asks for many parts of a range."""


class Sizes:
    """Estimates how many records ranges have, and how large these are.

    The statistics count entries. How many records an entry has is the mean since the broker loaded the
    topic; if nothing was written since, it is that of the first entry in question.

    Args:
        admin: the REST API; None: every question raises.
    """

    def __init__(self, admin: Admin | None) -> None:
        self._known_admin = admin
        self._seen: dict[Partition, tuple[float, dict[str, Any]]] = {}
        self._means: dict[Partition, float] = {}

    @property
    def _admin(self) -> Admin:
        if self._known_admin is None:
            raise ConfigurationError(
                "how many records a range of Pulsar has is told by the REST API alone: give admin_url=…"
            )
        return self._known_admin

    async def records(self, wanted: PartitionRange) -> int:
        """About how many records a range has; 0 if it has no entry.

        Raises:
            ConfigurationError: there is no admin_url.
            AdapterError: the broker does not answer, or refuses.
        """
        partition, start, stop = wanted
        ledgers = await self._ledgers(partition, stop)
        entries = ledgers.count(start, stop)
        mean = await self._mean(partition, ledgers.first_entry(start, stop))
        return round(entries * mean)

    async def cut(self, wanted: PartitionRange, records: int) -> Place:
        """The begin of an entry about that many records after the start.

        Raises:
            ConfigurationError: there is no admin_url.
            AdapterError: the broker does not answer, or refuses.
        """
        partition, start, stop = wanted
        ledgers = await self._ledgers(partition, stop)
        mean = await self._mean(partition, ledgers.first_entry(start, stop))
        return ledgers.advance(start, stop, max(round(records / mean), 1))

    async def record_size(self, partition: Partition) -> float | None:
        """About how many stored bytes a record takes; None where there are none.

        Raises:
            ConfigurationError: there is no admin_url.
            AdapterError: the broker does not answer, or refuses.
        """
        ledgers = await self._ledgers(partition, None)
        if not ledgers.entries:
            return None
        return ledgers.size / (ledgers.entries * await self._mean(partition, ledgers.last))

    async def _ledgers(self, partition: Partition, stop: Place | None) -> Ledgers:
        """The ledgers now, or as they were within `FRESH` if they reached up to the stop then."""
        admin, now = self._admin, asyncio.get_running_loop().time()
        seen, internals = self._seen.get(partition, (-FRESH, {}))
        ledgers = Ledgers.of(internals)
        if now - seen < FRESH and stop is not None and ledgers.reaches(stop):
            return ledgers
        internals = await admin.internals(topic_of(partition)) or {}
        self._seen[partition] = now, internals
        self._means.pop(partition, None)
        return Ledgers.of(internals)

    async def _mean(self, partition: Partition, sample: Place | None) -> float:
        """Records of an entry on average, at least 1."""
        if partition not in self._means:
            self._means[partition] = await self._ask_mean(partition, sample)
        return self._means[partition]

    async def _ask_mean(self, partition: Partition, sample: Place | None) -> float:
        topic = topic_of(partition)
        entries = int(self._seen[partition][1].get("entriesAddedCounter", 0))
        if entries:
            return max(await self._admin.messages_in(topic) / entries, 1.0)
        if sample is None:
            return 1.0
        return max(await self._admin.batch_size(topic, sample[0], sample[1]) or 1, 1)


# -- single entries ---------------------------------------------------------------------------

MOST = 4096
"""Entries that are looked at one by one, at most."""


class Entries:
    """Tells what the entries of one topic partition are.

    Args:
        admin: the REST API; None: only the entries' numbers are known.
    """

    def __init__(self, topic: str, admin: Admin | None) -> None:
        self._topic = topic
        self._admin = admin

    @property
    def are_known(self) -> bool:
        """The REST API can be asked what an entry is."""
        return self._admin is not None

    async def before(self, place: Place, count: int) -> Place:
        """The place that many entries before; without the REST API not below the ledger.

        Raises:
            AdapterError: the broker does not answer, or refuses.
        """
        if place[1] >= count or self._admin is None:
            return place[0], max(place[1] - count, 0), 0
        ledgers = await _ledgers_of(self._admin, self._topic)
        return ledgers.back(place, count)

    async def end_no_message(self, begin: Place, start: Place, stop: Place) -> bool:
        """All entries from ``start`` to ``stop`` are known to be chunks, and none of them ends a message.

        A last chunk ends one if the others are there too, at or behind ``begin``, where the reader began.

        Raises:
            AdapterError: the broker does not answer, or refuses.
        """
        if self._admin is None:
            return False
        ledgers = await _ledgers_of(self._admin, self._topic)
        if ledgers.count(start, stop) > MOST:
            return False
        places = list(ledgers.each(start, stop))
        entries = [await self._admin.entry(self._topic, *each) for each in places]
        if any(each is None or each.chunk is None for each in entries):
            return False
        return await self._first_whole(self._admin, ledgers, begin, start, entries) is None

    async def first_ending(self, begin: Place, start: Place, stop: Place) -> tuple[int, int] | None:
        """An entry in between that ends a message which every reader from ``begin`` on gets; None: there is none.

        The first one that holds whole messages, or else the first last chunk of a message that is whole.
        Of more than `MOST` entries, the first ones are looked at. Without the REST API nobody can tell.

        Raises:
            AdapterError: the broker does not answer, or refuses.
        """
        if self._admin is None:
            return None
        entries: list[Entry | None] = []
        places: list[tuple[int, int]] = []
        for place in islice(await self._between(start, stop), MOST):
            entry = await self._admin.entry(self._topic, *place)
            if entry is not None and entry.chunk is None and entry.is_seen:
                return place
            entries.append(entry)
            places.append(place)
        if not any(each is not None and each.chunk for each in entries):
            return None
        ledgers = await _ledgers_of(self._admin, self._topic)
        found = await self._first_whole(self._admin, ledgers, begin, start, entries)
        return None if found is None else places[found]

    async def _first_whole(
        self,
        admin: Admin,
        ledgers: Ledgers,
        begin: Place,
        start: Place,
        entries: Sequence[Entry | None],
    ) -> int | None:
        """Which of the entries that follow on ``start`` is the first whose chunk ends a whole message; None: none."""
        missing = _missing_chunks(entries)
        low = max(begin, ledgers.back(start, MOST))
        earlier = reversed(list(ledgers.each(low, start))) if low < start else iter(())
        while any(lacks for _, lacks in missing.values()):
            if (place := next(earlier, None)) is None:
                break
            entry = await admin.entry(self._topic, *place)
            if entry is not None and entry.chunk is not None and entry.chunk.uuid in missing:
                missing[entry.chunk.uuid][1].discard(entry.chunk.index)
        return min((number for number, lacks in missing.values() if not lacks), default=None)

    async def _between(self, start: Place, stop: Place) -> Iterator[tuple[int, int]]:
        """The entries of a range; within one ledger nobody has to be asked."""
        if self._admin is None or start[0] == stop[0]:
            return ((start[0], entry) for entry in range(start[1], stop[1] + (stop[2] > 0)))
        ledgers = await _ledgers_of(self._admin, self._topic)
        return ledgers.each(start, stop)

    async def splits_message(self, place: Place) -> bool:
        """Whether the first entry at or behind a place is a later chunk: a reader that begins there drops its message.

        Raises:
            AdapterError: the broker does not answer, or refuses.
        """
        if self._admin is None:
            return False
        ledgers = await _ledgers_of(self._admin, self._topic)
        if (last := ledgers.last) is None:
            return False
        first = ledgers.first_entry(place, (last[0], last[1] + 1, 0))
        entry = None if first is None else await self._admin.entry(self._topic, *first[:2])
        return entry is not None and entry.chunk is not None and entry.chunk.index > 0


def _missing_chunks(entries: Sequence[Entry | None]) -> dict[str, tuple[int, set[int]]]:
    """Of each message whose last chunk is here: the number of that entry, and the chunks that are not here."""
    seen = [(number, each.chunk) for number, each in enumerate(entries) if each and each.is_seen]
    chunks = [(number, chunk) for number, chunk in seen if chunk is not None]
    missing = {}
    for number, chunk in chunks:
        if chunk.index == chunk.count - 1:
            here = {each.index for _, each in chunks if each.uuid == chunk.uuid}
            missing[chunk.uuid] = number, set(range(chunk.count)) - here
    return missing


async def _ledgers_of(admin: Admin, topic: str) -> Ledgers:
    """A topic's ledgers; none where there is no such topic."""
    return Ledgers.of(await admin.internals(topic) or {})
