"""How many records ranges have, and how large they are, from the topics' ledgers.

An entry is a producer's batch. How many records it has is the mean since the broker loaded the
topic; before any came, that of the first entry in question.
"""

from __future__ import annotations

import asyncio
from typing import Any

from consumer_sdk.adapters.pulsar.client.ids import Place
from consumer_sdk.adapters.pulsar.client.topics import topic_of
from consumer_sdk.adapters.pulsar.ranges.admin import RangeAdmin
from consumer_sdk.adapters.pulsar.ranges.ledgers import Ledgers
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.range_reads import PartitionRange
from consumer_sdk.records import Partition

__all__ = ["Sizes"]

FRESH = 1.0
"""Seconds for which an answer serves: a plan cuts a range into many."""


class Sizes:
    """Estimates.

    Args:
        admin: None: every question raises.
    """

    def __init__(self, admin: RangeAdmin | None) -> None:
        self._known_admin = admin
        self._seen: dict[Partition, tuple[float, dict[str, Any]]] = {}
        self._means: dict[Partition, float] = {}

    @property
    def _admin(self) -> RangeAdmin:
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
        return max(round(entries * mean), 1) if entries else 0

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
        """As they are now, or were when they reached up to a stop."""
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
        """Records of an entry, at least 1."""
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
