"""What the broker knows of how far groups have come, as any monitoring of it would see."""

from __future__ import annotations

from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

__all__ = ["group_lag"]


async def group_lag(servers: str, topic: str, partitions: int, groups: Iterable[str]) -> int:
    """Records of the topic that the groups have not committed, over all of them."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    async with AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
        ends = await consumer.end_offsets(places)
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        stands = [await admin.list_consumer_group_offsets(group) for group in groups]
    finally:
        await admin.close()
    return sum(
        end - (max(0, stand[place].offset) if place in stand else 0)
        for stand in stands
        for place, end in ends.items()
    )
