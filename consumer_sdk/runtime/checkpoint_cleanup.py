"""Removes the checkpoints of partitions that are gone, such as shards that have left the retention period."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from consumer_sdk.abc import Adapter, CheckpointStore
from consumer_sdk.errors import AdapterError, StoreError
from consumer_sdk.log_limits import REPEATS
from consumer_sdk.records import Assignment, Partition
from consumer_sdk.trackers import decode_checkpoint

__all__ = ["CheckpointCleanup"]

log = logging.getLogger(__name__)

FIRST = 120.0
"""Seconds until the first look; a consumer that runs for a minute has other things to do."""

PACE = 3600.0
"""Seconds between looks: each reads all checkpoints of the group, and partitions go once a day or less."""

NAMED = 10
"""Partitions that one line names."""


class CheckpointCleanup:
    """Looks for checkpoints of partitions that are gone, if the broker reports ends of partitions."""

    def __init__(self, adapter: Adapter, store: CheckpointStore | None) -> None:
        self._adapter = adapter
        self._store = store if adapter.capabilities.wants_ends else None

    async def run(self) -> None:
        """Looks again and again; a failed look is skipped."""
        store, group, pause = self._store, self._adapter.group, FIRST
        while store is not None and group is not None:
            await asyncio.sleep(pause)
            pause = PACE
            try:
                await self._tidy(store, group)
            except (AdapterError, StoreError) as error:
                log.warning("old checkpoints could not be removed: %s", error, extra=REPEATS)

    async def _tidy(self, store: CheckpointStore, group: str) -> None:
        gone = await self._adapter.gone(await store.list(group))
        if not gone:
            return
        texts = self._ours(await store.peek(group, gone))
        await store.purge(group, texts)
        if texts:
            named = ", ".join(map(str, [*texts][:NAMED]))
            more = ", …" if len(texts) > NAMED else ""
            log.info("removed %d checkpoints of what is gone: %s%s", len(texts), named, more)

    def _ours(self, texts: Mapping[Partition, str | None]) -> Mapping[Partition, str]:
        """What can be read, and is of this incarnation of the stream; the rest is the operator's."""
        return {p: text for p, text in texts.items() if text is not None and self._is_ours(p, text)}

    def _is_ours(self, partition: Partition, text: str) -> bool:
        try:
            decode_checkpoint(
                text,
                broker=self._adapter.broker,
                partition=partition,
                identity=self._adapter.identity(Assignment(partition, 0)),
                decode_position=self._adapter.decode_position,
            )
        except StoreError:
            return False
        return True
