"""From messages to Arrow columns."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import pyarrow as pa
import pytest

from consumer_sdk.records import Assignment, Message, Partition
from consumer_sdk.spark_bridge.columns import arrow_schema
from consumer_sdk.spark_bridge.errors import FeedRecordError
from consumer_sdk.spark_bridge.feed import segments
from consumer_sdk.spark_bridge.feed.segments import Rows, encode

KAFKA = Assignment(Partition("orders", "3"), 1)
KINESIS = Assignment(Partition("clicks", "shardId-000000000001"), 1)


def table(rows: Sequence[Rows]) -> pa.Table:
    """What ``encode`` wrote."""
    return pa.ipc.open_file(pa.py_buffer(encode(rows))).read_all()


def test_a_kafka_record_fills_the_kafka_columns() -> None:
    """Every value arrives exactly, with the types of Spark's Kafka source."""
    message = Message.make(
        KAFKA, 42, b"\x00\xff", key=b"k", headers=[("h", b"1"), ("h", None)], timestamp=1_500
    )
    found = table([Rows(KAFKA.partition, [message], [42])])
    assert found.schema.equals(arrow_schema())
    assert found.to_pylist() == [
        {
            "key": b"k",
            "value": b"\x00\xff",
            "topic": "orders",
            "partition": 3,
            "offset": 42,
            "timestamp": dt.datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=dt.UTC),
            "timestampType": None,
            "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
            "partitionId": "3",
            "position": "42",
        }
    ]


def test_a_record_with_nothing_in_it_is_nulls() -> None:
    """A tombstone without key, headers or time (trap 12) is null, not empty."""
    found = table([Rows(KAFKA.partition, [Message.make(KAFKA, 0, None)], [0])]).to_pylist()
    assert [found[0][name] for name in ("key", "value", "timestamp", "headers")] == [None] * 4


def test_other_brokers_leave_partition_and_offset_null() -> None:
    """A shard has an id and a text position only; both brokers share one schema."""
    rows = [
        Rows(KAFKA.partition, [Message.make(KAFKA, 1, b"a")], [1]),
        Rows(KINESIS.partition, [Message.make(KINESIS, (7, 0), b"b")], ["7:0"]),
    ]
    found = [
        tuple(row[name] for name in ("topic", "partition", "offset", "partitionId", "position"))
        for row in table(rows).to_pylist()
    ]
    assert found == [
        ("orders", 3, 1, "3", "1"),
        ("clicks", None, None, "shardId-000000000001", "7:0"),
    ]


def test_large_groups_are_split_by_rows_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No record batch outgrows its 32-bit offsets (trap 13), and the order is kept."""
    monkeypatch.setattr(segments, "_BATCH_ROWS", 3)
    monkeypatch.setattr(segments, "_BATCH_BYTES", 10_000)
    sizes = [1_000, 1_000, 1_000, 1_000, 9_000, 20_000, 1_000, 1_000]
    messages = [Message.make(KAFKA, at, bytes(size)) for at, size in enumerate(sizes)]
    rows = [
        Rows(KAFKA.partition, messages[:2], [0, 1]),
        Rows(KINESIS.partition, messages[2:], list(range(2, 8))),
    ]
    file = pa.ipc.open_file(pa.py_buffer(encode(rows)))
    batches = [file.get_batch(number).num_rows for number in range(file.num_record_batches)]
    assert batches == [3, 1, 1, 1, 2]
    assert file.read_all().column("offset").to_pylist() == list(range(8))


@pytest.mark.parametrize(
    "broken",
    [
        Message.make(KAFKA, 0, 7),  # type: ignore[arg-type]  # what a careless decode hook leaves
        Message.make(KAFKA, 0, b"", timestamp=2**62),
        Message.make(KAFKA, 0, b"", headers=[("\udcff", b"")]),
        Message.make(KAFKA, 0, b"", headers=[7]),  # type: ignore[list-item]  # likewise
    ],
    ids=["value", "timestamp", "header name", "header"],
)
def test_a_record_that_does_not_fit_is_a_typed_error(broken: Message) -> None:
    """Whatever Arrow refuses is a FeedRecordError with the cause."""
    with pytest.raises(FeedRecordError) as caught:
        encode([Rows(KAFKA.partition, [broken], [0])])
    assert caught.value.__cause__ is not None
