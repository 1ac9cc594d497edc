"""Columns as record batches, read back by the client's own decoder."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from consumer_sdk.adapters.kafka.producing.batches import BatchOfBytes, record_batches
from consumer_sdk.record_writes import Outgoing
from consumer_sdk.records import Headers

NOW = 1_700_000_000_123
Found = list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]]


def batches(
    records: Outgoing,
    partitions: Sequence[int] = (),
    *,
    limit: int = 4_000,
    compression: str | None = None,
) -> list[tuple[int, BatchOfBytes]]:
    """What the records become; all for partition 0 unless it is said otherwise."""
    chosen = np.array(partitions or [0] * len(records), np.int64)
    made = record_batches(records, chosen, limit=limit, time=NOW, compression=compression)
    return list(made)


def read(batch: BatchOfBytes) -> Found:
    """What the client's decoder finds, after it has checked the batch."""
    data = bytes(batch._build())
    assert len(data) == batch.size()
    found: Found = []
    memory = MemoryRecords(data)
    decoded: Any = memory.next_batch()
    assert decoded is not None
    assert memory.next_batch() is None
    assert decoded.validate_crc()
    for offset, record in enumerate(decoded):
        assert (record.offset, record.timestamp) == (offset, NOW)
        found.append((record.key, record.value, list(record.headers)))
    assert len(found) == batch.record_count()
    return found


def some(chance: random.Random, rows: int) -> tuple[list[bytes | None], list[bytes | None]]:
    """Keys and values of all lengths of varints, with nulls and empty ones."""
    lengths = (0, 1, 63, 64, 65, 300, 8191, 8192, 20_000)
    picked = [
        [
            None if chance.random() < 0.2 else chance.randbytes(chance.choice(lengths))
            for _ in range(rows)
        ]
        for _ in range(2)
    ]
    return picked[0], picked[1]


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_are_what_the_columns_say(compression: str | None) -> None:
    """Keys, values, nulls and headers, of each partition in order, also of a slice of a column."""
    chance = random.Random(17)
    for rows in (1, 2, 40, 300):
        keys, values = some(chance, rows + 3)
        headers: list[Headers] = [
            [("n", None), ("é", b"x" * chance.choice((0, 63, 64, 200)))][: chance.randrange(3)]
            for _ in range(rows)
        ]
        partitions = [chance.randrange(3) for _ in range(rows)]
        records = Outgoing(
            "t",
            values=pa.array(values, pa.large_binary()).slice(3),
            keys=pa.array(keys, pa.binary()).slice(3),
            headers=headers,
        )
        found: dict[int, Found] = {0: [], 1: [], 2: []}
        for partition, batch in batches(records, partitions, compression=compression):
            found[partition] += read(batch)
        for partition, got in found.items():
            assert got == [
                (key, value, list(header))
                for key, value, header, number in zip(
                    keys[3:], values[3:], headers, partitions, strict=True
                )
                if number == partition
            ]


def test_columns_without_keys_or_headers_have_none() -> None:
    """A tombstone is a null value."""
    records = Outgoing("t", pa.array([b"v", None, b""], pa.binary()))
    [(partition, batch)] = batches(records)
    assert (partition, read(batch)) == (0, [(None, b"v", []), (None, None, []), (None, b"", [])])


def test_nothing_makes_no_batch() -> None:
    """Not an empty one either."""
    assert batches(Outgoing("t", pa.array([], pa.binary()))) == []


def test_a_batch_is_no_larger_than_its_limit_unless_one_record_is() -> None:
    """And hardly smaller, so that there are no more batches than are needed."""
    values = [b"v" * 100] * 1000 + [b"x" * 9000] + [b"v"] * 20_000
    made = [batch for _, batch in batches(Outgoing("t", pa.array(values, pa.binary())))]
    assert [row for batch in made for row in read(batch)] == [(None, each, []) for each in values]
    assert [batch.count for batch in made if batch.size() > 4000] == [1]
    full = [batch.size() for batch in made[:20]]
    assert min(full) > 3800, full


def test_a_batch_ends_at_the_very_byte_of_its_limit() -> None:
    """A broker refuses one that is a byte larger; the first one counts like the others."""
    records = Outgoing("t", pa.array([b"v" * 50] * 4, pa.binary()))
    size = sum(batch.size() for _, batch in batches(records, [0, 0, 1, 1])) // 2
    for limit, counts in ((size, [2, 2]), (size - 1, [1, 1, 1, 1])):
        assert [batch.count for _, batch in batches(records, limit=limit)] == counts


def test_a_partitions_records_are_one_batch_if_they_fit() -> None:
    """Wherever they lie among those of other partitions."""
    records = Outgoing("t", pa.array([b"v"] * 30, pa.binary()))
    found = batches(records, [0, 1, 2] * 10)
    assert [(partition, batch.count) for partition, batch in found] == [(0, 10), (1, 10), (2, 10)]


def test_a_producers_number_is_in_the_batch_and_its_checksum() -> None:
    """The client tells it when it takes the batch."""
    [(_, batch)] = batches(Outgoing("t", pa.array([b"v"], pa.binary())))
    batch._set_producer_state(7, 3, 11)
    decoded: Any = MemoryRecords(bytes(batch._build())).next_batch()
    assert (decoded.producer_id, decoded.producer_epoch, decoded.base_sequence) == (7, 3, 11)
    assert decoded.validate_crc()


@pytest.mark.parametrize("producer", [None, (7, 3, 11)])
@pytest.mark.parametrize("rows", [1, 70])
def test_a_batch_is_the_same_as_the_clients(
    rows: int, producer: tuple[int, int, int] | None
) -> None:
    """Byte for byte: a broker refuses another format or last offset, which the decoder does not look at."""
    [(_, batch)] = batches(Outgoing("t", pa.array([b"v"] * rows, pa.binary())))
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, 0, 1 << 16)
    for offset in range(rows):
        builder.append(offset, NOW, None, b"v", [])
    if producer is not None:
        batch._set_producer_state(*producer)
        builder.set_producer_state(*producer)
    assert batch._build() == builder.build()


def test_the_sender_need_not_wait_for_more_records() -> None:
    """It asks before and after it has closed a batch."""
    [(_, batch)] = batches(Outgoing("t", pa.array([b"v"], pa.binary())))
    assert batch.closed()
    batch.close()
    assert batch.closed()


def test_what_does_not_get_smaller_is_not_compressed() -> None:
    """As in the client's own batches."""
    chance = random.Random(1)
    [(_, batch)] = batches(
        Outgoing("t", pa.array([chance.randbytes(3000)], pa.binary())), compression="gzip"
    )
    assert batch.codec == 0
    assert len(read(batch)) == 1
