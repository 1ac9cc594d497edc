"""Records of a real Kafka that cannot be read: on the wire, in the log, as a producer made them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from consumer_sdk import Consumer, Message, UnreadableRecordError
from consumer_sdk.records.runs import FIRST_UNREADABLE, LAST_UNREADABLE
from consumer_sdk.testing.conformance.adapters import Record
from consumer_sdk.testing.memory.dead_letters import MemoryDeadLetters
from tests.adapters.kafka.flipping_proxy import FlippingProxy
from tests.adapters.kafka.harness import KafkaHarness
from tests.adapters.kafka.world import World, numbered, values

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import KafkaServer

pytestmark = pytest.mark.kafka

BATCH_HEAD, RECORD_HEAD = 61, 6
TOPIC_ID_AT = 16
"""Of the first topic of an answer by id: behind its head, the throttling, an error, the session and a count."""
MARK = b"-mark-"


@pytest.fixture
async def proxy(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FlippingProxy]:
    """What the test opens from now on goes through it."""
    async with FlippingProxy(world.kafka.servers) as found:
        found.route(monkeypatch)
        yield found


def at(distance: int) -> Callable[[bytes], int]:
    """A byte, counted from the marked value."""
    return lambda answer: answer.find(MARK) + distance if MARK in answer else -1


PLACES = {
    "value": at(0),
    "base offset, high": at(-RECORD_HEAD - BATCH_HEAD),
    "base offset, low": at(-RECORD_HEAD - BATCH_HEAD + 7),
    "length, high": at(-RECORD_HEAD - BATCH_HEAD + 8),
    "length, low": at(-RECORD_HEAD - BATCH_HEAD + 11),
    "format": at(-RECORD_HEAD - BATCH_HEAD + 16),
    "checksum": at(-RECORD_HEAD - BATCH_HEAD + 17),
}


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
async def test_bit_that_flips_on_the_wire_is_not_seen(
    world: World, proxy: FlippingProxy, place: Callable[[bytes], int], times: int
) -> None:
    """The log is sound: it is fetched again, and each record comes once, in order."""
    topic = await world.kafka.create_stream()
    for n in range(20):  # each in a batch of its own
        await world.kafka.append(topic, [Record(b"%d" % n)])
    await world.kafka.append(topic, [Record(MARK)])
    await world.kafka.append(topic, numbered(21, 30))
    proxy.flip(place, times)
    async with world.member(topic) as member:
        found = await member.read(30)
    assert [m.position for m in found] == list(range(30))
    assert [m.value for m in found] == [MARK if n == 20 else b"%d" % n for n in range(30)]
    assert (
        1 <= proxy.flipped <= times
    )  # the client takes what it does not know for the newest format


async def test_answer_that_cannot_be_used_does_not_end_all_fetching(
    world: World, proxy: FlippingProxy
) -> None:
    """A topic's id in which a bit flips: nobody has asked for that topic."""
    topic = await world.kafka.create_stream()
    await world.kafka.append(topic, [Record(MARK), *numbered(1, 5)])
    proxy.flip(lambda answer: TOPIC_ID_AT if MARK in answer else -1)
    async with world.member(topic) as member:
        found = await member.read(5)
    assert proxy.flipped == 1
    assert values(found[1:]) == [1, 2, 3, 4]


class Reader:
    """A consumer of a topic, run until it has nothing more to do."""

    def __init__(self, world: World, topic: str, **options: Any) -> None:
        self._options = options
        self.seen: list[int] = []
        self.letters = MemoryDeadLetters()
        self._world = world
        self._topic = topic

    async def run(self, count: int, **options: Any) -> None:
        """Until so many were seen in all, and are committed."""
        adapter = self._world.adapter(self._topic, **self._options)
        consumer = Consumer(adapter, dead_letters=self.letters, **options)

        async def see(message: Message) -> None:
            assert message.position not in self.seen
            self.seen.append(message.position)
            if len(self.seen) == count:
                consumer.stop()

        await consumer.run(see)


async def test_unreadable_record_alone_goes_to_the_dead_letters(world: World) -> None:
    """Its neighbours of the same batch are handled; a restart in the middle finds its way."""
    topic = await world.kafka.create_stream()
    await world.kafka.append(topic, numbered(0, 2))
    await world.kafka.append_damaged(topic, 6, {1, 4})
    await world.kafka.append(topic, numbered(8, 10))
    reader = Reader(world, topic)
    for _ in range(2):
        with pytest.raises(UnreadableRecordError, match=rf"{topic}\[0\]: offset 3 cannot be read"):
            await reader.run(10)
        assert reader.seen == [0, 1, 2]
        assert await world.offsets(topic) == {0: 3}
    await reader.run(5, unreadable="dead_letter")
    assert reader.seen[:5] == [0, 1, 2, 4, 5]
    await reader.run(8, unreadable="dead_letter")
    assert sorted(reader.seen) == [0, 1, 2, 4, 5, 7, 8, 9]
    letters = {letter.position: letter for letter in reader.letters.letters}
    assert sorted(letters) == ["3", "6"]
    assert b"\xff\xfe\xfd\xfc" in (letters["3"].value or b"")
    assert dict(letters["6"].headers) == {FIRST_UNREADABLE: b"6", LAST_UNREADABLE: b"6"}
    assert "UnicodeDecodeError" in letters["3"].error
    assert await world.offsets(topic) == {0: 10}


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_bomb_stops_the_consumer_or_goes_to_the_dead_letters(
    world: World, codec: str
) -> None:
    """As it is stored, compressed; with a higher limit it is a record like others."""
    topic = await world.kafka.create_stream()
    options: dict[str, Any] = {"compression_type": codec, "max_request_size": 1 << 22}
    for value in (b"before", bytes(1 << 21), b"after"):
        producer = await world.kafka.start_producer(**options)
        await world.kafka.append(topic, [Record(value)], 0, producer)
    reader = Reader(world, topic, max_batch_bytes=1 << 20)
    with pytest.raises(UnreadableRecordError) as caught:
        await reader.run(3)
    assert reader.seen == [0]
    said = str(caught.value)
    assert f"fetching {topic}[0]: offset 1 cannot be read" in said
    assert f"more than {1 << 20} bytes" in said
    assert f"bytes of {codec}: raise max_batch_bytes=" in said
    await reader.run(2, unreadable="dead_letter")
    assert reader.seen == [0, 2]
    (letter,) = reader.letters.letters
    assert (letter.position, len(letter.value or b"") < 1 << 18) == ("1", True)
    async with world.member(topic, group="another") as member:
        assert [len(m.value or b"") for m in await member.read(3)] == [6, 1 << 21, 5]


@pytest.fixture
async def own(own_kafka_server: KafkaServer) -> AsyncIterator[World]:
    """A group on a Kafka whose log can be reached."""
    async with KafkaHarness(own_kafka_server.bootstrap_servers) as harness:
        yield World(harness)


def log_of(server: KafkaServer, topic: str) -> Path:
    """The segment of a topic's only partition."""
    (found,) = (server.directory / "data" / f"{topic}-0").glob("*.log")
    return found


async def test_corrupt_batch_in_the_log_stops_the_consumer_or_goes_to_the_dead_letters(
    own: World, own_kafka_server: KafkaServer
) -> None:
    """Neither what comes behind it, nor the commit, passes it before its bytes are kept."""
    topic = await own.kafka.create_stream()
    for first in (0, 20, 40):
        producer = await own.kafka.start_producer(linger_ms=50)
        rows = [Record(b"record %02d" % n) for n in range(first, first + 20)]
        await own.kafka.append(topic, rows, 0, producer)
        await producer.stop()
    log = log_of(own_kafka_server, topic)
    raw = log.read_bytes()
    log.write_bytes(raw.replace(b"record 27", b"rec0rd 27"))
    reader = Reader(own, topic)
    for _ in range(2):
        with pytest.raises(UnreadableRecordError, match=r"offsets 20 to 39.*checksum"):
            await reader.run(60)
        assert reader.seen == list(range(20))
        assert await own.offsets(topic) == {0: 20}
    await reader.run(40, unreadable="dead_letter")
    assert reader.seen == [*range(20), *range(40, 60)]
    (letter,) = reader.letters.letters
    assert letter.position == "20"
    assert dict(letter.headers) == {FIRST_UNREADABLE: b"20", LAST_UNREADABLE: b"39"}
    assert b"rec0rd 27" in (letter.value or b"")
    assert await own.offsets(topic) == {0: 60}


async def test_log_that_its_broker_finds_corrupt_stops_the_consumer_in_any_case(
    own: World, own_kafka_server: KafkaServer
) -> None:
    """Nobody knows where it ends: to go on could pass what is sound."""
    topic = await own.kafka.create_stream()
    for n in range(3):
        await own.kafka.append(topic, [Record(b"record %d" % n)])
    log = log_of(own_kafka_server, topic)
    raw = bytearray(log.read_bytes())
    start = raw.index(b"record 1") - RECORD_HEAD - BATCH_HEAD
    raw[start + 8 : start + 12] = (5).to_bytes(4)  # shorter than any batch
    log.write_bytes(raw)
    reader = Reader(own, topic)
    for options in ({}, {"unreadable": "dead_letter"}):
        with pytest.raises(UnreadableRecordError, match="offset 1 cannot be read"):
            await reader.run(3, **options)
        assert reader.seen == [0]
        assert await own.offsets(topic) == {0: 1}
