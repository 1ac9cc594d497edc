"""What is known of a topic's entries, for who finds some of them missing."""

from __future__ import annotations

from consumer_sdk.adapters.pulsar.ids import Place
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
