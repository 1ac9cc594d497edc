"""Writers and readers that are stopped between any two file operations, while others go on.

Each file operation of one may let others do whole pieces of work first: that is what a process
sees that was stopped (SIGSTOP, a long collection, a network) and goes on later. Some are never
woken again: those are dead.
"""

from __future__ import annotations

import contextlib
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterator

import fsspec
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles

from consumer_sdk.records import Assignment, Message, Partition
from consumer_sdk.spark_bridge.errors import FeedFormatError
from consumer_sdk.spark_bridge.feed import reader as feed_reader
from consumer_sdk.spark_bridge.feed.files import Files
from consumer_sdk.spark_bridge.feed.fsspec_files import FsspecFiles
from consumer_sdk.spark_bridge.feed.reader import FeedStreamReader
from consumer_sdk.spark_bridge.feed.url import FeedUrl
from consumer_sdk.spark_bridge.feed.writer import FeedWriter, Retention

Place = tuple[str, str]


# Pieces of work that others may do within one.
_MOST = 20


class DiedError(BaseException):
    """A process ends between two file operations."""


class Stoppable(FsspecFiles):
    """Files whose every operation may be preceded by somebody else's work."""

    __slots__ = ("before",)

    def __init__(self, root: str, before: Callable[[], None]) -> None:
        super().__init__(fsspec.filesystem("memory"), root)
        self.before = before

    def _path(self, name: str) -> str:
        # Every operation starts here.
        self.before()
        return super()._path(name)


class Field:
    """One feed, what was put into it, and what a query has got out of it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.root = f"/interleaving-{uuid.uuid4().hex}"
        self.now = 0.0
        self.depth = 0
        self.left = 0
        self.is_calm = False
        self.is_querying = False
        self.delivered: Counter[Place] = Counter()
        self.acked: set[Place] = set()
        self.start: dict[str, int] | None = None
        self.idle: list[FeedWriter] = []  # those that are not stopped in the middle of something
        self.join(3)

    def files(self) -> Files:
        """The feed's files, for one process."""
        return Stoppable(self.root, self.interrupt)

    def join(self, count: int = 1) -> None:
        """Starts writers, whose clocks are wrong."""
        self.calmly(lambda: self.idle.extend([self.writer() for _ in range(count)]))

    def writer(self) -> FeedWriter:
        """Opens a writer."""
        made = FeedWriter(
            self.files(),
            retention=Retention(segments=3.0, texts=50.0),
            clock=lambda: self.now,
            wall=lambda: 1000 + self.now + self.chance.choice([-20, 0, 20]),
        )
        made.open()
        return made

    def calmly(self, work: Callable[[], None]) -> None:
        """Does something without interruptions."""
        before, self.is_calm = self.is_calm, True
        try:
            work()
        finally:
            self.is_calm = before

    def interrupt(self) -> None:
        """What happens before a file operation: mostly nothing."""
        dice = self.chance.random()
        if self.is_calm or self.depth > 3 or self.left <= 0 or dice > 0.08:
            return
        if dice < 0.005 and self.depth:
            raise DiedError
        for _ in range(self.chance.randrange(1, 12)):
            self.act()

    def act(self) -> None:
        """One piece of work of one process; it may die of it."""
        self.left = self.left - 1 if self.depth else _MOST
        self.now += self.chance.random()
        work = self.chance.choices(
            [self.feed, self.collect_garbage, self.query, self.restart], [6, 3, 3, 1]
        )[0]
        self.depth += 1
        with contextlib.suppress(DiedError):
            work()
        self.depth -= 1

    def feed(self) -> None:
        """Puts some records, of which others may have put a part already."""
        wanted = self.some()

        def put(writer: FeedWriter) -> None:
            writer.commit([wanted])

        self.with_writer(put)
        # Not reached when the writer died, or when all are stopped.
        self.acked |= {(m.partition.id, str(m.position)) for m in wanted}

    def collect_garbage(self) -> None:
        """A writer looks what may be deleted."""
        self.with_writer(FeedWriter.collect_garbage)

    def restart(self) -> None:
        """A writer is closed, and another one opened."""
        self.with_writer(lambda _: self.writer())

    def with_writer(self, work: Callable[[FeedWriter], FeedWriter | None]) -> None:
        """Lets an idle writer work; a dead one is replaced, or it gives another one."""
        if not self.idle:
            raise DiedError
        writer = self.idle.pop(self.chance.randrange(len(self.idle)))
        try:
            again = work(writer)
        except DiedError:
            self.join()
            raise
        self.idle.append(writer if again is None else again)

    def some(self) -> list[Message]:
        """Records near the newest ones, by number or by text."""
        partition = self.chance.choice(["number", "text"])
        first = int(self.now) + self.chance.randrange(-10, 3)  # what comes again was fed lately
        assignment = Assignment(Partition("s", partition), 1)
        places = range(max(0, first), max(0, first) + self.chance.randrange(1, 5))
        return [
            Message.make(assignment, at if partition == "number" else f"t{at}", b"")
            for at in places
        ]

    def query(self) -> None:
        """The query, of which there is one, runs a micro-batch in a new process."""
        if not self.is_querying:
            self.is_querying = True
            try:
                self.micro_batch(ReadMaxFiles(self.chance.randrange(1, 6)))
            finally:
                self.is_querying = False

    def micro_batch(self, limit: ReadLimit) -> None:
        """Reads, delivers and commits, unless it dies between two of these steps."""
        reader = FeedStreamReader(FeedUrl(self.root, reader="query", protocol="memory"), 2)
        start = self.start or reader.initialOffset()
        end = reader.latestOffset(start, limit)
        self.interrupt()
        found = list(places(reader, start, end))
        self.interrupt()
        # Sink and commit log in one step: an idempotent sink.
        self.delivered.update(found)
        self.start = end
        self.interrupt()
        reader.commit(end)

    def finish(self) -> None:
        """The query takes what is left."""
        self.calmly(lambda: self.micro_batch(ReadAllAvailable()))


def places(reader: FeedStreamReader, start: dict[str, int], end: dict[str, int]) -> Iterator[Place]:
    """What the tasks of a micro-batch read."""
    for part in reader.partitions(start, end):
        for batch in reader.read(part):
            yield from ((row["partitionId"], row["position"]) for row in batch.to_pylist())


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_reader, "_IDLE_STEPS", 0)


@pytest.mark.parametrize("seed", range(8))
def test_processes_stopped_and_killed_anywhere_keep_each_record_once(seed: int) -> None:
    """Trap 23, two pumps, GC, crashes: every acked record reaches the query, and once."""
    field = Field(seed)
    for _ in range(40):
        field.act()
    field.finish()
    assert len(field.acked) > 20
    assert field.acked - field.delivered.keys() == set()
    assert [place for place, count in field.delivered.items() if count > 1] == []
    field.is_calm = True
    assert field.files().names("summaries") != []


def test_a_query_without_a_name_gets_all_or_an_error() -> None:
    """It may be overtaken by the deletion, and is told; it never misses a segment in silence."""
    told = 0
    for seed in range(4):
        field = Field(seed)
        reader = FeedStreamReader(FeedUrl(field.root, protocol="memory"), 2)
        start = reader.initialOffset()
        seen, begun = 0, None
        try:
            for _ in range(40):
                field.act()
                end = reader.latestOffset(start, ReadMaxFiles(9 if seed % 2 else 1))
                field.act()
                for part in reader.partitions(start, end):
                    seen += sum(batch.num_rows > 0 for batch in reader.read(part))
                begun = end.get("since", begun)
                start = end
        except FeedFormatError as error:
            told += "has deleted its segments" in str(error)
        assert seen == (0 if begun is None else start["next"] - begun)
    assert told
