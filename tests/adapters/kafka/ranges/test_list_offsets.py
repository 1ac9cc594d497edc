"""Partitions and positions, asked of a real Kafka."""

from __future__ import annotations

import asyncio

import pytest

from consumer_sdk.adapters.kafka.ranges import KafkaRanges
from consumer_sdk.errors import (
    CheckpointFormatError,
    ConfigurationError,
    ConsumerClosedError,
    TransientAdapterError,
)
from consumer_sdk.records import AtPosition, AtTime, Partition, StartPoint
from consumer_sdk.testing.conformance.adapters import Record
from tests.adapters.kafka.harness import KafkaHarness
from tests.adapters.kafka.ranges.conftest import Opener
from tests.adapters.kafka.ranges.reads import span
from tests.adapters.kafka.world import numbered

pytestmark = pytest.mark.kafka


async def test_first_and_end_are_what_is_stored(harness: KafkaHarness, ranges: Opener) -> None:
    """Where the log starts, which is not 0 for ever, and the position after its last record."""
    topic = await harness.create_stream(2)
    await harness.append(topic, numbered(0, 10))
    await harness.truncate(topic, 4)
    reader = await ranges(topic)
    one, two = await reader.partitions()
    assert await reader.positions([one, two], StartPoint.EARLIEST) == {one: 4, two: 0}
    assert await reader.positions([one, two], StartPoint.LATEST) == {one: 10, two: 0}
    assert await reader.positions([one], AtPosition(7)) == {one: 7}
    assert await reader.positions([], StartPoint.LATEST) == {}


async def test_time_is_the_first_record_at_or_after_it(
    harness: KafkaHarness, ranges: Opener
) -> None:
    """In milliseconds, rounded up; None where no record is that new."""
    topic = await harness.create_stream()
    rows = [Record(b"v", timestamp=1_000 * n) for n in (1, 2, 3)]
    await harness.append(topic, rows)
    reader = await ranges(topic)
    (one,) = await reader.partitions()
    for time, offset in [(0.0, 0), (1.0, 0), (1.0001, 1), (2.5, 2), (3.0, 2), (3.001, None)]:
        assert await reader.positions([one], AtTime(time)) == {one: offset}


async def test_end_is_before_the_first_open_transaction(
    harness: KafkaHarness, ranges: Opener
) -> None:
    """Spark trap 10: a range to this end has nothing that may still be aborted."""
    topic = await harness.create_stream()
    await harness.append(topic, numbered(0, 3))
    committed = await ranges(topic)
    everything = await ranges(topic, isolation_level="read_uncommitted")
    (one,) = await committed.partitions()
    async with harness.transaction() as producer:
        await harness.append(topic, numbered(3, 5), producer=producer)
        assert await committed.positions([one], StartPoint.LATEST) == {one: 3}
        assert await everything.positions([one], StartPoint.LATEST) == {one: 5}


async def test_all_partitions_of_a_leader_are_one_request(
    harness: KafkaHarness, ranges: Opener
) -> None:
    """Spark trap 15: the ends of many partitions cost no more than those of one."""
    topic = await harness.create_stream(20)
    reader = await ranges(topic)
    partitions = await reader.partitions()
    await reader.positions(partitions, StartPoint.LATEST)  # each has its leader by then
    before = reader.broker_calls
    await reader.positions(partitions, StartPoint.LATEST)
    assert reader.broker_calls == before + 1


async def test_partitions_that_are_known_cost_no_request(
    harness: KafkaHarness, ranges: Opener
) -> None:
    """Spark trap 15: whoever asks all the time asks the broker seldom."""
    topic = await harness.create_stream(2)
    reader = await ranges(topic, seen_within=60.0)
    before = reader.broker_calls
    for _ in range(50):
        assert await reader.partitions() == [Partition(topic, "0"), Partition(topic, "1")]
    assert reader.broker_calls == before


async def test_partitions_are_in_the_order_of_their_numbers(
    harness: KafkaHarness, ranges: Opener
) -> None:
    """Ten comes after nine."""
    topic = await harness.create_stream(11)
    reader = await ranges(topic)
    assert [each.id for each in await reader.partitions()] == [str(n) for n in range(11)]


async def test_new_partitions_are_seen(harness: KafkaHarness, ranges: Opener) -> None:
    """Spark trap 11: within the time that was given."""
    topic = await harness.create_stream()
    reader = await ranges(topic, seen_within=0.05)
    assert len(await reader.partitions()) == 1
    await harness.grow(topic, 3)
    async with asyncio.timeout(100):
        while len(await reader.partitions()) < 3:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("whole", [True, False])
async def test_pattern_matches_whole_names_or_parts_of_them(
    harness: KafkaHarness, ranges: Opener, *, whole: bool
) -> None:
    """A part is enough for Kafka's Java consumer, and so for Spark's ``subscribePattern``."""
    name = f"a{harness.uid}z"
    await harness.create_topic(name)
    reader = await ranges(pattern=harness.uid, whole_names=whole)
    found = {partition.stream for partition in await reader.partitions()}
    assert found == (set() if whole else {name})


async def test_pattern_finds_topics_that_come_later(harness: KafkaHarness, ranges: Opener) -> None:
    """Whole names only, and never Kafka's own topics."""
    await harness.create_topic(f"p-{harness.uid}")
    await harness.create_topic(f"p-{harness.uid}-more")
    reader = await ranges(pattern=f"p-{harness.uid}|q-{harness.uid}|__consumer.*", seen_within=0.05)
    assert [each.stream for each in await reader.partitions()] == [f"p-{harness.uid}"]
    await harness.create_topic(f"q-{harness.uid}")
    async with asyncio.timeout(100):
        while len(found := await reader.partitions()) < 2:
            await asyncio.sleep(0.05)
    assert [each.stream for each in found] == [f"p-{harness.uid}", f"q-{harness.uid}"]


async def test_chosen_partitions_are_the_only_ones(harness: KafkaHarness, ranges: Opener) -> None:
    """As Spark's assign has it."""
    topic = await harness.create_stream(4)
    reader = await ranges(partitions={topic: [3, 1]})
    assert [each.id for each in await reader.partitions()] == ["1", "3"]


async def test_topic_that_is_made_again_starts_anew(harness: KafkaHarness, ranges: Opener) -> None:
    """Spark trap 11: its end is smaller than what was read, which its reader has to judge."""
    topic = await harness.create_stream()
    await harness.append(topic, numbered(0, 5))
    reader = await ranges(topic)
    (one,) = await reader.partitions()
    assert await reader.positions([one], StartPoint.LATEST) == {one: 5}
    await harness.recreate(topic)
    async with asyncio.timeout(100):
        while await reader.positions([one], StartPoint.LATEST) != {one: 0}:
            await asyncio.sleep(0.05)


async def test_partition_that_is_gone_has_no_position(
    harness: KafkaHarness, ranges: Opener
) -> None:
    """Others' positions come all the same."""
    gone, kept = await harness.create_stream(), await harness.create_stream()
    reader = await ranges([gone, kept])
    one, two = Partition(gone, "0"), Partition(kept, "0")
    await harness.delete(gone)
    await harness.until_absent(gone)
    async with asyncio.timeout(harness.patience):
        # A busy broker no longer tells of the topic, and its leader still answers for a moment.
        while (found := await reader.positions([one, two], StartPoint.LATEST))[one] is not None:
            await asyncio.sleep(0.02)
    assert found == {one: None, two: 0}
    before = reader.broker_calls
    assert await reader.positions([one, two], StartPoint.LATEST) == {one: None, two: 0}
    assert reader.broker_calls == before + 1


async def test_counts_and_cuts_are_by_offsets(ranges: Opener) -> None:
    """No request is needed; what gaps hold is counted too."""
    reader = KafkaRanges("t", bootstrap_servers="127.0.0.1:1")
    wanted = span("t", 10, 40)
    assert await reader.records([wanted]) == {wanted.partition: 30}
    assert [await reader.cut(wanted, n) for n in (1, 20, 30, 1_000)] == [11, 30, 40, 40]
    assert await reader.cut(span("t", 5, 5), 1) == 5


async def test_size_of_records_is_that_of_the_newest(harness: KafkaHarness, ranges: Opener) -> None:
    """Stored bytes; a partition without records has none."""
    topic = await harness.create_stream(3)
    await harness.append(topic, [Record(b"x" * 1_000) for _ in range(200)])
    packed = await harness.start_producer(compression_type="gzip", linger_ms=50)
    await harness.append(topic, [Record(b"x" * 1_000) for _ in range(200)], 1, packed)
    reader = await ranges(topic)
    sizes = await reader.record_size(await reader.partitions())
    plain, small = sizes.pop(Partition(topic, "0")), sizes.pop(Partition(topic, "1"))
    assert sizes == {}
    assert 1_000 < plain < 1_200
    assert 1 < small < 500


async def test_topic_that_does_not_exist_is_found_at_the_start(
    harness: KafkaHarness, ranges: Opener
) -> None:
    """A typing mistake; it is not made real."""
    with pytest.raises(ConfigurationError, match="does not exist"):
        await ranges(f"absent-{harness.uid}")
    assert f"absent-{harness.uid}" not in await harness.admin.list_topics()


async def test_partition_that_does_not_exist_is_found_at_the_start(
    harness: KafkaHarness, ranges: Opener
) -> None:
    """The error says how many there are."""
    topic = await harness.create_stream(2)
    with pytest.raises(ConfigurationError, match="has no partition 2"):
        await ranges(partitions={topic: [0, 2]})


async def test_absent_topic_may_be_left_to_the_ranges(
    harness: KafkaHarness, ranges: Opener
) -> None:
    """A task that reads ranges of one topic does not fail for another that was deleted."""
    topic = await harness.create_stream()
    reader = await ranges([topic, f"absent-{harness.uid}"], require_topics=False)
    assert await reader.partitions() == [Partition(topic, "0")]


async def test_server_that_is_not_there_is_transient() -> None:
    """It may come up."""
    reader = KafkaRanges("t", bootstrap_servers="127.0.0.1:1", connect_timeout=2.0)
    with pytest.raises(TransientAdapterError, match=r"127\.0\.0\.1:1"):
        await reader.open()


async def test_closed_reader_says_so(harness: KafkaHarness, ranges: Opener) -> None:
    """It is closed as often as one likes, and opened once."""
    topic = await harness.create_stream()
    reader = await ranges(topic)
    with pytest.raises(ConsumerClosedError, match="once"):
        await reader.open()
    await reader.aclose()
    await reader.aclose()
    with pytest.raises(ConsumerClosedError, match="closed"):
        await reader.partitions()
    with pytest.raises(ConsumerClosedError, match="not open"):
        await KafkaRanges(topic, bootstrap_servers=harness.servers).partitions()


def test_positions_have_one_text() -> None:
    """The adapter's."""
    reader = KafkaRanges("t", bootstrap_servers="127.0.0.1:1")
    assert reader.encode_position(12) == "12"
    assert reader.decode_position("12") == 12
    with pytest.raises(CheckpointFormatError):
        reader.decode_position("012")
