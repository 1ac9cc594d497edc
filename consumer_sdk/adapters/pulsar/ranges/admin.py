"""What the REST API tells of positions, ledgers and cursors."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from consumer_sdk.adapters.pulsar.admin import Admin
from consumer_sdk.adapters.pulsar.ids import Place, next_place

__all__ = ["RangeAdmin"]

BATCH_SIZE_HEADER = "X-Pulsar-num-batch-message"


class RangeAdmin(Admin):
    """Asks about one topic partition at a time; each answer is None where there is no such topic."""

    async def after_last(self, topic: str) -> Place | None:
        """The position after the last message; of an empty topic, where its next one will be."""
        found = await self._get(f"{_path(topic)}/lastMessageId")
        if found is not None and found["ledgerId"] < 0:  # all of it was deleted
            internals = await self.internals(topic)
            return None if internals is None else _after(internals["lastConfirmedEntry"])
        return None if found is None else next_place((found["ledgerId"], found["entryId"], 0))

    async def internals(self, topic: str) -> dict[str, Any] | None:
        """Its ledgers and cursors (``internalStats``)."""
        found: dict[str, Any] | None = await self._get(f"{_path(topic)}/internalStats")
        return found

    async def cursor(self, topic: str, subscription: str) -> Place | None:
        """The next position of a subscription: the broker has that of the last entry that is done."""
        internals = await self.internals(topic) or {}
        found = internals.get("cursors", {}).get(subscription)
        return None if found is None else _after(found["markDeletePosition"])

    async def messages_in(self, topic: str) -> int:
        """How many messages came since the broker loaded the topic."""
        found = await self._get(f"{_path(topic)}/stats") or {}
        return int(found.get("msgInCounter", 0))

    async def batch_size(self, topic: str, ledger: int, entry: int) -> int | None:
        """How many messages an entry has; None: it is not there."""
        body, headers = await self._run(f"{_path(topic)}/ledger/{ledger}/entry/{entry}")
        return None if body is None else int(headers.get(BATCH_SIZE_HEADER) or 1)


def _after(text: str) -> Place:
    """What comes after ``ledger:entry``, as the REST API writes where a cursor stands."""
    ledger, _, entry = text.partition(":")
    return next_place((int(ledger), int(entry), 0))


def _path(topic: str) -> str:
    domain, _, name = topic.partition("://")
    return f"/admin/v2/{domain}/{quote(name)}"
