"""How Spark's calls are answered; Spark itself is in test_frames."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    ReadMinRows,
)

from consumer_sdk.spark_bridge.errors import FeedFormatError
from consumer_sdk.spark_bridge.feed import reader as feed_reader
from consumer_sdk.spark_bridge.feed.files import PosixFiles
from consumer_sdk.spark_bridge.feed.reader import FeedBatchReader, FeedStreamReader, Segments
from consumer_sdk.spark_bridge.feed.url import FeedUrl
from consumer_sdk.spark_bridge.feed.writer import FeedWriter
from consumer_sdk.spark_bridge.metrics.lag import FEED, Origin, read_lag, read_offset, read_origin
from tests.spark_bridge.feeding import manifests, messages

Feed = Callable[[int, int], None]


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    """Feeds the records first..last as one segment."""

    def commit(first: int, last: int) -> None:
        writer = FeedWriter(PosixFiles(tmp_path))
        writer.open()
        writer.commit([messages(first, last)])
        writer.close()

    return commit


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FeedStreamReader:
    """A reader that does not wait for news."""
    monkeypatch.setattr(feed_reader, "_IDLE_STEPS", 0)
    return FeedStreamReader(FeedUrl(str(tmp_path)), 2)


def read(reader: FeedStreamReader, start: dict[str, int], end: dict[str, int]) -> list[int]:
    """The offsets of the rows between two of Spark's offsets."""
    parts = reader.partitions(start, end)
    batches = [batch for part in parts for batch in reader.read(part)]
    return [row["offset"] for batch in batches for row in batch.to_pylist()]


def test_the_start_never_moves(reader: FeedStreamReader, feed: Feed) -> None:
    """Trap 1: asked again after more has arrived, the start is the same."""
    first = reader.initialOffset()
    feed(0, 9)
    assert reader.initialOffset() == first


def test_no_news_is_the_same_text(reader: FeedStreamReader, feed: Feed) -> None:
    """Trap 2: without news the offset is the identical JSON, so that Spark plans nothing."""
    feed(0, 9)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    again = reader.latestOffset(end, ReadAllAvailable())
    assert json.dumps(again) == json.dumps(end)
    report = {"next": 1, "broker": "feed", "group": None, "directory": str(reader._files.directory)}
    assert reader.reportLatestOffset() == report | {"records": 0}


def test_report_says_what_waits_behind_the_end(reader: FeedStreamReader, feed: Feed) -> None:
    """Records, and since when the first one is in the feed; nothing before it has looked."""
    assert reader.reportLatestOffset() is None
    before = time.time()
    feed(0, 9)
    feed(10, 29)
    end = reader.latestOffset(reader.initialOffset(), ReadMaxFiles(1))
    report = reader.reportLatestOffset()
    assert report is not None
    reported = read_offset(json.dumps(report))
    lag, origin = read_lag(read_offset(json.dumps(end)), reported), read_origin(reported)
    assert lag is not None
    assert (lag.behind, lag.records(FEED)) == ({FEED: 1}, 20)
    assert before - 0.001 <= lag.waiting[FEED] <= time.time()
    assert origin == Origin("feed", None, str(reader._files.directory))
    reader.latestOffset(end, ReadAllAvailable())
    last = reader.reportLatestOffset()
    assert last is not None
    assert (last["records"], "waiting" in last) == (0, False)


@pytest.mark.parametrize(
    "limit, taken",
    [
        (ReadAllAvailable(), 4),
        (ReadMaxFiles(3), 3),
        (ReadMaxRows(25), 2),
        (ReadMaxRows(20), 2),
        (ReadMaxRows(1), 1),
        (ReadMaxBytes(1), 1),
        (ReadMaxBytes(10**9), 4),
        (ReadMinRows(40), 4),
        (ReadMinRows(41), 0),
    ],
)
def test_a_limit_admits_whole_segments(
    reader: FeedStreamReader, feed: Feed, limit: ReadLimit, taken: int
) -> None:
    """Every kind of limit is kept, and a segment above it is taken alone, not never."""
    for first in (0, 10, 20, 30):
        feed(first, first + 9)
    assert reader.latestOffset({"next": 0}, limit) == {"next": taken}


def test_each_record_is_read_once_where_spark_says_no_start(
    reader: FeedStreamReader, feed: Feed
) -> None:
    """PySpark 4.0 and 4.1: no arguments; the last end comes by ``partitions`` after a restart."""
    feed(0, 9)
    first = reader.latestOffset()
    assert read(reader, reader.initialOffset(), first) == list(range(10))
    assert reader.latestOffset() == first
    again = pickle.loads(pickle.dumps(reader))  # noqa: S301 - our own
    feed(10, 19)
    assert again.partitions(first, first) == []
    assert read(again, first, again.latestOffset()) == list(range(10, 20))


def test_a_url_limit_is_the_default(tmp_path: Path) -> None:
    """The URL's options become Spark's read limit."""
    assert FeedStreamReader(FeedUrl("/d", max_rows=5), 1).getDefaultReadLimit() == ReadMaxRows(5)
    assert FeedStreamReader(FeedUrl("/d", max_bytes=5), 1).getDefaultReadLimit() == ReadMaxBytes(5)
    assert FeedStreamReader(FeedUrl("/d"), 1).getDefaultReadLimit() == ReadAllAvailable()


@dataclass
class Clock:
    """In the place of the module that tells time: sleeping passes it."""

    now: float = 1_000.0

    def monotonic(self) -> float:
        """Seconds."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Passes time."""
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The reader's."""
    clock = Clock()
    monkeypatch.setattr(feed_reader, "time", clock)
    return clock


def test_fewer_rows_than_the_least_wait_for_more(tmp_path: Path, feed: Feed, clock: Clock) -> None:
    """But for so long at most; and the first batch goes at once, as with Spark's Kafka source."""
    reader = FeedStreamReader(FeedUrl(str(tmp_path), min_rows=10, max_delay=5.0), 2)
    limit = reader.getDefaultReadLimit()
    feed(0, 3)
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert read(reader, reader.initialOffset(), first) == [0, 1, 2, 3]
    feed(4, 7)
    assert reader.latestOffset(first, limit) == first
    feed(8, 13)
    second = reader.latestOffset(first, limit)
    assert read(reader, first, second) == [*range(4, 14)]
    feed(14, 14)
    assert reader.latestOffset(second, limit) == second
    clock.now += 5.0
    assert read(reader, second, reader.latestOffset(second, limit)) == [14]


def test_the_least_and_the_most_go_together(tmp_path: Path, feed: Feed, clock: Clock) -> None:
    """Enough waits, and of that no more is taken."""
    reader = FeedStreamReader(FeedUrl(str(tmp_path), min_rows=3, max_rows=4), 2)
    feed(0, 3)
    first = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    feed(4, 6)
    feed(7, 9)
    second = reader.latestOffset(first, reader.getDefaultReadLimit())
    assert read(reader, first, second) == [4, 5, 6]


def test_a_run_until_now_waits_for_no_least(tmp_path: Path, feed: Feed, clock: Clock) -> None:
    """What is there is all that comes."""
    reader = FeedStreamReader(FeedUrl(str(tmp_path), min_rows=10), 2)
    feed(0, 3)
    first = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    feed(4, 4)
    reader.prepareForTriggerAvailableNow()
    second = reader.latestOffset(first, reader.getDefaultReadLimit())
    assert read(reader, first, second) == [4]


def test_available_now_stops_at_what_was_there(reader: FeedStreamReader, feed: Feed) -> None:
    """What arrives after the preparation is left for the next run, and the run ends."""
    feed(0, 9)
    feed(10, 19)
    reader.prepareForTriggerAvailableNow()
    feed(20, 29)
    one = reader.latestOffset({"next": 0}, ReadMaxRows(10))
    two = reader.latestOffset(one, ReadMaxRows(10))
    assert (one, two) == ({"next": 1}, {"next": 2})
    assert reader.latestOffset(two, ReadMaxRows(10)) == two


def test_available_now_in_a_restarted_query_starts_at_its_checkpoint(
    reader: FeedStreamReader, feed: Feed
) -> None:
    """A later start than 0 is honoured, also when it is the target itself."""
    feed(0, 9)
    feed(10, 19)
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset({"next": 1}, ReadMaxRows(100)) == {"next": 2}
    assert reader.latestOffset({"next": 2}, ReadMaxRows(100)) == {"next": 2}


def test_a_range_reads_the_same_rows_every_time(reader: FeedStreamReader, feed: Feed) -> None:
    """Traps 6 and 8: a range names fixed segments, whatever has arrived since."""
    for first in (0, 10, 20):
        feed(first, first + 9)
    once = read(reader, {"next": 1}, {"next": 2})
    feed(30, 39)
    assert read(reader, {"next": 1}, {"next": 2}) == once == list(range(10, 20))


def test_a_pickled_reader_reads(reader: FeedStreamReader, feed: Feed) -> None:
    """Executors get a copy that was never initialised there."""
    feed(0, 9)
    parts = reader.partitions({"next": 0}, {"next": 1})
    copy, part = pickle.loads(pickle.dumps((reader, parts[0])))  # noqa: S301 - made here
    assert sum(batch.num_rows for batch in copy.read(part)) == 10


def open_files(directory: Path) -> list[str]:
    """Those of a directory that this process has open; what else it has comes and goes."""
    found = []
    for handle in list(Path("/proc/self/fd").iterdir()):
        with suppress(OSError):  # closed meanwhile
            found.append(str(handle.readlink()))
    return [each for each in found if each.startswith(str(directory))]


async def test_reading_works_while_a_loop_runs_and_may_stop_early(
    reader: FeedStreamReader, feed: Feed, tmp_path: Path
) -> None:
    """Trap 16: ``read`` starts no loop, and a reader closed early leaves no file open."""
    feed(0, 9)
    rows = reader.read(reader.partitions({"next": 0}, {"next": 1})[0])
    batch = next(rows)
    rows.close()  # type: ignore[attr-defined]  # Spark closes the generator
    assert batch.num_rows == 10
    assert open_files(tmp_path) == []


def test_an_idle_reader_opens_one_file_a_step(
    tmp_path: Path, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trap 15: idle polling is held back and never lists the directory."""
    feed(0, 9)
    reader = FeedStreamReader(FeedUrl(str(tmp_path)), 2)
    reader.latestOffset({"next": 0}, ReadAllAvailable())
    naps: list[float] = []
    monkeypatch.setattr(time, "sleep", naps.append)
    monkeypatch.setattr(Path, "iterdir", None)
    assert reader.latestOffset({"next": 1}, ReadAllAvailable()) == {"next": 1}
    assert sum(naps) == pytest.approx(0.2)


def test_a_checkpoint_of_another_feed_is_refused(reader: FeedStreamReader, feed: Feed) -> None:
    """A query that is ahead of the directory stops, rather than wait for ever."""
    feed(0, 9)
    with pytest.raises(FeedFormatError, match="another one"):
        reader.latestOffset({"next": 7}, ReadAllAvailable())
    with pytest.raises(FeedFormatError, match="another source"):
        reader.latestOffset({"orders": 7}, ReadAllAvailable())


@pytest.mark.parametrize("damage", ["cut", "flip", "gone"])
def test_a_damaged_segment_is_a_typed_error(
    reader: FeedStreamReader, feed: Feed, tmp_path: Path, damage: str
) -> None:
    """A torn, changed or missing file is named; its rows are never half delivered."""
    feed(0, 9)
    path = tmp_path / "segments" / manifests(tmp_path)[0].segment
    data = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    else:
        data[len(data) // 2] ^= 1
        path.write_bytes(data if damage == "flip" else data[:-1])
    with pytest.raises(FeedFormatError, match=path.name):
        read(reader, {"next": 0}, {"next": 1})


def test_small_segments_share_a_task(reader: FeedStreamReader, feed: Feed) -> None:
    """A task costs more than a small segment: ten of those are one task."""
    for first in range(0, 100, 10):
        feed(first, first + 9)
    parts = reader.partitions({"next": 0}, {"next": 10})
    assert [len(part.files) for part in parts if isinstance(part, Segments)] == [10]


def test_a_batch_reader_plans_what_is_there(tmp_path: Path, feed: Feed) -> None:
    """A batch read takes every segment, and an empty feed has no task."""
    reader = FeedBatchReader(FeedUrl(str(tmp_path)), 2)
    assert reader.partitions() == []
    feed(0, 9)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert sum(batch.num_rows for batch in batches) == 10
