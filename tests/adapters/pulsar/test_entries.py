"""Which ids ack what is settled: one for a whole entry."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import _pulsar
import pytest

from consumer_sdk import Consumer
from consumer_sdk.adapters.pulsar import PulsarAdapter
from consumer_sdk.adapters.pulsar.contents import NativeMessage, messages_of
from consumer_sdk.adapters.pulsar.entries import EntryAcks, batch_size
from consumer_sdk.adapters.pulsar.ids import Place, place_of
from consumer_sdk.testing.servers import PulsarEndpoint

SIZES = [1, 2, 127, 128, 1000]


def native(ledger: int, entry: int, index: int, size: int) -> tuple[Place, Any]:
    """A message's place and id, as a producer's batch of this size has them."""
    fields = b"".join(
        bytes((tag << 3,)) + varint(number)
        for tag, number in ((1, ledger), (2, entry), (4, index), (6, size))
    )
    found = _pulsar.MessageId.deserialize(fields)
    return place_of(found), found


def varint(number: int) -> bytes:
    """As Protocol Buffers have it."""
    low, high = number & 0x7F, number >> 7
    return bytes((low | 0x80,)) + varint(high) if high else bytes((low,))


def places(acks: list[Any]) -> list[tuple[int, int, int]]:
    """What is acked; the index -1 is a whole entry."""
    return [(each.ledger_id(), each.entry_id(), each.batch_index()) for each in acks]


@pytest.mark.parametrize("size", SIZES)
def test_entry_that_is_settled_whole_is_acked_by_one_id(size: int) -> None:
    """In any order, and with other entries in between."""
    settled = [native(300, 7, index, size) for index in reversed(range(size))]
    settled.insert(size // 2, native(300, 8, 0, 2))
    settled.insert(0, native(301, 7, 1, 2))
    whole = (300, 7, -1 if size > 1 else 0)
    assert sorted(places(EntryAcks().of(settled))) == [whole, (300, 8, 0), (301, 7, 1)]


@pytest.mark.parametrize("size", [size for size in SIZES if size > 1])
def test_entry_that_misses_a_message_is_acked_by_its_own_ids(size: int) -> None:
    """One index that is not settled keeps the entry open: its id would settle that one too."""
    settled = [native(300, 7, index, size) for index in range(size) if index != size // 2]
    assert EntryAcks().of(settled) == [own for _, own in settled]


@pytest.mark.parametrize("size", [size for size in SIZES if size > 2])
def test_entry_that_two_flushes_settle_is_acked_by_one_id_then(size: int) -> None:
    """The first flush ends in its middle; what of it comes again with the second counts once."""
    settled = [native(300, 7, index, size) for index in range(size)]
    other = [native(300, 8, 0, 2)]
    acks, half = EntryAcks(), size // 2
    assert acks.of(settled[:half]) == [own for _, own in settled[:half]]
    rest = acks.of(settled[half - 1 : -1])
    assert rest == [own for _, own in settled[half - 1 : -1]]
    assert places(acks.of(other + settled[-1:])) == [(300, 8, 0), (300, 7, -1)]


def test_entry_of_which_a_flush_settled_nothing_is_acked_by_its_own_ids() -> None:
    """What was settled long ago is forgotten: memory ends, and the cursor may have been set back."""
    settled = [native(300, 7, index, 4) for index in range(4)]
    acks = EntryAcks()
    acks.of(settled[:2])
    acks.of([native(300, 8, 0, 2)])
    assert acks.of(settled[2:]) == [own for _, own in settled[2:]]


def test_message_that_was_sent_by_itself_is_acked_by_its_own_id() -> None:
    """It is no batch, whatever its number."""
    alone = _pulsar.MessageId.deserialize(b"\x08\x96\x01\x10\x06")
    assert batch_size(alone) == 0
    assert EntryAcks().of([(place_of(alone), alone)]) == [alone]


def test_message_that_still_has_the_clients_is_acked_by_that() -> None:
    """An id is as dear as all else of a record; once it was let go, there is an id."""
    message = messages_of(_pulsar.MessageBuilder().content(b"v").build(), [])[0][0][0]
    assert isinstance(message, NativeMessage)
    assert EntryAcks().of([((1, 2, 3), message.native)]) == [message.raw]
    message.keep()
    assert EntryAcks().of([((1, 2, 3), message.native)]) == [message.id]


def test_message_in_chunks_is_in_no_batch() -> None:
    """Its serialized id holds another one, of its first chunk."""
    chunked = _pulsar.MessageId.deserialize(b"\x08\x01\x10\x06\x3a\x04\x08\x01\x10\x05")
    assert batch_size(chunked) == 0


@pytest.mark.pulsar
async def test_batch_but_for_one_message_leaves_that_one(pulsar_server: PulsarEndpoint) -> None:
    """Pulsar trap 11: of 100 messages 99 are acked, and one comes again; with it, the entry is gone."""
    topic = f"entries-{uuid.uuid4().hex[:8]}"
    await pulsar_server.create_topic(topic)
    await pulsar_server.create_subscription(topic, "s")
    await pulsar_server.produce(topic, (b"%d" % n for n in range(200)), batch=True)
    adapter = shared(pulsar_server, topic)
    async with Consumer(adapter, drain_timeout=0.2) as consumer:
        first = await take(consumer, 200)
        for message in first:
            if message.value != b"42":
                message.ack()
        await consumer.flush()
    async with Consumer(shared(pulsar_server, topic)) as consumer:
        (left,) = await take(consumer, 1)
        assert left.value == b"42"
        left.ack()
        await consumer.flush()
    assert await until_gone(pulsar_server, topic) == 0


@pytest.mark.pulsar
async def test_batches_that_are_acked_whole_are_gone(pulsar_server: PulsarEndpoint) -> None:
    """The broker has nothing left, and holds nothing against the consumer's limit of unacked ones."""
    topic = f"entries-{uuid.uuid4().hex[:8]}"
    await pulsar_server.create_topic(topic)
    await pulsar_server.create_subscription(topic, "s")
    await pulsar_server.produce(topic, (b"%d" % n for n in range(3_000)), batch=True)
    async with Consumer(shared(pulsar_server, topic), flush_interval=0.5) as consumer:
        everything = await take(consumer, 3_000)
        for message in everything:
            message.ack()
        await consumer.flush()
        assert await until_gone(pulsar_server, topic) == 0
        (stats,) = await pulsar_server.stats(topic)
        assert stats["subscriptions"]["s"]["unackedMessages"] == 0


def shared(server: PulsarEndpoint, topic: str) -> PulsarAdapter:
    """A consumer of the subscription."""
    return PulsarAdapter(topic, service_url=server.service_url, subscription="s", type="shared")


async def take(consumer: Consumer, count: int) -> list[Any]:
    """So many messages."""
    found: list[Any] = []
    async with asyncio.timeout(30):
        async for message in consumer:
            found.append(message)
            if len(found) == count:
                break
    return found


async def until_gone(server: PulsarEndpoint, topic: str) -> int:
    """The backlog, once it is empty or some seconds have passed."""
    for _ in range(50):
        if not (left := await server.backlog(topic, "s")):
            break
        await asyncio.sleep(0.1)
    return left
