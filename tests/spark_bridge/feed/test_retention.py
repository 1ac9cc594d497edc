"""What is deleted after Spark's commit, and what must not be."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from consumer_sdk.records import Message
from consumer_sdk.spark_bridge.errors import FeedFormatError
from consumer_sdk.spark_bridge.feed import reader as feed_reader
from consumer_sdk.spark_bridge.feed.files import PosixFiles
from consumer_sdk.spark_bridge.feed.index import FeedIndex
from consumer_sdk.spark_bridge.feed.manifest_log import FOLDERS, ManifestLog
from consumer_sdk.spark_bridge.feed.reader import FeedBatchReader, FeedStreamReader
from consumer_sdk.spark_bridge.feed.reader_marks import ReaderMark
from consumer_sdk.spark_bridge.feed.url import FeedUrl
from consumer_sdk.spark_bridge.feed.writer import FeedWriter, Retention
from tests.spark_bridge.feeding import manifests, messages, offsets, rows, segment_names

KEEP_FOR, REMEMBER = 60.0, 600.0


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """The time."""
        return self.now


class Feed:
    """One directory, its writers and its readers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = PosixFiles(path)
        self.clock = Clock()
        self.writers: list[FeedWriter] = []

    def writer(self, **options: Any) -> FeedWriter:
        """Opens a writer."""
        retention = Retention(KEEP_FOR, REMEMBER)
        options = {"clock": self.clock, "wall": self.clock} | options
        writer = FeedWriter(self.files, retention=retention, **options)
        self.writers.append(writer)
        writer.open()
        return writer

    def collect_garbage(self, writer: FeedWriter, after: float = KEEP_FOR) -> None:
        """Lets the writer look, and again after that much time."""
        writer.collect_garbage()
        self.clock.now += after
        writer.collect_garbage()

    def mark(self, number: int, name: str = "query") -> None:
        """A query has committed everything below a number."""
        ReaderMark(self.files, name).move(number)

    def reader(self, name: str | None = "query", **options: Any) -> FeedStreamReader:
        """A query's reader."""
        return FeedStreamReader(FeedUrl(str(self.path), reader=name, **options), 2)

    def numbers(self) -> list[int]:
        """The manifests whose segments are kept."""
        return [found.number for found in manifests(self.path)]


@pytest.fixture
def feed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Feed]:
    """A feed whose readers do not wait for news."""
    monkeypatch.setattr(feed_reader, "_IDLE_STEPS", 0)
    made = Feed(tmp_path)
    made.files.prepare(FOLDERS)
    yield made
    for writer in made.writers:
        writer.close()


def fill(writer: FeedWriter, count: int = 5, first: int = 0) -> None:
    """Commits so many segments of ten records."""
    for at in range(first, first + count):
        writer.commit([messages(10 * at, 10 * at + 9)])


def test_what_every_reader_has_committed_is_deleted(feed: Feed) -> None:
    """Trap 23, GC: segments below the lowest reader go, all others stay readable."""
    writer = feed.writer()
    fill(writer)
    feed.mark(4, "fast")
    feed.mark(2, "slow")
    feed.collect_garbage(writer)
    assert feed.numbers() == [2, 3, 4]
    assert offsets(feed.path) == list(range(20, 50))
    assert len(segment_names(feed.path)) == len(feed.files.names("manifests")) == 3
    feed.mark(5, "slow")
    feed.mark(5, "fast")
    feed.collect_garbage(writer)
    assert segment_names(feed.path) == set()
    assert feed.files.names("summaries") == ["0000000005.json"]


def test_nothing_is_deleted_without_a_reader(feed: Feed) -> None:
    """The default: the feed is the records' home."""
    writer = feed.writer()
    fill(writer)
    feed.collect_garbage(writer, 10 * REMEMBER)
    assert feed.numbers() == [0, 1, 2, 3, 4]


def test_a_committed_segment_is_kept_for_a_while(feed: Feed) -> None:
    """``keep_for`` counts from when the writer saw the commit, whatever wall clocks say."""
    writer = feed.writer(wall=lambda: 4e9)
    fill(writer, 2)
    feed.collect_garbage(writer, 10 * KEEP_FOR)
    feed.mark(2)
    feed.collect_garbage(writer, KEEP_FOR - 1)
    assert feed.numbers() == [0, 1]
    feed.mark(1)
    feed.collect_garbage(writer, 1)
    assert feed.numbers() == [1]
    feed.mark(2)
    feed.collect_garbage(writer, KEEP_FOR)
    assert feed.numbers() == []
    behind = feed.writer(wall=lambda: 0.0)
    fill(behind, 1, first=2)
    assert manifests(feed.path)[0].at == 4e12


def test_deleted_records_are_recognised_by_the_next_writer(feed: Feed) -> None:
    """The summary stands for the deleted manifests: what is fed again is dropped."""
    writer = feed.writer()
    fill(writer)
    feed.mark(5)
    feed.collect_garbage(writer)
    again = feed.writer()
    fill(again, 6)
    assert (again.dropped, again.written) == (50, 10)
    assert feed.numbers() == [5]
    assert offsets(feed.path) == list(range(50, 60))


def shard(first: int, last: int) -> list[Message]:
    """Records whose positions have a text form only."""
    found = messages(first, last, partition="shard-1", stream="clicks")
    for message in found:
        message.position = (message.position, 0)
    return found


def test_text_positions_are_recognised_for_a_while_after_the_deletion(feed: Feed) -> None:
    """Their manifests outlive their segments by ``remember``; then memory and disk are free."""
    writer = feed.writer()
    writer.commit([shard(0, 9)])
    writer.commit([shard(10, 19)])
    feed.mark(2)
    feed.collect_garbage(writer)
    assert segment_names(feed.path) == set()
    assert len(feed.files.names("manifests")) == 2
    for repeating in (writer, feed.writer()):
        repeating.commit([shard(0, 19)])
        assert repeating.dropped == 20
    feed.clock.now += REMEMBER + 1
    writer.commit([shard(20, 29)])
    feed.mark(3)
    feed.collect_garbage(writer)
    assert feed.files.names("manifests") == ["0000000002.json"]
    writer.commit([shard(0, 9)])
    assert len(rows(feed.path)) == 10


def test_a_stream_that_goes_on_makes_no_other_one_forgotten(feed: Feed) -> None:
    """Two consumers feed one directory; one is away for longer than ``remember``."""
    writer = feed.writer()
    writer.commit([shard(0, 9)])
    feed.clock.now += 10 * REMEMBER
    other = messages(0, 9, stream="views")
    for message in other:
        message.position = (message.position, 0)
    writer.commit([other])
    feed.mark(2)
    feed.collect_garbage(writer)
    assert segment_names(feed.path) == set()
    for back in (writer, feed.writer()):
        back.commit([shard(0, 9)])
        assert (back.dropped, feed.numbers()) == (10, [])


def test_a_cut_that_takes_long_is_not_made_often(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records wait while a large summary is written: that takes a twentieth of the time at most."""
    writer = feed.writer()
    fill(writer)
    feed.mark(1)
    original = ManifestLog.truncate

    def slow(*args: Any) -> bool:
        feed.clock.now += 10
        return original(*args)

    monkeypatch.setattr(ManifestLog, "truncate", slow)
    feed.collect_garbage(writer)
    assert feed.numbers() == [1, 2, 3, 4]
    feed.mark(2)
    feed.collect_garbage(writer, 199)
    assert feed.numbers() == [1, 2, 3, 4]
    feed.collect_garbage(writer, 1)
    assert feed.numbers() == [2, 3, 4]


def test_an_outage_does_not_make_text_positions_forgotten(feed: Feed) -> None:
    """What is fed again first after a long standstill is what was fed last before it."""
    writer = feed.writer()
    writer.commit([shard(0, 9)])
    feed.clock.now += REMEMBER
    writer.commit([shard(10, 19)])
    writer.close()
    feed.clock.now += 100 * REMEMBER
    again = feed.writer()
    again.collect_garbage()
    again.commit([shard(10, 29)])
    assert (again.dropped, again.written) == (10, 10)


def test_a_crash_between_summary_and_deletion_is_made_up_for(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trap 23: what a dead writer should have deleted goes with the next writer's start."""
    writer = feed.writer()
    fill(writer)
    feed.mark(3)
    with monkeypatch.context() as patch:
        patch.setattr(ManifestLog, "sweep", lambda *_: None)
        feed.collect_garbage(writer)
    assert len(segment_names(feed.path)) == 5
    feed.writer()
    assert len(segment_names(feed.path)) == 2
    assert offsets(feed.path) == list(range(30, 50))


def test_a_damaged_reader_file_stops_the_deletion_only(
    feed: Feed, caplog: pytest.LogCaptureFixture
) -> None:
    """Who cannot tell how far Spark is deletes nothing, and goes on writing."""
    writer = feed.writer()
    fill(writer)
    feed.mark(5)
    (feed.path / "readers" / "other.json").write_text("{}")
    with caplog.at_level(logging.WARNING):
        feed.collect_garbage(writer)
    assert "other.json" in caplog.text
    fill(writer, 1, first=5)
    assert feed.numbers() == [0, 1, 2, 3, 4, 5]


def test_a_fault_in_the_deletion_ends_nothing_else(
    feed: Feed, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever goes wrong while it tends, with its traceback in the log, records are written."""
    writer = feed.writer()
    with monkeypatch.context() as patch:
        patch.setattr(FeedIndex, "forget", lambda _: {"": 0}["a fault"])
        feed.collect_garbage(writer)
    assert "Traceback" in caplog.text
    fill(writer)
    assert feed.numbers() == [0, 1, 2, 3, 4]


def read(reader: FeedStreamReader, start: dict[str, int], end: dict[str, int]) -> list[int]:
    """The offsets of the rows between two of Spark's offsets."""
    parts = reader.partitions(start, end)
    batches = [batch for part in parts for batch in reader.read(part)]
    return [row["offset"] for batch in batches for row in batch.to_pylist()]


def test_a_planned_batch_is_held_until_spark_has_committed_it(feed: Feed) -> None:
    """Traps 4 and 7: planned twice, or again after a restart, a batch is there."""
    writer = feed.writer()
    fill(writer)
    reader = feed.reader()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    feed.collect_garbage(writer)
    restarted = feed.reader()
    assert restarted.initialOffset() == start
    assert read(restarted, start, end) == read(reader, start, end) == list(range(50))


def test_a_query_without_a_name_that_restarts_in_its_first_batch_skips_nothing(
    feed: Feed,
) -> None:
    """Trap 1: Spark asks for the start again, and others have committed what it began with."""
    writer = feed.writer()
    fill(writer)
    reader = feed.reader(None)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    restarted = feed.reader(None)
    assert restarted.initialOffset() == start
    assert read(restarted, start, end) == list(range(50))
    feed.mark(3)
    feed.collect_garbage(writer)
    restarted = feed.reader(None)
    with pytest.raises(FeedFormatError, match="below 3, and this query stands at 0"):
        restarted.partitions(restarted.initialOffset(), end)


def test_what_is_deleted_while_a_batch_is_planned_is_noticed(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifests are read first: a name below the floor may be another segment's by then."""
    writer = feed.writer()
    fill(writer)
    feed.mark(5)
    feed.collect_garbage(writer, 0)
    feed.clock.now += KEEP_FOR
    original = ManifestLog.find

    def meanwhile(log: ManifestLog, number: int) -> Any:
        found = original(log, number)
        monkeypatch.undo()
        writer.collect_garbage()
        return found

    monkeypatch.setattr(ManifestLog, "find", meanwhile)
    with pytest.raises(FeedFormatError, match="deleted its segments below 5"):
        feed.reader(None).partitions({"next": 0}, {"next": 1})


def test_a_batch_planned_from_a_restored_checkpoint_is_held(feed: Feed) -> None:
    """Trap 7: the mark says more than the older checkpoint, until its first batch is planned."""
    writer = feed.writer()
    fill(writer)
    feed.mark(5)
    restored = feed.reader()
    parts = restored.partitions({"next": 1}, {"next": 3})
    feed.collect_garbage(writer)
    assert feed.numbers() == [1, 2, 3, 4]
    assert sum(b.num_rows for part in parts for b in restored.read(part)) == 20
    assert read(restored, {"next": 3}, {"next": 4}) == list(range(30, 40))
    feed.collect_garbage(writer)
    assert feed.numbers() == [1, 2, 3, 4]


@pytest.mark.parametrize("says", ["commit", "start"])
def test_both_words_of_spark_for_committed_let_go(feed: Feed, says: str) -> None:
    """Trap 3: `commit`, and the start of the next look, which an idle stream has too."""
    writer = feed.writer()
    fill(writer)
    reader = feed.reader()
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    if says == "commit":
        reader.commit(end)
    else:
        assert reader.latestOffset(end, ReadAllAvailable()) == end
    feed.collect_garbage(writer)
    assert feed.numbers() == []
    fill(writer, 1, first=5)
    assert read(reader, end, reader.latestOffset(end, ReadAllAvailable())) == list(range(50, 60))


def test_with_asynchronous_progress_only_a_commit_lets_go(feed: Feed) -> None:
    """Trap 4: there the start of the next look runs ahead of what is logged."""
    writer = feed.writer()
    fill(writer)
    reader = feed.reader(is_async=True)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    reader.latestOffset(end, ReadAllAvailable())
    feed.collect_garbage(writer)
    assert len(feed.numbers()) == 5
    reader.commit(end)
    feed.collect_garbage(writer)
    assert feed.numbers() == []


def test_a_new_query_starts_at_the_first_segment_that_is_kept(feed: Feed) -> None:
    """Streaming or batch, named or not: from what is there, without an error."""
    writer = feed.writer()
    fill(writer)
    feed.mark(3)
    feed.collect_garbage(writer)
    for name in (None, "late"):
        reader = feed.reader(name)
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        assert reader.latestOffset()["next"] == end["next"] == 5
        assert read(reader, start, end) == list(range(30, 50))
    batch = FeedBatchReader(FeedUrl(str(feed.path)), 2)
    found = [each.num_rows for part in batch.partitions() for each in batch.read(part)]
    assert sum(found) == 20


def test_available_now_after_a_deletion_reads_what_is_kept(feed: Feed) -> None:
    """The target is counted from the first kept segment, not from the feed's first."""
    writer = feed.writer()
    fill(writer)
    feed.mark(3)
    feed.collect_garbage(writer)
    reader = feed.reader("late")
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(reader.initialOffset(), ReadAllAvailable()) == {"next": 5}


@pytest.mark.parametrize("knows", [False, True], ids=["restored checkpoint", "running query"])
def test_a_query_that_was_overtaken_is_told(feed: Feed, *, knows: bool) -> None:
    """Trap 23, deleted early: an error that says what to do, never rows left out in silence."""
    writer = feed.writer()
    fill(writer)
    reader = feed.reader(None)
    if knows:
        assert reader.latestOffset({"next": 1}, ReadAllAvailable()) == {"next": 5}
    feed.mark(5)
    feed.collect_garbage(writer)
    complaint = "deleted its segments below 5, and this query stands at 1"
    with pytest.raises(FeedFormatError, match=complaint):
        reader.latestOffset({"next": 1}, ReadAllAvailable())
    with pytest.raises(FeedFormatError, match=complaint):
        reader.partitions({"next": 1}, {"next": 5})


def test_a_checkpoint_of_another_feed_lets_nothing_be_deleted(feed: Feed) -> None:
    """The query is refused before it says how far it is: what was held stays held."""
    writer = feed.writer()
    fill(writer)
    feed.mark(3)
    with pytest.raises(FeedFormatError, match="another one"):
        feed.reader().latestOffset({"next": 500}, ReadAllAvailable())
    feed.collect_garbage(writer)
    assert feed.numbers() == [3, 4]


def test_a_reader_beyond_the_end_is_ignored(feed: Feed, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody can have committed what was never written: it deletes nothing, and is named once."""
    writer = feed.writer()
    fill(writer)
    feed.mark(6, "lost")
    feed.collect_garbage(writer)
    assert feed.numbers() == [0, 1, 2, 3, 4]
    feed.mark(2, "sound")
    feed.collect_garbage(writer)
    assert feed.numbers() == [2, 3, 4]
    assert caplog.text.count("readers lost of") == 1


def test_a_task_whose_segment_went_says_so(feed: Feed) -> None:
    """Trap 23, deleted early: between planning and reading."""
    fill(feed.writer(), 1)
    reader = feed.reader(None)
    parts = reader.partitions({"next": 0}, {"next": 1})
    for name in segment_names(feed.path):
        (feed.path / "segments" / name).unlink()
    with pytest.raises(FeedFormatError, match="deleted early"):
        list(reader.read(parts[0]))


def test_a_writer_that_slept_through_the_deletion_adds_nothing_below_it(feed: Feed) -> None:
    """Trap 23, two pumps: the names of deleted manifests are free, and must not be used."""
    sleeper, writer = feed.writer(), feed.writer()
    fill(writer)
    feed.mark(5)
    feed.collect_garbage(writer)
    sleeper.commit([messages(40, 59)])
    assert (sleeper.written, sleeper.dropped) == (10, 10)
    assert feed.numbers() == [5]
    assert offsets(feed.path) == list(range(50, 60))
    assert len(segment_names(feed.path)) == 1
    feed.writer()
    assert feed.files.names("manifests") == ["0000000005.json"]
    assert offsets(feed.path) == list(range(50, 60))


def test_a_claim_below_the_floor_is_never_taken_for_a_record_that_is_there(feed: Feed) -> None:
    """A writer that dies right after such a claim has stored nothing: the record comes again."""
    sleeper, writer = feed.writer(), feed.writer()
    fill(writer)
    feed.mark(5)
    feed.collect_garbage(writer)
    dies(sleeper._log, "floor", lambda: sleeper.commit([messages(50, 59)]))
    assert "0000000000.json" in feed.files.names("manifests")
    for other in (writer, feed.writer()):
        other.commit([messages(50, 59)])
    assert offsets(feed.path) == list(range(50, 60))


class DiedError(BaseException):
    """Stands for the end of a process: nothing but the test catches it."""


def dies(holder: object, name: str, work: Callable[[], object]) -> None:
    """Does ``work`` up to the first call of one method."""

    def end(*_: object) -> None:
        raise DiedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(holder), name, end)
        with pytest.raises(DiedError):
            work()


def test_a_writer_that_opens_during_a_deletion_buries_nothing_that_is_needed(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it read of the log half-way is not what is there: it reads everything anew."""
    dead, writer = feed.writer(), feed.writer()
    fill(dead)
    assert dead._lock is not None
    os.close(dead._lock._handle)  # as the kernel does
    dead._lock = None
    feed.mark(3)
    feed.collect_garbage(writer, 0)
    feed.clock.now += KEEP_FOR
    original = ManifestLog.check_complete

    def meanwhile(log: ManifestLog) -> None:
        monkeypatch.undo()
        writer.collect_garbage()
        original(log)

    monkeypatch.setattr(ManifestLog, "check_complete", meanwhile)
    late = feed.writer()
    assert feed.numbers() == [3, 4]
    assert offsets(feed.path) == list(range(30, 50))
    fill(late, 6)
    assert (late.written, late.dropped) == (10, 50)
