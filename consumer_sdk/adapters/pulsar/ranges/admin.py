"""What the REST API tells of positions, ledgers and cursors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from consumer_sdk.adapters.pulsar.admin import Admin
from consumer_sdk.adapters.pulsar.ids import Place, next_place

__all__ = ["RangeAdmin", "cursor_in", "written_in"]

BATCH_SIZE = "X-Pulsar-num-batch-message"
CHUNK_ID = "X-Pulsar-chunk-id"


class RangeAdmin(Admin):
    """Asks of topic partitions; an answer about one is None where there is no such topic.

    Attributes:
        calls: requests sent so far.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        super().__init__(url, token)
        self.calls = 0

    async def _run(self, path: str) -> tuple[bytes | None, Any]:
        self.calls += 1
        return await super()._run(path)

    async def after_last(self, topic: str) -> Place | None:
        """The position after the last message; of an empty topic, where its next one will be."""
        found = await self._get(f"{_path(topic)}/lastMessageId")
        if found is not None and found["ledgerId"] < 0:  # all of it was deleted
            internals = await self.internals(topic)
            return None if internals is None else written_in(internals)
        return None if found is None else next_place((found["ledgerId"], found["entryId"], 0))

    async def internals(self, topic: str) -> dict[str, Any] | None:
        """Its ledgers and cursors (``internalStats``)."""
        found: dict[str, Any] | None = await self._get(f"{_path(topic)}/internalStats")
        return found

    async def of_all(self, topic: str) -> Mapping[str, dict[str, Any]]:
        """`internals` of each partition of a topic, by their names, in one request.

        Nothing for a topic that is not partitioned.
        """
        found = await self._get(f"{_path(topic)}/partitioned-internalStats") or {}
        partitions: Mapping[str, dict[str, Any]] = found.get("partitions", {})
        return partitions

    async def cursor(self, topic: str, subscription: str) -> Place | None:
        """The next position of a subscription: the broker has that of the last entry that is done."""
        return cursor_in(await self.internals(topic) or {}, subscription)

    async def messages_in(self, topic: str) -> int:
        """How many messages came since the broker loaded the topic."""
        found = await self._get(f"{_path(topic)}/stats") or {}
        return int(found.get("msgInCounter", 0))

    async def batch_size(self, topic: str, ledger: int, entry: int) -> int | None:
        """How many messages an entry has; None: it is not there."""
        headers = await self._look(topic, ledger, entry)
        return None if headers is None else int(headers.get(BATCH_SIZE) or 1)

    async def is_chunk(self, topic: str, ledger: int, entry: int) -> bool:
        """An entry is there, and a part of a large message."""
        headers = await self._look(topic, ledger, entry)
        return headers is not None and headers.get(CHUNK_ID) is not None

    async def _look(self, topic: str, ledger: int, entry: int) -> Any:
        """What the headers say; the answer has all of the entry."""
        path = f"{_path(topic)}/ledger/{ledger}/entry/{entry}"
        body, headers = await self._run(path)
        return None if body is None else headers


def cursor_in(internals: Mapping[str, Any], subscription: str) -> Place | None:
    """Where a topic's subscription stands; None: it has none of that name."""
    found = internals.get("cursors", {}).get(subscription)
    return None if found is None else _after(found["markDeletePosition"])


def written_in(internals: Mapping[str, Any]) -> Place:
    """The place after a topic's last entry, which may be one that nobody may read yet."""
    return _after(internals["lastConfirmedEntry"])


def _after(text: str) -> Place:
    """What comes after ``ledger:entry``, as the REST API writes where a cursor stands."""
    ledger, _, entry = text.partition(":")
    return next_place((int(ledger), int(entry), 0))


def _path(topic: str) -> str:
    domain, _, name = topic.partition("://")
    return f"/admin/v2/{domain}/{quote(name)}"
