"""Columns from bytes, beside what the client makes of the same batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.adapters.kafka.decoding import record_batches
from consumer_sdk.adapters.kafka.ranges import batches
from consumer_sdk.adapters.kafka.ranges import numpy_decoder as vectors
from consumer_sdk.adapters.kafka.ranges.batches import Columnizer, open_batches
from consumer_sdk.range_reads import ArrowColumn, Columns, Header

Row = tuple[int, int, bytes | None, bytes | None, Sequence[Header]]
"""Of a batch: the offset in it, the time, key, value and headers."""

NONE, ZSTD = 0, 4


def batch(
    rows: Sequence[Row], *, base: int = 0, codec: int = NONE, append_time: int | None = None
) -> bytes:
    """A batch of the present format."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, 0, 0, 1 << 24)
    for offset, time, key, value, headers in rows:
        builder.append(offset, time, key, value, list(headers))
    data = builder.build()
    data[:8] = base.to_bytes(8)  # not part of the checksum
    if append_time is not None:
        data = stamped(data, append_time)
    return bytes(data)


def stamped(data: bytearray, time: int) -> bytearray:
    """As a broker leaves it that gives a topic's records its own time."""
    data[22] |= 0x08
    data[35:43] = time.to_bytes(8)
    return summed(data)


def summed(data: bytearray) -> bytearray:
    """With the checksum that it should have."""
    from aiokafka.record._crc32c import crc as crc32c

    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4)
    return data


def same(count: int, *, time: int = 1_000, size: int = 20) -> list[Row]:
    """Rows of one size, but for how the numbers in front of them are written."""
    return [(n, time + n // 7, b"%04d" % n, b"v" * size, []) for n in range(count)]


def read(
    data: bytes, start: int = 0, stop: int = 1 << 40, *, with_headers: bool = False
) -> list[Columns]:
    """What becomes of the data."""
    columnizer = Columnizer(
        start, stop, is_committed=True, with_headers=with_headers, max_bytes=1 << 20
    )
    return list(columnizer.columns(open_batches(data), ()))


def by_client(
    monkeypatch: pytest.MonkeyPatch, data: bytes, start: int = 0, stop: int = 1 << 40
) -> list[Columns]:
    """The same, of the client's objects."""
    with monkeypatch.context() as patch:
        patch.setattr(batches, "can_read", lambda _batch, _data: False)
        return read(data, start, stop)


def rows_of(parts: Sequence[Columns]) -> list[tuple[object, ...]]:
    """Every row of the parts."""
    return [
        (*row, part.timestamp_type)
        for part in parts
        for row in zip(part.positions, part.keys, part.values, part.timestamps, strict=True)
    ]


def are_vectors(parts: Sequence[Columns]) -> bool:
    """No object was made for any record."""
    return all(isinstance(part.values, ArrowColumn) for part in parts)


@pytest.mark.parametrize("codec", range(5))
def test_records_of_one_size_are_read_as_vectors(
    monkeypatch: pytest.MonkeyPatch, codec: int
) -> None:
    """Across the batches of an answer, whatever they are compressed with."""
    data = b"".join(batch(same(9_000), base=base, codec=codec) for base in (5, 9_005, 99_005))
    parts = read(data)
    assert len(parts) == 1
    assert are_vectors(parts)
    assert rows_of(parts) == rows_of(by_client(monkeypatch, data))


class View(np.ndarray[Any, Any]):
    """Bytes that note how many records are compared."""

    looked: ClassVar[list[int]] = []

    def reshape(self, *shape: Any, **options: Any) -> Any:
        """Into a row for each record."""
        self.looked.append(shape[0])
        return super().reshape(*shape, **options)


def test_run_looks_little_beyond_its_end() -> None:
    """A batch of many runs would cost quadratic time."""
    rows: list[Row] = [(n, 5, None, b"v" * (1 + n // 200 % 2), []) for n in range(20_000)]
    view = np.frombuffer(batch(rows), np.uint8).view(View)
    starts, _ends = vectors._run(view, vectors.HEAD_BYTES, len(rows))
    assert len(starts) == 64
    assert sum(View.looked) == 64 * vectors.GROWTH


def test_some_runs_are_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes may differ, but not all the time."""
    rows: list[Row] = [(n, 5, None, b"v" * (1 + n // 200 % 2), []) for n in range(20_000)]
    parts = read(batch(rows))
    assert are_vectors(parts)
    assert rows_of(parts) == rows_of(by_client(monkeypatch, batch(rows)))


@pytest.mark.parametrize("start,stop", [(0, 1), (199, 200), (3, 150), (100, 400), (400, 401)])
def test_bounds_cut_arrays(monkeypatch: pytest.MonkeyPatch, start: int, stop: int) -> None:
    """Of the first batch and the last one a range may have a part."""
    data = batch(same(200)) + batch(same(200), base=300)
    parts = read(data, start, stop)
    assert are_vectors(parts)
    assert rows_of(parts) == rows_of(by_client(monkeypatch, data, start, stop))


def test_null_is_no_empty_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka has both, and Spark shows both."""
    rows: list[Row] = [(n, 5, None, b"" if n < 100 else None, []) for n in range(200)]
    parts = read(batch(rows))
    assert are_vectors(parts)
    assert parts[0].values == [b""] * 100 + [None] * 100
    assert parts[0].keys == [None] * 200
    assert rows_of(parts) == rows_of(by_client(monkeypatch, batch(rows)))


def test_compacted_batch_keeps_its_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets are what the records say, not how many came before."""
    rows = [row for row in same(300) if not 100 <= row[0] < 180]
    parts = read(batch(rows, base=50))
    assert are_vectors(parts)
    assert rows_of(parts) == rows_of(by_client(monkeypatch, batch(rows, base=50)))


@pytest.mark.parametrize("time", [-1, 0, 1 << 41])
def test_times_are_those_of_the_records(monkeypatch: pytest.MonkeyPatch, time: int) -> None:
    """Of which -1 is none."""
    data = batch([(n, time, b"", b"", []) for n in range(100)])
    parts = read(data)
    assert are_vectors(parts)
    assert parts[0].timestamps == [None if time < 0 else time] * 100
    assert rows_of(parts) == rows_of(by_client(monkeypatch, data))


@pytest.mark.parametrize("far", [1 << 60, 1 << 62, (1 << 63) - 1])
def test_times_that_lie_far_apart_are_those_of_the_client(
    monkeypatch: pytest.MonkeyPatch, far: int
) -> None:
    """Bytes that a broker serves, whoever wrote them."""
    data = batch([(n, far if n >= 100 else 0, b"", b"", []) for n in range(200)])
    assert are_vectors(read(data))
    assert rows_of(read(data)) == rows_of(by_client(monkeypatch, data))


def test_time_that_is_missing_in_the_middle_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads it."""
    data = batch([(n, 5 if n < 100 else -1, b"", b"", []) for n in range(200)])
    for (part,) in (read(data), by_client(monkeypatch, data)):
        assert part.timestamps == [5] * 100 + [None] * 100


def test_codec_without_its_library_is_left_to_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to install."""
    data = batch(same(100), codec=ZSTD)
    codecs = record_batches.CODECS
    without = {**codecs, ZSTD: codecs[ZSTD]._replace(is_there=lambda: False)}
    monkeypatch.setattr(record_batches, "CODECS", without)
    assert not are_vectors(read(data))


def test_time_of_the_broker_is_one_for_all_and_a_part_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A topic may be changed to it."""
    data = batch(same(100)) + batch(same(100), base=100, append_time=77)
    parts = read(data)
    assert are_vectors(parts)
    assert [part.timestamp_type for part in parts] == [0, 1]
    assert parts[1].timestamps == [77] * 100
    assert rows_of(parts) == rows_of(by_client(monkeypatch, data))


def test_headers_that_nobody_wants_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """And those that somebody wants are read by the client."""
    header: Header = ("a", b"1")
    data = batch([(n, 5, b"k", b"v", [header]) for n in range(100)])
    assert are_vectors(read(data))
    assert rows_of(read(data)) == rows_of(by_client(monkeypatch, data))
    (part,) = read(data, with_headers=True)
    assert part.headers == [[header]] * 100


def test_wanted_headers_that_nobody_sent_cost_nothing() -> None:
    """Most records have none."""
    (part,) = read(batch(same(100)), with_headers=True)
    assert are_vectors([part])
    assert part.headers is None


@pytest.mark.parametrize("count", [1, 40, 63])
def test_small_batches_are_read_by_the_client(count: int) -> None:
    """It costs less."""
    assert not are_vectors(read(batch(same(count))))


def test_records_of_many_sizes_are_read_by_the_client_from_then_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What comes next in a range is likely to be alike: it is not tried again."""
    unlike: list[Row] = [(n, 5, None, b"v" * (n % 3), []) for n in range(100)]
    columnizer = Columnizer(0, 1 << 40, is_committed=True, with_headers=False, max_bytes=1)
    data = batch(unlike) + batch(same(100), base=100)
    parts = list(columnizer.columns(open_batches(data), ()))
    assert [type(part.values) for part in parts] == [list, ArrowColumn]  # the next is open already
    data = batch(unlike, base=200) + batch(same(100), base=300)
    parts = list(columnizer.columns(open_batches(data), ()))
    assert [type(part.values) for part in parts] == [list, list]
    assert rows_of(parts) == rows_of(by_client(monkeypatch, data))


@pytest.mark.parametrize("at,value", [(61, 0x01), (61, 0xFF), (65, 0x7F), (65, 0x01), (67, 0x01)])
def test_bytes_that_are_no_records_are_left_to_the_client_to_refuse(at: int, value: int) -> None:
    """With a checksum that fits: sizes that are negative, too large, or do not add up."""
    data = bytearray(batch([(n, 5, b"k", b"v" * 40, []) for n in range(100)]))
    data[at] = value
    with pytest.raises(Exception, match=r"[Cc]orrupt|[Ii]nvalid|unexpected|records|negative"):
        read(bytes(summed(data)), with_headers=True)


def test_batch_whose_records_do_not_fill_it_is_left_to_the_client_to_refuse() -> None:
    """As one that was cut and then summed up."""
    data = bytearray(batch(same(100)))
    data[57:61] = (99).to_bytes(4)
    with pytest.raises(Exception, match=r"unconsumed|corrupt|Corrupt"):
        read(bytes(summed(data)))


cells = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=4), cells), max_size=2)
some = st.tuples(st.integers(-1, 1 << 42), cells, cells, headers)


@given(
    st.lists(st.tuples(some, st.integers(1, 200), st.integers(1, 3)), min_size=1, max_size=4),
    st.integers(0, 1 << 40),
    st.sampled_from([NONE, ZSTD]),
)
def test_any_records_are_what_the_client_reads(
    runs: list[tuple[tuple[int, bytes | None, bytes | None, list[Header]], int, int]],
    base: int,
    codec: int,
) -> None:
    """Runs of equal records, with gaps between them."""
    rows: list[Row] = []
    for (time, key, value, own), count, step in runs:
        first = rows[-1][0] + 1 if rows else 0
        rows += [(first + n * step, time, key, value, own) for n in range(count)]
    data = batch(rows, base=base, codec=codec)
    with pytest.MonkeyPatch.context() as monkeypatch:
        expected = rows_of(by_client(monkeypatch, data, stop=1 << 62))
    assert rows_of(read(data, stop=1 << 62)) == expected


def test_without_arrow_the_client_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's own extra brings neither numpy nor pyarrow."""
    monkeypatch.setattr(vectors, "HAS_ARROW", False)
    parts = read(batch(same(100)))
    assert not are_vectors(parts)
    assert parts[0].positions == range(100)
