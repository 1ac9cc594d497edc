"""Which ids ack what is settled: one for a whole entry."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import _pulsar
import pytest

from consumer_sdk import Consumer, RetryPolicy
from consumer_sdk.adapters.pulsar import PulsarAdapter
from consumer_sdk.adapters.pulsar.client.ids import Place, batch_size, place_of
from consumer_sdk.adapters.pulsar.consumer import acks
from consumer_sdk.adapters.pulsar.consumer.acks import Acks
from consumer_sdk.adapters.pulsar.consumer.entries import Entry
from consumer_sdk.adapters.pulsar.consumer.messages import NativeMessage, Unpacker
from consumer_sdk.adapters.pulsar.options import SubscriptionType
from consumer_sdk.records import Checkpoint, SettledRecords
from consumer_sdk.testing.servers import PulsarEndpoint
from consumer_sdk.trackers.unseen import Unseen, every_gap

SIZES = [1, 2, 127, 128, 1000]


def entry(size: int, at: int = 7) -> Entry:
    """A delivery of a producer's batch."""
    return Entry(300, at, size)


def of(entry: Entry, indexes: Iterable[int]) -> list[tuple[Place, Any]]:
    """The settled messages of an entry."""
    return [((entry.ledger, entry.entry, index), entry) for index in indexes]


def acks_of(settled: Sequence[tuple[Place, Any]]) -> Acks:
    """What acks them."""
    return acks.acks_of(SettledRecords.of(settled))


def places(found: Iterable[Any]) -> list[tuple[int, int, int]]:
    """What is acked; the index -1 is a whole entry."""
    return [(each.ledger_id(), each.entry_id(), each.batch_index()) for each in found]


def parts(found: Acks) -> list[list[tuple[int, int, int]]]:
    """What is acked of entries."""
    return [places(message.message_id() for message in part) for part in found.parts]


@pytest.mark.parametrize("holes, last", [(0, 0), (1, 3), (254, 3), (255, None), (400, None)])
def test_cumulative_ack_ends_below_what_nobody_was_handed(holes: int, last: int | None) -> None:
    """Of many holes, a checkpoint has the lowest as one: where they begin is not known."""
    unseen = [(None, (1, 0, 0)), *(((1, n, 0), (1, n + 2, 0)) for n in range(3, 3 + 2 * holes, 2))]
    end = (1, 3 + 2 * holes, 0)
    stored = Unseen(every_gap, unseen).stored()
    found = acks.seen_whole(Checkpoint(watermark=end, unseen=stored))
    assert found == (end if not holes else last and (1, last, 0))
    assert acks.seen_whole(Checkpoint()) is None
    assert acks.seen_whole(Checkpoint(unseen=stored)) is None


def test_entry_of_unknown_size_is_never_acked_whole() -> None:
    """Nobody can tell what else it holds."""
    found = acks_of([*of(entry(0), [0, 1]), *of(entry(1, 8), [0])])
    assert (places(found.alone), parts(found)) == ([(300, 8, -1)], [])


@pytest.mark.parametrize("size", SIZES)
def test_entry_that_is_settled_whole_is_acked_by_one_id(size: int) -> None:
    """In any order, and with another entry in between."""
    settled = of(entry(size), reversed(range(size)))
    settled[size // 2 : size // 2] = of(entry(2, 8), [0])
    found = acks_of(settled)
    assert (places(found.alone), parts(found)) == ([(300, 7, -1)], [[(300, 8, 0)]])


def test_entries_that_mix_are_acked_by_one_id_each() -> None:
    """Two that were settled by turns, and one behind them."""
    one, other = of(entry(2), range(2)), of(entry(2, 8), range(2))
    found = acks_of([one[0], other[0], one[1], other[1], *of(entry(2, 9), range(2))])
    assert sorted(places(found.alone)) == [(300, at, -1) for at in (7, 8, 9)]
    assert [each.partition() for each in found.alone] == [-1] * 3  # a consumer has one partition
    assert found.parts == []


@pytest.mark.parametrize("size", [size for size in SIZES if size > 1])
def test_entry_that_misses_a_message_is_acked_in_part(size: int) -> None:
    """One index that is not settled keeps the entry open: its id would settle that one too."""
    settled = [index for index in range(size) if index != size // 2]
    found = acks_of(of(entry(size), settled))
    assert (found.alone, parts(found)) == ([], [[(300, 7, index) for index in settled]])


@pytest.mark.parametrize("size", [size for size in SIZES if size > 2])
def test_entry_that_some_flushes_settle_is_acked_by_one_id_then(size: int) -> None:
    """What comes again with a later flush counts once."""
    one = entry(size)
    for index in range(size - 1):
        if index % 100 in (0, 1):
            acks_of(of(one, range(index + 1)))
    assert parts(acks_of(of(one, range(1, size - 1)))) == [
        [(300, 7, n) for n in range(1, size - 1)]
    ]
    found = acks_of(of(one, [size - 1]))
    assert (places(found.alone), found.parts) == ([(300, 7, -1)], [])


def test_two_deliveries_of_an_entry_are_not_taken_together() -> None:
    """The cursor may have been set back: what was settled of the first is open again."""
    found = acks_of(of(entry(4), [0, 1]) + of(entry(4), [2, 3]))
    assert (found.alone, parts(found)) == (
        [],
        [[(300, 7, 0), (300, 7, 1)], [(300, 7, 2), (300, 7, 3)]],
    )


@pytest.mark.parametrize("count", range(1, 5))
def test_message_behind_an_entry_that_is_settled_in_part_is_not_compared_with_it(
    count: int,
) -> None:
    """The client's id compares itself with another id, or raises a TypeError."""
    alone = _pulsar.MessageId.deserialize(b"\x08\xac\x02\x10\x08")
    one = entry(5)
    found = acks_of([*of(one, range(count)), ((300, 8, -1), alone), *of(entry(2, 9), [0, 1])])
    assert parts(found) == [[(300, 7, index) for index in range(count)]]
    assert places(found.alone) == [(300, 8, -1), (300, 9, -1)]
    assert found.alone[0] is alone


def test_message_that_was_sent_by_itself_is_acked_by_its_own_id() -> None:
    """It is no batch, whatever its number."""
    alone = _pulsar.MessageId.deserialize(b"\x08\x96\x01\x10\x06")
    assert batch_size(alone) == 0
    assert acks_of([(place_of(alone), alone)]) == ([alone], [])


def test_message_that_still_has_the_clients_is_acked_by_that() -> None:
    """An id is as dear as all else of a record; once it was let go, there is an id."""
    raw = _pulsar.MessageBuilder().content(b"v").build()
    message = Unpacker().messages_of(raw, [])[0].messages[0]
    assert isinstance(message, NativeMessage)
    assert acks_of([((1, 2, 3), message.native)]).alone == [message.raw]
    message.keep()
    assert acks_of([((1, 2, 3), message.native)]).alone == [message.handle]


def test_entry_goes_on_where_the_last_receive_ended() -> None:
    """What was received of it twice shares what is settled; where it begins again, that is open."""
    unpacker, raw = Unpacker(), entry(300).parts(range(300))
    received = [raw[:1], raw[1:200], raw[200:], raw[200:250] + raw[:200]]
    [[first], [second], [rest], [again, anew]] = [
        unpacker.messages_of(batch[0], batch[1:]) for batch in received
    ]
    messages = [*first.messages, *second.messages, *rest.messages]
    assert [message.position for message in messages] == [(300, 7, index) for index in range(300)]
    one, other, third = (part.messages[-1].native.handle for part in (rest, again, anew))
    assert acks_of(of(one, range(200))).parts
    assert all(message.native in (one, message) for message in messages)
    assert messages[10].native.handle is one is not other is not third is not one
    assert places(acks_of(of(one, range(200, 300))).alone) == [(300, 7, -1)]


@pytest.mark.parametrize("size", SIZES)
def test_size_of_a_batch_is_in_the_ids_of_its_messages(size: int) -> None:
    """The client hides it, and serializes it."""
    assert batch_size(entry(size).parts([0])[0].message_id()) == size


def test_message_in_chunks_is_in_no_batch() -> None:
    """Its serialized id holds another one, of its first chunk."""
    chunked = _pulsar.MessageId.deserialize(b"\x08\x01\x10\x06\x3a\x04\x08\x01\x10\x05")
    assert batch_size(chunked) == 0


@pytest.mark.pulsar
@pytest.mark.parametrize("kind", ["shared", "key_shared"])
async def test_parts_of_batches_are_counted_once(
    pulsar_server: PulsarEndpoint, kind: SubscriptionType
) -> None:
    """The broker's limits of unacked messages go by its count, and an ack of each would undo that."""
    topic = f"entries-{uuid.uuid4().hex[:8]}"
    await pulsar_server.create_topic(topic)
    await pulsar_server.create_subscription(topic, "s")
    await pulsar_server.produce(topic, (b"%d" % n for n in range(300)), batch=True, key="k")
    adapter = PulsarAdapter(
        topic, service_url=pulsar_server.service_url, subscription="s", type=kind
    )
    async with Consumer(adapter, retry=RetryPolicy(initial=0.01)) as consumer:
        messages = await take(consumer, 300)
        counts = []
        for start in range(3):
            for message in messages[start::3]:
                if start and int(message.value) % 9 == start:
                    message.nack()  # comes again
                else:
                    message.ack()
            await consumer.flush()
            (stats,) = await pulsar_server.stats(topic)
            counts.append(stats["subscriptions"]["s"]["unackedMessages"])
        assert counts == [200, 134, 68]
        for message in await take(consumer, 68):
            message.ack()
        await consumer.flush()
        assert await until_gone(pulsar_server, topic) == 0
        (stats,) = await pulsar_server.stats(topic)
        assert stats["subscriptions"]["s"]["unackedMessages"] == 0


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
    async with asyncio.timeout(300):
        async for message in consumer:
            found.append(message)
            if len(found) == count:
                break
    return found


async def until_gone(server: PulsarEndpoint, topic: str) -> int:
    """The backlog, once it is empty or a minute has passed."""
    for _ in range(600):
        if not (left := await server.backlog(topic, "s")):
            break
        await asyncio.sleep(0.1)
    return left
