"""What the REST API tells of positions, ledgers and cursors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from consumer_sdk.adapters.pulsar.client.admin import Admin, after, path_of, written_in
from consumer_sdk.adapters.pulsar.client.ids import Place
from consumer_sdk.checkpoints.positions import LAST_BATCH_INDEX
from consumer_sdk.records import Checkpoint

__all__ = ["RangeAdmin", "cursor_in", "progress_in", "written_in"]

BATCH_SIZE = "X-Pulsar-num-batch-message"
CHUNK_ID = "X-Pulsar-chunk-id"
UNSEEN = (CHUNK_ID, "X-Pulsar-marker-type", "X-Pulsar-txnid-most-bits")
"""Of entries that a reader may not get as a message: chunks, the broker's own markers, and what belongs
to a transaction, which may have been aborted."""


class RangeAdmin(Admin):
    """Asks of topic partitions; an answer about one is None where there is no such topic.

    Attributes:
        calls: requests sent so far.
    """

    calls = 0

    async def _run(
        self, path: str, put: bytes | None = None, method: str = "PUT"
    ) -> tuple[bytes | None, Any]:
        self.calls += 1
        return await super()._run(path, put, method)

    async def internals(self, topic: str) -> dict[str, Any] | None:
        """Its ledgers and cursors (``internalStats``)."""
        return await self._get(f"{path_of(topic)}/internalStats", _checked)

    async def of_all(self, topic: str) -> Mapping[str, dict[str, Any]]:
        """`internals` of each partition of a topic, by their names, in one request.

        Nothing for a topic that is not partitioned.
        """

        def partitions(found: Any) -> dict[str, dict[str, Any]]:
            each = found.get("partitions", {})
            return {name: _checked(internals) for name, internals in each.items()}

        return await self._get(f"{path_of(topic)}/partitioned-internalStats", partitions) or {}

    async def cursor(self, topic: str, subscription: str) -> Place | None:
        """The next position of a subscription: the broker has that of the last entry that is done."""
        return cursor_in(await self.internals(topic) or {}, subscription)

    async def consumers(self, topic: str, subscription: str) -> Sequence[str]:
        """The names of a subscription's consumers that are connected."""

        def names(stats: Any) -> list[str]:
            found = stats.get("subscriptions", {}).get(subscription, {})
            return [str(each.get("consumerName")) for each in found.get("consumers", [])]

        return await self._get(f"{path_of(topic)}/stats", names) or []

    async def reset_cursor(self, topic: str, subscription: str, place: Place) -> bool:
        """Sets a subscription to an entry, which comes first then; False where there is none such."""
        path = f"{path_of(topic)}/subscription/{quote(subscription, safe='')}/resetcursor"
        where = {"ledgerId": place[0], "entryId": place[1], "partitionIndex": -1}
        answer, _ = await self._run(path, json.dumps(where).encode(), "POST")
        return answer is not None

    async def messages_in(self, topic: str) -> int:
        """How many messages came since the broker loaded the topic."""
        count = await self._get(f"{path_of(topic)}/stats", lambda stats: stats.get("msgInCounter"))
        return int(count or 0)

    async def batch_size(self, topic: str, ledger: int, entry: int) -> int | None:
        """How many messages an entry has; None: it is not there."""
        headers = await self._look(topic, ledger, entry)
        return None if headers is None else int(headers.get(BATCH_SIZE) or 1)

    async def is_chunk(self, topic: str, ledger: int, entry: int) -> bool:
        """An entry is there, and a part of a large message."""
        return await self.chunk_id(topic, ledger, entry) is not None

    async def chunk_id(self, topic: str, ledger: int, entry: int) -> int | None:
        """Which part of a large message an entry is, from 0; None: it is not there, or no part."""
        headers = await self._look(topic, ledger, entry)
        found = None if headers is None else headers.get(CHUNK_ID)
        return None if found is None else int(found)

    async def is_plain(self, topic: str, ledger: int, entry: int) -> bool:
        """An entry is there, and holds messages that every reader gets."""
        headers = await self._look(topic, ledger, entry)
        return headers is not None and not any(headers.get(each) for each in UNSEEN)

    async def _look(self, topic: str, ledger: int, entry: int) -> Any:
        """What the headers say; the answer has all of the entry."""
        path = f"{path_of(topic)}/ledger/{ledger}/entry/{entry}"
        body, headers = await self._run(path)
        return None if body is None else headers


def _checked(internals: Any) -> dict[str, Any]:
    """Of the form that whoever asks relies upon; what is wrong raises here."""
    written_in(internals)
    for name in internals.get("cursors", {}):
        cursor_in(internals, name)
    return dict(internals)


def cursor_in(internals: Mapping[str, Any], subscription: str) -> Place | None:
    """Where a topic's subscription stands; None: it has none of that name."""
    found = internals.get("cursors", {}).get(subscription)
    return None if found is None else after(found["markDeletePosition"])


DELETED = re.compile(r"[\[(](-?\d+):(-?\d+)\.\.(-?\d+):(-?\d+)\]")
"""``(17:3..17:5]``: the entries behind the first place, up to the second."""


def progress_in(internals: Mapping[str, Any], subscription: str) -> Checkpoint | None:
    """What a topic's subscription has acked, holes and all; None: it has none of that name.

    Of a batch that is acked in part nothing shows.
    """
    resume = cursor_in(internals, subscription)
    if resume is None:
        return None
    text = str(internals["cursors"][subscription].get("individuallyDeletedMessages", ""))
    places = (tuple(map(int, found.groups())) for found in DELETED.finditer(text))
    return Checkpoint(
        watermark=(resume[0], resume[1] - 1, LAST_BATCH_INDEX) if resume[1] > 0 else None,
        resume=resume,
        ranges=tuple(
            ((ledger, entry + 1, 0), (last_ledger, last, LAST_BATCH_INDEX))
            for ledger, entry, last_ledger, last in places
        ),
    )
