"""Columns from record batches as they are on the wire, without a broker."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from consumer_sdk.adapters.kafka.ranges.batches import Columnizer, open_batches
from consumer_sdk.range_reads import Columns
from tests.adapters.kafka.decoding.test_unpacking import control, emptied
from tests.adapters.kafka.ranges.reads import offsets, values

NOBODY = -1


def batch(
    numbers: Sequence[int],
    *,
    base: int = 0,
    timestamp: int = 1_000,
    codec: int = 0,
    producer: int = NOBODY,
    value: bytes = b"v",
) -> bytes:
    """A batch of the present format; a producer makes it one of a transaction."""
    is_transactional = int(producer != NOBODY)
    builder = DefaultRecordBatchBuilder(2, codec, is_transactional, producer, 0, 0, 1 << 20)
    for number in numbers:
        builder.append(number, timestamp, b"%d" % number, value, [])
    data = builder.build()
    data[:8] = base.to_bytes(8)  # not part of the checksum
    return bytes(data)


def columns(
    data: bytes,
    start: int = 0,
    stop: int = 1_000,
    aborted: Sequence[tuple[int, int]] = (),
    max_bytes: int = 1 << 20,
) -> list[Columns]:
    """What becomes of the data, where only committed records count."""
    columnizer = Columnizer(start, stop, is_committed=True, with_headers=False, max_bytes=max_bytes)
    return list(columnizer.columns(open_batches(data), aborted))


def test_consecutive_batches_make_one_range() -> None:
    """Positions cost nothing where nothing is missing."""
    (part,) = columns(batch(range(3)) + batch(range(4), base=3))
    assert part.positions == range(7)
    assert len(part.keys) == len(part.values) == len(part.timestamps) == len(part) == 7


def test_gap_between_batches_makes_a_list() -> None:
    """A batch that compaction took whole."""
    (part,) = columns(batch(range(3)) + batch(range(2), base=10))
    assert part.positions == [0, 1, 2, 10, 11]


def test_gap_within_a_batch_makes_a_list() -> None:
    """Records that compaction took."""
    (part,) = columns(batch([0, 2, 3, 9]))
    assert part.positions == [0, 2, 3, 9]
    assert part.keys == [b"0", b"2", b"3", b"9"]


@pytest.mark.parametrize(
    "start,stop,found",
    [(0, 10, [0, 2, 3, 9]), (1, 9, [2, 3]), (2, 3, [2]), (4, 9, []), (10, 99, []), (9, 10, [9])],
)
def test_bounds_in_gaps_cut_right(start: int, stop: int, found: list[int]) -> None:
    """A bound need not be the position of a record."""
    assert offsets(columns(batch([0, 2, 3, 9]), start, stop)) == found


def test_empty_batch_yields_nothing() -> None:
    """Compaction keeps a producer's last batch without its records."""
    assert columns(batch([])) == []
    marker = emptied(control(0, 7, abort=True))
    assert offsets(columns(marker + batch(range(2), base=1, producer=7))) == [1, 2]


def test_batch_that_is_cut_off_is_left_for_the_next_fetch() -> None:
    """Brokers fill an answer up to its size, wherever that ends."""
    data = batch(range(3)) + batch(range(3), base=3)
    assert offsets(columns(data[:-1])) == [0, 1, 2]
    assert open_batches(data[:20]) == []


def test_batches_are_let_go_as_they_are_read() -> None:
    """Each holds what it has decompressed."""
    batches = open_batches(batch(range(3), codec=1) + batch(range(3), base=3, codec=1))
    columnizer = Columnizer(0, 6, is_committed=True, with_headers=False, max_bytes=1)
    parts = columnizer.columns(batches, ())
    assert next(parts).positions == range(3)
    assert batches == []
    assert next(parts).positions == range(3, 6)


def test_compressed_batches_are_split_by_what_they_hold() -> None:
    """A small answer may hold much."""
    one = [batch(range(10), base=10 * n, codec=1, value=b"x" * 1_000) for n in range(6)]
    parts = columns(b"".join(one), max_bytes=15_000)
    assert [len(part) for part in parts] == [20, 20, 20]


def test_corrupt_batch_is_an_error_after_what_came_before_it() -> None:
    """A checksum that does not fit is never a record."""
    data = bytearray(batch(range(3)) + batch(range(3), base=3, value=b"other"))
    data[-1] ^= 0xFF
    columnizer = Columnizer(0, 6, is_committed=True, with_headers=False, max_bytes=1)
    with pytest.raises(CorruptRecordException, match="checksum"):
        list(columnizer.columns(open_batches(bytes(data)), ()))


def test_batches_of_aborted_transactions_are_left_out() -> None:
    """From the first offset that the broker names, of that producer only."""
    data = b"".join(
        batch(range(2), base=2 * n, producer=producer) for n, producer in enumerate([7, 8, 7, 8])
    )
    assert offsets(columns(data, aborted=[(7, 4)])) == [0, 1, 2, 3, 6, 7]
    assert offsets(columns(data, aborted=[(8, 2), (7, 0)])) == []


def test_records_without_timestamps_have_none() -> None:
    """Kafka's -1 is no time."""
    data = batch(range(2), timestamp=-1) + batch(range(2), base=2, timestamp=5)
    (part,) = columns(data)
    assert part.timestamps == [None, None, 5, 5]


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_read(magic: int, codec: int) -> None:
    """Logs that were written before Kafka 0.11."""
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for number in range(4):
        builder.append(number, 1_000 + number, b"%d" % number, b"v", [])
    parts = columns(bytes(builder.build()), 1, 3)
    assert offsets(parts) == [1, 2]
    assert values(parts) == [b"v", b"v"]
    times = [at for part in parts for at in part.timestamps]
    assert times == ([1_001, 1_002] if magic else [None, None])


def old_record(offset: int) -> bytes:
    """A record of the first format, which has no timestamps."""
    builder = LegacyRecordBatchBuilder(0, 0, 1 << 20)
    builder.append(offset, None, b"k", b"v", [])
    return bytes(builder.build())


def test_several_formats_in_one_answer_are_read() -> None:
    """A log that was begun before Kafka 0.11; types of timestamps are not mixed in a part."""
    data = old_record(0) + old_record(1) + batch(range(2), base=2) + old_record(4)
    parts = columns(data + batch([0], base=5))
    found = [(list(part.positions), part.timestamp_type) for part in parts]
    assert found == [([0, 1], None), ([2, 3], 0), ([4], None), ([5], 0)]
