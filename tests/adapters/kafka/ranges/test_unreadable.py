"""Ranges of a real Kafka in which something cannot be read: on the wire, in the log, as it was made."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from consumer_sdk.adapters.kafka.ranges import KafkaRanges
from consumer_sdk.errors import UnreadableRecordError
from consumer_sdk.range_reads import Columns, PartitionRange
from consumer_sdk.testing.conformance.adapters import Record
from tests.adapters.kafka.flipping_proxy import FlippingProxy
from tests.adapters.kafka.harness import KafkaHarness
from tests.adapters.kafka.ranges.conftest import Opener
from tests.adapters.kafka.ranges.reads import offsets, read, span, values
from tests.adapters.kafka.test_unreadable import BATCH_HEAD, MARK, PLACES, RECORD_HEAD, log_of
from tests.adapters.kafka.world import numbered

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import KafkaServer

pytestmark = pytest.mark.kafka


@pytest.fixture
async def proxy(
    harness: KafkaHarness, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[FlippingProxy]:
    """What the test opens from now on goes through it."""
    async with FlippingProxy(harness.servers) as found:
        found.route(monkeypatch)
        yield found


async def mark(harness: KafkaHarness) -> str:
    """Twenty batches of one record, the marked one, and nine behind it."""
    topic = await harness.create_stream()
    for n in range(20):
        await harness.append(topic, [Record(b"%d" % n)])
    await harness.append(topic, [Record(MARK)])
    await harness.append(topic, numbered(21, 30))
    return topic


EXPECTED = [MARK if n == 20 else b"%d" % n for n in range(30)]


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
async def test_bit_that_flips_on_the_wire_is_not_seen(
    harness: KafkaHarness,
    proxy: FlippingProxy,
    ranges: Opener,
    place: Callable[[bytes], int],
    times: int,
) -> None:
    """The log is sound: it is fetched again, and each record comes once, in order."""
    topic = await mark(harness)
    reader = await ranges(topic)
    proxy.flip(place, times)
    parts = await read(reader, span(topic, 0, 30))
    assert offsets(parts) == list(range(30))
    assert values(parts) == EXPECTED
    assert 1 <= proxy.flipped <= times


async def test_answer_that_cannot_be_used_is_asked_for_again(
    harness: KafkaHarness, proxy: FlippingProxy, ranges: Opener
) -> None:
    """A topic's name in which a bit flips is no text any more."""
    topic = await mark(harness)
    opened = await ranges(topic)
    name = topic.encode()
    proxy.flip(lambda answer: answer.find(name) - 2 if MARK in answer else -1)
    parts = await read(opened, span(topic, 0, 30))
    assert values(parts) == EXPECTED
    assert proxy.flipped == 1


async def read_on(opened: KafkaRanges, wanted: PartitionRange) -> tuple[list[Columns], str]:
    """What comes of a range that cannot be read whole, and the error."""
    parts: list[Columns] = []
    with pytest.raises(UnreadableRecordError) as caught:
        async for part in opened.read_range(wanted):
            parts.append(part)  # noqa: PERF401 - what came before an error counts
    return parts, str(caught.value)


async def test_record_that_cannot_be_read_stops_a_range_behind_its_neighbours(
    harness: KafkaHarness, ranges: Opener
) -> None:
    """Those before it in its batch come too; a range that ends there, or begins behind, is whole."""
    topic = await harness.create_stream()
    await harness.append(topic, numbered(0, 2))
    await harness.append_damaged(topic, 4, {2})
    await harness.append(topic, numbered(6, 8))
    opened = await ranges(topic)
    for _ in range(2):
        parts, said = await read_on(opened, span(topic, 0, 8))
        assert values(parts) == [b"0", b"1", b"v0", b"v1"]
        assert f"{topic}[0]" in said
        assert "offset 4 cannot be read" in said
        assert "UnicodeDecodeError" in said
    assert offsets(await read(opened, span(topic, 0, 4))) == [0, 1, 2, 3]
    assert offsets(await read(opened, span(topic, 6, 8))) == [6, 7]


@pytest.fixture
async def own(own_kafka_server: KafkaServer) -> AsyncIterator[KafkaHarness]:
    """A Kafka whose log can be reached."""
    async with KafkaHarness(own_kafka_server.bootstrap_servers) as found:
        yield found


def change(log: Path, find: bytes, distance: int, new: bytes) -> None:
    """Overwrites bytes of a segment, counted from what is found."""
    raw = bytearray(log.read_bytes())
    at = raw.index(find) + distance
    raw[at : at + len(new)] = new
    log.write_bytes(raw)


async def test_corrupt_batch_in_the_log_stops_a_range_each_time(
    own: KafkaHarness, own_kafka_server: KafkaServer
) -> None:
    """What lies before it comes, and nothing of it or behind it; ranges beside it are whole."""
    topic = await own.create_stream()
    for first in (0, 20, 40):
        producer = await own.start_producer(linger_ms=50)
        rows = [Record(b"record %02d" % n) for n in range(first, first + 20)]
        await own.append(topic, rows, 0, producer)
        await producer.stop()
    change(log_of(own_kafka_server, topic), b"record 27", 3, b"0")
    opened = KafkaRanges(topic, bootstrap_servers=own.servers)
    await opened.open()
    try:
        for start in (0, 0, 25):
            parts, said = await read_on(opened, span(topic, start, 60))
            assert offsets(parts) == list(range(start, 20))
            assert f"{topic}[0]" in said
            assert f"offsets {max(start, 20)} to 39" in said
            assert "hecksum" in said
        assert offsets(await read(opened, span(topic, 0, 20))) == list(range(20))
        assert offsets(await read(opened, span(topic, 40, 60))) == list(range(40, 60))
    finally:
        await opened.aclose()


async def test_log_that_its_broker_finds_corrupt_stops_a_range(
    own: KafkaHarness, own_kafka_server: KafkaServer
) -> None:
    """The broker says so, and nothing more: the error says where."""
    topic = await own.create_stream()
    for n in range(3):
        await own.append(topic, [Record(b"record %d" % n)])
    distance = 8 - RECORD_HEAD - BATCH_HEAD
    change(log_of(own_kafka_server, topic), b"record 1", distance, (5).to_bytes(4))
    opened = KafkaRanges(topic, bootstrap_servers=own.servers)
    await opened.open()
    try:
        parts, said = await read_on(opened, span(topic, 0, 3))
    finally:
        await opened.aclose()
    assert offsets(parts) == [0]
    assert f"{topic}[0]" in said
    assert "offset 1 cannot be read" in said
