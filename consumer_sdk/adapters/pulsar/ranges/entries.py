"""What is known of a topic's entries, for who finds some of them missing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from consumer_sdk.adapters.pulsar.client.ids import Place
from consumer_sdk.adapters.pulsar.ranges.admin import RangeAdmin
from consumer_sdk.adapters.pulsar.ranges.ledgers import Ledgers

__all__ = ["Entries"]

MOST = 4096
"""Entries that are looked at one by one."""


class Entries:
    """Of one topic partition.

    Args:
        admin: None: nothing is known beyond their numbers.
    """

    def __init__(self, topic: str, admin: RangeAdmin | None) -> None:
        self._topic = topic
        self._admin = admin

    @property
    def are_known(self) -> bool:
        """Of each entry one can ask what it is."""
        return self._admin is not None

    async def before(self, place: Place, count: int) -> Place:
        """The place that many entries before; without the REST API not below the ledger.

        Raises:
            AdapterError: the broker does not answer, or refuses.
        """
        if place[1] >= count or self._admin is None:
            return place[0], max(place[1] - count, 0), 0
        ledgers = Ledgers.of(await self._admin.internals(self._topic) or {})
        return ledgers.back(place, count)

    async def are_chunks(self, start: Place, stop: Place) -> bool:
        """All entries in between are known to be chunks of large messages.

        Raises:
            AdapterError: the broker does not answer, or refuses.
        """
        if self._admin is None:
            return False
        ledgers = Ledgers.of(await self._admin.internals(self._topic) or {})
        if ledgers.count(start, stop) > MOST:
            return False
        for ledger, entry in ledgers.each(start, stop):
            if not await self._admin.is_chunk(self._topic, ledger, entry):
                return False
        return True

    async def first_plain(self, start: Place, stop: Place) -> tuple[int, int] | None:
        """The first entry in between that holds messages, and is no part of one; None: there is none.

        Of more than `MOST` entries, the first ones are looked at. Without the REST API nobody can tell.

        Raises:
            AdapterError: the broker does not answer, or refuses.
        """
        if self._admin is None:
            return None
        for ledger, entry in islice(await self._between(start, stop), MOST):
            if await self._admin.is_plain(self._topic, ledger, entry):
                return ledger, entry
        return None

    async def _between(self, start: Place, stop: Place) -> Iterator[tuple[int, int]]:
        """In one ledger nobody has to be asked."""
        if self._admin is None or start[0] == stop[0]:
            return ((start[0], entry) for entry in range(start[1], stop[1] + (stop[2] > 0)))
        return Ledgers.of(await self._admin.internals(self._topic) or {}).each(start, stop)

    async def splits_message(self, place: Place) -> bool:
        """Whoever reads from a place on misses chunks of the first message, which the client drops.

        Raises:
            AdapterError: the broker does not answer, or refuses.
        """
        if self._admin is None:
            return False
        ledgers = Ledgers.of(await self._admin.internals(self._topic) or {})
        if (last := ledgers.last) is None:
            return False
        first = ledgers.first_entry(place, (last[0], last[1] + 1, 0))
        return first is not None and bool(await self._admin.chunk_id(self._topic, *first[:2]))
