"""Ranges of real topics."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

from consumer_sdk.adapters.kafka.ranges import KafkaRanges
from consumer_sdk.errors import (
    AdapterError,
    ConfigurationError,
    PositionOutOfRangeError,
    TransientAdapterError,
    UnreadableRecordError,
)
from consumer_sdk.range_reads import Columns
from consumer_sdk.testing.conformance.adapters import Record
from tests.adapters.kafka.harness import KafkaHarness
from tests.adapters.kafka.ranges.conftest import Opener
from tests.adapters.kafka.ranges.reads import all_of, offsets, read, span, values
from tests.adapters.kafka.world import numbered

if TYPE_CHECKING:
    from consumer_sdk.testing.servers.kafka import KafkaEndpoint

pytestmark = pytest.mark.kafka

LARGE = 50 * 2**20


async def test_range_yields_what_it_says_and_no_more(harness: KafkaHarness, ranges: Opener) -> None:
    """From the start on, up to but without the stop, in order, as often as one likes."""
    topic = await harness.create_stream()
    await harness.append(topic, numbered(0, 300))
    reader = await ranges(topic)
    for start, stop in [(0, 300), (17, 211), (299, 300)]:
        parts = await read(reader, span(topic, start, stop))
        assert offsets(parts) == list(range(start, stop))
        assert values(parts) == [b"%d" % n for n in range(start, stop)]
    assert all(isinstance(part.positions, range) for part in parts)


async def test_empty_range_yields_nothing(harness: KafkaHarness, ranges: Opener) -> None:
    """Not even a wait."""
    topic = await harness.create_stream()
    reader = await ranges(topic)
    assert await read(reader, span(topic, 0, 0)) == []


async def test_columns_hold_nulls_tombstones_and_times(
    harness: KafkaHarness, ranges: Opener
) -> None:
    """Null keys, null values and the producer's times are what they were."""
    topic = await harness.create_stream()
    rows = [
        Record(b"v", key=b"k", timestamp=1_000),
        Record(None, key=b"k", timestamp=2_000),
        Record(b"", key=None, timestamp=3_000),
        Record(None, key=None, timestamp=4_000),
    ]
    await harness.append(topic, rows)
    parts = await read(await ranges(topic), span(topic, 0, 4))
    assert [key for part in parts for key in part.keys] == [b"k", b"k", None, None]
    assert values(parts) == [b"v", None, b"", None]
    assert [at for part in parts for at in part.timestamps] == [1_000, 2_000, 3_000, 4_000]
    assert {part.timestamp_type for part in parts} == {0}


async def test_headers_come_when_they_are_asked_for(harness: KafkaHarness, ranges: Opener) -> None:
    """Also those with null values, and those of records that have none."""
    topic = await harness.create_stream()
    headers = (("a", b"1"), ("a", None), ("é", b""))
    await harness.append(topic, [Record(b"with", headers=headers), Record(b"without")])
    reader = await ranges(topic)
    parts = await read(reader, span(topic, 0, 2), with_headers=True)
    found = [list(each) for part in parts for each in part.headers or [[]] * len(part)]
    assert found == [list(headers), []]
    assert {part.headers for part in await read(reader, span(topic, 0, 2))} == {None}


async def test_headers_are_none_where_no_record_has_any(
    harness: KafkaHarness, ranges: Opener
) -> None:
    """Nobody has to look through empty lists."""
    topic = await harness.create_stream()
    await harness.append(topic, numbered(0, 3))
    parts = await read(await ranges(topic), span(topic, 0, 3), with_headers=True)
    assert {part.headers for part in parts} == {None}


async def test_times_of_the_broker_are_told_apart(harness: KafkaHarness, ranges: Opener) -> None:
    """A part has one type of timestamp, also where the topic's setting changed."""
    topic = await harness.create_stream(message_timestamp_type="LogAppendTime")
    await harness.append(topic, [Record(b"v", timestamp=1_000)])
    (part,) = await read(await ranges(topic), span(topic, 0, 1))
    assert part.timestamp_type == 1
    assert part.timestamps[0] is not None
    assert part.timestamps[0] > 1_000_000


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_compressed_batches_are_cut_to_the_range(
    harness: KafkaHarness, ranges: Opener, codec: str
) -> None:
    """A batch begins before the range and ends after it."""
    topic = await harness.create_stream()
    producer = await harness.start_producer(compression_type=codec, linger_ms=20)
    await harness.append(topic, numbered(0, 400), producer=producer)
    parts = await read(await ranges(topic), span(topic, 123, 321))
    assert values(parts) == [b"%d" % n for n in range(123, 321)]


async def test_bomb_is_an_error_that_names_it(harness: KafkaHarness, ranges: Opener) -> None:
    """What came before it was read; a higher limit reads it."""
    topic = await harness.create_stream()
    producer = await harness.start_producer(compression_type="zstd", max_request_size=1 << 22)
    for value in (b"before", bytes(1 << 21)):
        await harness.append(topic, [Record(value)], 0, producer)
    reader = await ranges(topic, max_batch_bytes=1 << 20)
    assert values(await read(reader, span(topic, 0, 1))) == [b"before"]
    with pytest.raises(UnreadableRecordError) as caught:
        await read(reader, span(topic, 1, 2))
    assert "offset 1 holds more than 1048576 bytes" in str(caught.value)
    assert f"{topic}[0]" in str(caught.value)
    assert len(await read(await ranges(topic), span(topic, 0, 2))) >= 1


async def test_parts_are_about_as_large_as_was_asked(harness: KafkaHarness, ranges: Opener) -> None:
    """Memory is bounded by max_bytes, also where much is compressed into little."""
    topic = await harness.create_stream()
    producer = await harness.start_producer(compression_type="gzip", max_batch_size=10_000)
    rows = [Record(b"x" * 1_000) for _ in range(1_000)]
    await harness.append(topic, rows, producer=producer)
    parts = await read(await ranges(topic), span(topic, 0, 1_000), max_bytes=100_000)
    assert offsets(parts) == list(range(1_000))
    assert max(len(part) for part in parts) <= 110 + 10  # a batch that was begun is read whole


async def test_aborted_records_are_left_out_where_only_committed_ones_count(
    harness: KafkaHarness, ranges: Opener
) -> None:
    """Spark trap 10: aborted transactions and their markers are gaps, also at the range's end."""
    topic = await harness.create_stream()
    await harness.append(topic, numbered(0, 2))
    await harness.skip(topic)
    async with harness.transaction() as producer:
        await harness.append(topic, numbered(2, 4), producer=producer)
    await harness.skip(topic)
    committed = await ranges(topic)
    async with asyncio.timeout(300):
        while (wanted := await all_of(committed, topic)).stop < 13:
            await asyncio.sleep(0.02)  # markers are written after the commit is answered
    assert values(await read(committed, wanted)) == [b"0", b"1", b"2", b"3"]
    assert offsets(await read(committed, wanted)) == [0, 1, 6, 7]
    everything = await ranges(topic, isolation_level="read_uncommitted")
    assert offsets(await read(everything, wanted)) == [0, 1, 2, 3, 4, 6, 7, 9, 10, 11]


async def test_range_of_nothing_but_an_aborted_transaction_ends(
    harness: KafkaHarness, ranges: Opener
) -> None:
    """Spark trap 10: no record will ever say that the stop is reached."""
    topic = await harness.create_stream()
    await harness.skip(topic)
    reader = await ranges(topic)
    assert await read(reader, span(topic, 0, 4)) == []
    assert await read(reader, span(topic, 1, 3)) == []


async def test_compacted_topic_is_read_over_its_gaps(harness: KafkaHarness, ranges: Opener) -> None:
    """Spark trap 10: the range ends by its stop, wherever compaction took records."""
    topic = await harness.create_stream(
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.0",
        max_compaction_lag_ms="1",
        delete_retention_ms="0",
    )
    for round_ in range(3):
        rows = [Record(b"%d" % (10 * round_ + n), key=b"%d" % (n % 3)) for n in range(10)]
        await harness.append(topic, rows)
        await asyncio.sleep(0.12)  # the broker rolls segments by its own clock
    await harness.append(topic, [Record(b"last", key=b"last")])
    reader = await ranges(topic)
    async with asyncio.timeout(300):
        while offsets(await read(reader, span(topic, 0, 31))) != [27, 28, 29, 30]:
            await asyncio.sleep(0.2)  # until only the last record of each key is left
    for start, stop in [(0, 27), (3, 20), (11, 28), (28, 29), (0, 30)]:
        left = [n for n in (27, 28, 29, 30) if start <= n < stop]
        assert offsets(await read(reader, span(topic, start, stop))) == left


async def test_range_before_the_log_start_is_out_of_range(
    harness: KafkaHarness, ranges: Opener
) -> None:
    """The error tells what the broker still has."""
    topic = await harness.create_stream()
    await harness.append(topic, numbered(0, 10))
    await harness.truncate(topic, 4)
    reader = await ranges(topic)
    with pytest.raises(PositionOutOfRangeError, match="has 4 to 10"):
        await read(reader, span(topic, 3, 10))
    assert offsets(await read(reader, span(topic, 4, 10))) == [4, 5, 6, 7, 8, 9]


async def test_range_that_never_was_is_out_of_range(harness: KafkaHarness, ranges: Opener) -> None:
    """A start above the end: the topic was made again, or the position is another's."""
    topic = await harness.create_stream()
    await harness.append(topic, numbered(0, 3))
    reader = await ranges(topic)
    with pytest.raises(PositionOutOfRangeError, match="has 0 to 3"):
        await read(reader, span(topic, 7, 9))


async def test_deleted_topic_is_out_of_range(harness: KafkaHarness, ranges: Opener) -> None:
    """Its records are lost, which is for the reader's owner to judge; nothing creates it again."""
    topic = await harness.create_stream()
    await harness.append(topic, numbered(0, 3))
    reader = await ranges(topic)
    await harness.delete(topic)
    await harness.until_absent(topic)
    with pytest.raises(PositionOutOfRangeError):
        await read(reader, span(topic, 0, 3))
    assert topic not in await harness.admin.list_topics()


async def test_stop_that_is_not_reached_is_given_up_in_time(
    harness: KafkaHarness, ranges: Opener
) -> None:
    """Spark trap 18: what is there comes, and then an error that asks to read again."""
    topic = await harness.create_stream()
    await harness.append(topic, numbered(0, 3))
    reader = await ranges(topic, read_timeout=5.0)
    found: list[int] = []
    with pytest.raises(TransientAdapterError, match="in vain"):
        async for part in reader.read_range(span(topic, 0, 5)):
            found += part.positions
    assert found == [0, 1, 2]


async def test_largest_record_passes(harness: KafkaHarness, ranges: Opener) -> None:
    """Spark trap 13: 50 MB in one record, far above what a fetch asks for."""
    topic = await harness.create_stream(max_message_bytes=str(LARGE + 1_000))
    producer = await harness.start_producer(max_request_size=LARGE + 1_000)
    large = os.urandom(1_000) * (LARGE // 1_000)
    await harness.append(
        topic, [Record(b"a"), Record(large, key=b"k"), Record(b"b")], producer=producer
    )
    parts = await read(await ranges(topic), span(topic, 0, 3), max_bytes=1_000_000)
    assert values(parts) == [b"a", large, b"b"]


async def test_iterator_that_is_closed_early_leaves_the_reader_usable(
    harness: KafkaHarness, ranges: Opener
) -> None:
    """Spark trap 16: a limit() closes the generator; nothing is left behind."""
    topic = await harness.create_stream()
    await harness.append(topic, [Record(b"x" * 1_000) for _ in range(500)])
    reader = await ranges(topic)
    before = asyncio.all_tasks()
    for _ in range(3):
        parts = reader.read_range(span(topic, 0, 500), max_bytes=50_000)
        assert len(await anext(parts)) > 0
        await parts.aclose()
    assert asyncio.all_tasks() <= before
    assert offsets(await read(reader, span(topic, 0, 500))) == list(range(500))


async def test_cancelled_reading_leaves_the_reader_usable(
    harness: KafkaHarness, ranges: Opener
) -> None:
    """A task that is cancelled while it waits for the broker takes nothing with it."""
    topic = await harness.create_stream()
    await harness.append(topic, numbered(0, 3))
    reader = await ranges(topic)
    before = asyncio.all_tasks()
    waiting = asyncio.create_task(read(reader, span(topic, 0, 10)))
    await asyncio.wait({waiting}, timeout=0.3)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert asyncio.all_tasks() <= before
    assert offsets(await read(reader, span(topic, 0, 3))) == [0, 1, 2]


async def test_ranges_are_read_side_by_side(harness: KafkaHarness, ranges: Opener) -> None:
    """One connection serves several readings at once."""
    topic = await harness.create_stream(3)
    for partition in range(3):
        await harness.append(topic, numbered(0, 200), partition)
    reader = await ranges(topic)
    wanted = [span(topic, 0, 200, n) for n in range(3)] + [span(topic, 50, 150)]
    found = await asyncio.gather(*(read(reader, each, max_bytes=500) for each in wanted))
    assert [len(offsets(parts)) for parts in found] == [200, 200, 200, 100]


async def test_part_of_nothing_is_refused() -> None:
    """A part has at least a byte."""
    reader = KafkaRanges("t", bootstrap_servers="127.0.0.1:1")
    with pytest.raises(ConfigurationError, match="max_bytes=0"):
        reader.read_range(span("t", 0, 1), max_bytes=0)


@pytest.mark.parametrize("password", ["secret", "wrong"])
async def test_credentials_are_passed_on_and_refused_ones_are_a_typed_error(
    harness: KafkaHarness, ranges: Opener, sasl_servers: str, password: str
) -> None:
    """The same options as the adapter's."""
    topic = await harness.create_stream()
    await harness.append(topic, numbered(0, 3))
    options: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
    }
    harness.servers = sasl_servers
    if password == "secret":  # noqa: S105 - of a server that lives for a test
        reader = await ranges(topic, **options)
        assert offsets(await read(reader, span(topic, 0, 3))) == [0, 1, 2]
        return
    with pytest.raises(AdapterError, match=r"check security_protocol.*sasl_"):
        await ranges(topic, **options)


def test_loop_that_runs_only_while_a_part_is_wanted_reads_all(
    kafka_server: KafkaEndpoint,
) -> None:
    """Spark trap 16: a generator without a loop of its own asks for one part at a time."""
    topic = f"stepped-{uuid.uuid4().hex[:8]}"
    reader = KafkaRanges(topic, bootstrap_servers=kafka_server.bootstrap_servers)
    with asyncio.Runner() as runner:
        runner.run(_fill(kafka_server.bootstrap_servers, topic))
        runner.run(reader.open())
        parts = reader.read_range(span(topic, 0, 500), max_bytes=50_000)
        found: list[int] = []
        while part := runner.run(_next(parts)):
            found += part.positions
        runner.run(reader.aclose())
    assert found == list(range(500))


async def _fill(servers: str, topic: str) -> None:
    async with KafkaHarness(servers) as harness:
        await harness.create_topic(topic)
        await harness.append(topic, [Record(b"x" * 1_000) for _ in range(500)])


async def _next(parts: AsyncIterator[Columns]) -> Columns | None:
    return await anext(parts, None)
