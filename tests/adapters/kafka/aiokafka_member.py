"""aiokafka's own consumer as a member of a group, with commits as they should be made."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition

__all__ = ["AiokafkaMember"]


class AiokafkaMember(ConsumerRebalanceListener):  # type: ignore[misc]  # the client has no types
    """``async with AiokafkaMember(…)``: reads, commits, and leaves at the end of the block.

    Args:
        options: of ``AIOKafkaConsumer``.

    Attributes:
        held: the partitions that it has now.
        read: how often it has read each record, by partition and offset.
        hearing: the task that reads.
    """

    def __init__(self, servers: str, topic: str, group: str, **options: Any) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=30_000,
            heartbeat_interval_ms=100,
            **options,
        )
        self._topic = topic
        self._unsaved: dict[TopicPartition, int] = {}
        self.held: set[int] = set()
        self.read: Counter[tuple[int, int]] = Counter()

    async def __aenter__(self) -> Self:
        self._consumer.subscribe([self._topic], listener=self)
        await self._consumer.start()
        self.hearing = asyncio.create_task(self._read_all())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leaves the group; does nothing the second time."""
        self.hearing.cancel()
        await asyncio.wait({self.hearing})
        if self._unsaved:
            await self._save()
        await self._consumer.stop()
        self.held.clear()

    async def _read_all(self) -> None:
        while True:
            found = await self._consumer.getmany(timeout_ms=100)
            for tp, records in found.items():  # nothing is awaited before all is noted
                self.read.update((tp.partition, record.offset) for record in records)
                self._unsaved[tp] = records[-1].offset + 1
            if self._unsaved:
                await self._save()

    async def _save(self) -> None:
        saved = dict(self._unsaved)
        await self._consumer.commit(saved)
        self._unsaved = {tp: at for tp, at in self._unsaved.items() if saved.get(tp) != at}

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """What was read is committed before it is another member's."""
        if self._unsaved:
            await self._save()
        self.held -= {tp.partition for tp in revoked}

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Tells `held`."""
        self.held |= {tp.partition for tp in assigned}
