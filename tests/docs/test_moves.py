"""docs/from-aiokafka.md, docs/from-faststream.md: a program here goes on where the other one was."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition

from consumer_sdk.testing.servers import KafkaServer
from tests.adapters.kafka.harness import KafkaHarness
from tests.docs.pages import Page

pytestmark = pytest.mark.kafka

ORDERS = [b'{"customer": "%s", "amount": %d}' % each for each in ((b"ann", 1), (b"bob", 2))]
LATER = [b'{"customer": "%s", "amount": %d}' % each for each in ((b"ann", 3), (b"bob", 4))]


@pytest.mark.parametrize(
    "name, before, after",
    [
        ("from-aiokafka", "with_aiokafka.py", "with_consumer_sdk.py"),
        ("from-faststream", "with_faststream.py", "in_consumer_sdk.py"),
    ],
)
def test_second_program_charges_what_the_first_one_left(
    kafka_server: KafkaServer, name: str, before: str, after: str
) -> None:
    """Each of the group's records once, over both programs."""
    page, servers = Page(name), kafka_server.bootstrap_servers
    asyncio.run(kafka_server.create_topic(name, partitions=1))
    for file, orders in ((before, ORDERS), (after, LATER)):
        end = asyncio.run(_send(servers, name, orders)) + 1
        shown = page.shown(f"python {file}")
        with page.running(f"python {file}", KAFKA=servers) as program:
            committed = partial(_wait_for_commit, servers, name, end)
            assert program.until_interrupted(shown, committed) == shown


async def _send(servers: str, topic: str, orders: list[bytes]) -> int:
    """Returns the last one's offset."""
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        sent = [await producer.send_and_wait(topic, order) for order in orders]
    return int(sent[-1].offset)


def _wait_for_commit(servers: str, name: str, position: int) -> None:
    asyncio.run(_committed(servers, name, position))


async def _committed(servers: str, name: str, position: int) -> None:
    """Until the group has committed that position; its name is that of the topic."""
    place = TopicPartition(name, 0)
    async with KafkaHarness(servers) as kafka:
        while True:
            offsets = await kafka.admin.list_consumer_group_offsets(name)
            if place in offsets and offsets[place].offset == position:
                return
