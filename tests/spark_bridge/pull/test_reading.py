"""Claims about columns of records as Spark's rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.errors import AdapterError
from consumer_sdk.range_reads import ArrowColumn, Columns
from consumer_sdk.records import Partition
from consumer_sdk.spark_bridge.columns import COLUMNS, arrow_schema
from consumer_sdk.spark_bridge.pull import reading
from consumer_sdk.spark_bridge.pull.reading import BATCH_ROWS, ArrowRows
from tests.spark_bridge.pull.memory_ranges import Logs, MemoryRanges
from tests.spark_bridge.unhurried import unhurried

pa = pytest.importorskip("pyarrow")
READER = MemoryRanges(Logs())
P = Partition("orders", "3")
EPOCH = datetime.fromtimestamp(0, UTC)


def column(names: Sequence[str], columns: Columns, partition: Partition = P) -> list[Any]:
    """Return the rows as dictionaries; each batch is checked."""
    found: list[Any] = []
    for batch in ArrowRows(names, READER).batches(partition, columns):
        batch.validate(full=True)
        found += batch.to_pylist()
    return found


def plain(count: int, first: int = 0) -> Columns:
    """Return so many records."""
    places = range(first, first + count)
    return Columns(places, [None] * count, [b"%d" % n for n in places], [1000] * count)


def test_all_columns_have_the_types_of_sparks_own_source() -> None:
    """Trap 12: Spark compares names, order, types, unit and time zone."""
    (batch,) = ArrowRows(tuple(COLUMNS), READER).batches(P, plain(3))
    assert batch.schema.equals(arrow_schema())


def test_a_record_becomes_a_row_column_by_column() -> None:
    """Tombstones, missing keys and times, and headers without a value stay null."""
    columns = Columns(
        range(7, 10),
        [b"k", None, b""],
        [b"v", None, b""],
        [1500, None, 0],
        [[("a", b"1"), ("b", None), ("a", b"")], [], [("é", b"\xff")]],
        timestamp_type=1,
    )
    first, second, third = column(tuple(COLUMNS), columns)
    assert first == {
        "key": b"k",
        "value": b"v",
        "topic": "orders",
        "partition": 3,
        "offset": 7,
        "timestamp": datetime.fromtimestamp(1.5, UTC),
        "timestampType": 1,
        "headers": [
            {"key": "a", "value": b"1"},
            {"key": "b", "value": None},
            {"key": "a", "value": b""},
        ],
        "partitionId": "3",
        "position": "7",
    }
    assert (second["key"], second["value"], second["timestamp"]) == (None, None, None)
    assert second["headers"] is None
    assert (third["key"], third["value"], third["timestamp"]) == (b"", b"", EPOCH)
    assert third["headers"] == [{"key": "é", "value": b"\xff"}]


FAR = 2**63 - 1


@pytest.mark.parametrize("wrap", [list, lambda times: ArrowColumn(pa.array(times, "int64"))])
@pytest.mark.parametrize("far", [FAR, -FAR])
def test_a_time_that_spark_cannot_hold_says_where_it_is(wrap: Any, far: int) -> None:
    """Spark counts microseconds in 64 bits; Kafka takes any milliseconds from a producer."""
    columns = Columns(range(7, 10), [None] * 3, [b"v"] * 3, wrap([1000, far, None]))
    with pytest.raises(AdapterError, match=rf"record at 8 of orders/3 .*{far} ms.*timestampOverf"):
        column(["timestamp"], columns)
    assert column(["offset"], columns) == [{"offset": at} for at in (7, 8, 9)]
    (batch,) = ArrowRows(["offset", "timestamp"], READER, null_times=True).batches(P, columns)
    found = [(row["offset"], row["timestamp"] is None) for row in batch.to_pylist()]
    assert found == [(7, False), (8, True), (9, True)]


def test_headers_that_nobody_has_are_null() -> None:
    """As in Spark's source."""
    assert column(["headers"], plain(2)) == [{"headers": None}] * 2


def test_chosen_columns_come_in_the_chosen_order() -> None:
    """And nothing else is made."""
    (batch,) = ArrowRows(["offset", "value"], READER).batches(P, plain(1))
    assert batch.schema.names == ["offset", "value"]


def test_positions_that_are_no_numbers_leave_the_offset_null() -> None:
    """Pulsar: the text says where a record is, and the id which partition."""
    columns = Columns([(1, 2), (1, 3)], [None] * 2, [b""] * 2, [None] * 2)
    found = column(["partition", "offset", "partitionId", "position"], columns, P._replace(id="x"))
    assert found[0] == {
        "partition": None,
        "offset": None,
        "partitionId": "x",
        "position": "(1, 2)",
    }


def test_no_records_make_no_batch() -> None:
    """Spark needs none."""
    assert column(tuple(COLUMNS), plain(0)) == []


def test_many_records_are_divided() -> None:
    """No batch has more rows than a worker should hold at a time."""
    batches = list(ArrowRows(["offset"], READER).batches(P, plain(2 * BATCH_ROWS + 1, first=5)))
    assert [batch.num_rows for batch in batches] == [BATCH_ROWS, BATCH_ROWS, 1]
    offsets = pa.chunked_array([batch.column(0) for batch in batches]).to_pylist()
    assert offsets == list(range(5, 5 + 2 * BATCH_ROWS + 1))


def test_large_records_are_divided_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap 13: batches stay far below Arrow's 2 GiB; a record above the limit is alone."""
    monkeypatch.setattr(reading, "BATCH_BYTES", 10_000)
    values = [bytes([n]) * size for n, size in enumerate([4000, 4000, 4000, 50_000, 10, 10])]
    columns = Columns(range(6), [None] * 6, values, [None] * 6)
    batches = list(ArrowRows(["value"], READER).batches(P, columns))
    assert [value for batch in batches for value in batch.column(0).to_pylist()] == values
    assert all(batch.num_rows == 1 or batch.nbytes <= 10_000 for batch in batches)
    assert len(batches) < 6


class Chunking:
    """A pyarrow whose columns overflow above so many rows, as they do above 2 GiB."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __getattr__(self, name: str) -> Any:
        return getattr(pa, name)

    def array(self, values: Any, *arguments: Any) -> Any:
        """Return an array, or chunks."""
        made = pa.array(values, *arguments)
        return pa.chunked_array([made]) if len(made) > self.rows else made


def test_columns_that_overflow_are_divided() -> None:
    """Arrow answers with chunks then, which no batch takes."""
    rows = ArrowRows(["offset", "value"], READER)
    rows._pa = Chunking(3)
    found = [row for batch in rows.batches(P, plain(10)) for row in batch.to_pylist()]
    assert found == [{"offset": n, "value": b"%d" % n} for n in range(10)]


def test_a_record_of_two_gibibytes_is_named() -> None:
    """It cannot be a row; which one it is can be said."""
    rows = ArrowRows(["value"], READER)
    rows._pa = Chunking(0)
    with pytest.raises(AdapterError, match="the record at 7 of orders/3 has 2 GiB"):
        list(rows.batches(P, plain(3, first=7)))


optional_bytes = st.one_of(st.none(), st.binary(max_size=5))
headers = st.lists(st.tuples(st.text(max_size=3), optional_bytes), max_size=3)
times = st.one_of(st.none(), st.integers(0, 2**41))
record = st.tuples(st.integers(0, 2**40), optional_bytes, optional_bytes, times, headers)


@unhurried
@given(records=st.lists(record, max_size=20), with_headers=st.booleans())
def test_any_records_come_out_as_they_went_in(records: list[Any], *, with_headers: bool) -> None:
    """Whatever their offsets, keys, values, times and headers."""
    records = sorted(records, key=lambda each: each[0])
    offsets, keys, values, stamps, lists = ([each[n] for each in records] for n in range(5))
    columns = Columns(offsets, keys, values, stamps, lists if with_headers else None)
    found = column(["offset", "key", "value", "timestamp", "headers"], columns)
    assert [row["offset"] for row in found] == offsets
    assert [row["key"] for row in found] == keys
    assert [row["value"] for row in found] == values
    assert [row["timestamp"] for row in found] == [
        None if stamp is None else EPOCH + timedelta(milliseconds=stamp) for stamp in stamps
    ]
    expected = [
        [{"key": k, "value": v} for k, v in each] or None if with_headers else None
        for each in lists
    ]
    assert [row["headers"] for row in found] == expected
