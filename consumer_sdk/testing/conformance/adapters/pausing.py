"""The case about a partition that a person has paused, with a whole consumer."""

from __future__ import annotations

import asyncio

from consumer_sdk.abc import CheckpointStore
from consumer_sdk.records import Message
from consumer_sdk.runtime import Consumer
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing.conformance.adapters.case import AdapterCase
from consumer_sdk.testing.conformance.adapters.delivery import numbered, values

__all__ = ["PausingCases"]


class PausingCases(AdapterCase):
    """What `Consumer.pause` asks of every kind of adapter."""

    async def test_partition_paused_by_hand_stays_so_under_a_new_epoch(self) -> None:
        """Paused before the grant, and granted again: nothing comes until it is resumed."""
        stream = await self.broker.create_stream()
        await self.broker.append(stream, numbered(0, 3))
        adapter = self.broker.make_adapter(stream, self.group)
        consumer = Consumer(adapter, store=self._store(adapter.capabilities.needs_leases))
        consumer.pause(reason="a migration")
        async with consumer, asyncio.timeout(self.broker.patience):
            pulling = asyncio.create_task(self._pull(consumer, 3))
            await self._until_held(consumer, after_epoch=0)
            await asyncio.sleep(self.broker.quiet)
            (held,) = consumer.snapshot().partitions
            assert (held.paused, held.pause_text) == ("operator", "a migration")
            (assignment,) = consumer._engine.holdings  # noqa: SLF001 - nobody else knows it
            adapter.drop(assignment)
            await self._until_held(consumer, after_epoch=held.epoch)
            await asyncio.sleep(self.broker.quiet)
            assert consumer.stats().fetched == 0
            assert consumer.resume(held.partition)
            assert sorted(values(await pulling)) == [0, 1, 2]

    @staticmethod
    async def _pull(consumer: Consumer, count: int) -> list[Message]:
        messages = [await anext(consumer) for _ in range(count)]
        for message in messages:
            message.ack()
        return messages

    @staticmethod
    def _store(needs_leases: bool) -> CheckpointStore | None:  # noqa: FBT001 - a capability
        return MemoryStore() if needs_leases else None

    @staticmethod
    async def _until_held(consumer: Consumer, *, after_epoch: int) -> None:
        while not any(  # noqa: ASYNC110 - nobody tells
            each.is_held and each.epoch > after_epoch for each in consumer.snapshot().partitions
        ):
            await asyncio.sleep(0.01)
