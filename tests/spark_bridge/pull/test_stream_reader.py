"""Claims about the streaming reader, called as Spark calls it, on logs in memory."""

from __future__ import annotations

import asyncio
import json
import pickle
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from consumer_sdk.errors import TransientAdapterError
from consumer_sdk.records import Outcome
from consumer_sdk.spark_bridge.errors import DataLossError, StrictAckError
from consumer_sdk.spark_bridge.pull import run
from consumer_sdk.spark_bridge.pull.connections import of_this_process
from consumer_sdk.spark_bridge.pull.planning import polling
from consumer_sdk.spark_bridge.pull.planning.offsets import INITIAL
from consumer_sdk.spark_bridge.pull.stream_reader import PullStreamReader
from tests.spark_bridge.pull.memory_ranges import Logs, at, memory_options

Offset = dict[str, Any]
PATIENCE = 300.0


class Clock:
    """In the place of the module that tells a run the time; it stands still unless a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        """Seconds."""
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """Answers and acks are waited for, however long the machine stands still; no thread is left."""
    clock = Clock()
    monkeypatch.setattr(run, "time", clock)
    monkeypatch.setattr(polling, "_ANSWER_SECONDS", PATIENCE)
    for name in ("_ACK_SECONDS", "_LAST_ACK_SECONDS", "_RUN_END_SECONDS"):
        monkeypatch.setattr(run, name, PATIENCE)
    yield clock
    of_this_process().loop.stop()


class Query:
    """One run after the other of one query, with Spark's offset log between them."""

    def __init__(self, logs: Logs, **options: Any) -> None:
        self.logs = logs
        self.options = options
        self.planned: list[Offset] = []
        self.done = 0
        self.rows: list[list[bytes]] = []
        self.restart()

    def restart(self) -> None:
        """Begin another run; a batch that was planned and is not done is run again."""
        self.reader = PullStreamReader(memory_options(self.logs, **self.options))
        if self.done < len(self.planned):
            self.run()

    @property
    def start(self) -> Offset:
        """Return where the next batch begins."""
        return self.planned[self.done - 1] if self.done else self.reader.initialOffset()

    def plan(self, limit: ReadLimit | None = None) -> bool:
        """Ask for the next batch and log its end; False: there is none."""
        limit = limit or self.reader.getDefaultReadLimit()
        end = self.reader.latestOffset(self.start, limit)
        if json.dumps(end) == json.dumps(self.start):
            return False
        self.planned.append(json.loads(json.dumps(end)))
        if self.done:
            self.reader.commit(self.start)
        return True

    def run(self) -> list[bytes]:
        """Run the planned batch, and log that."""
        tasks = self.reader.partitions(self.start, self.planned[self.done])
        self.rows.append(sorted(self.values(tasks)))
        self.done += 1
        return self.rows[-1]

    def values(self, tasks: Sequence[Any]) -> list[bytes]:
        """Read tasks that travelled with another reader, as workers do."""
        reader = PullStreamReader(memory_options(self.logs, **self.options))
        found: list[bytes] = []
        for task in pickle.loads(pickle.dumps(list(tasks))):  # noqa: S301 - our own
            for batch in reader.read(task):
                found += batch.column(batch.schema.names.index("value")).to_pylist()
        return found

    def batch(self) -> list[bytes] | None:
        """Plan and run one; None when there is nothing."""
        return self.run() if self.plan() else None

    def ack(self) -> dict[str, int]:
        """Return where the group stands, by partition."""
        return {partition.id: position for partition, position in self.logs.group.items()}


def everything(logs: Logs) -> list[bytes]:
    """Return all records, sorted."""
    return sorted(value for values in logs.values.values() for value in values)


def test_the_initial_offset_is_a_constant() -> None:
    """Trap 1: Spark asks twice; what moves in between would be skipped."""
    logs = Logs.of(3)
    query = Query(logs)
    first = query.reader.initialOffset()
    logs.add(0, 5)
    assert query.reader.initialOffset() == first == INITIAL
    assert logs.opened == 0


def test_a_query_begins_at_the_latest_record() -> None:
    """As Spark's own source; its first batch is empty, and says where it began."""
    logs = Logs.of(3, 0)
    query = Query(logs)
    assert query.batch() == []
    logs.add(0, 2)
    logs.add(1, 1)
    assert query.batch() == [b"0:3", b"0:4", b"1:0"]


def test_a_crash_in_the_first_batch_reads_the_same_again() -> None:
    """Trap 1: the start that "latest" meant is in Spark's own log, whatever came meanwhile."""
    logs = Logs.of(3)
    query = Query(logs, startingOffsets="latest")
    assert query.plan()
    logs.add(0, 4)
    query.restart()
    assert query.rows == [[]]
    assert query.batch() == [b"0:3", b"0:4", b"0:5", b"0:6"]


def test_a_crash_in_a_later_batch_reads_the_same_again() -> None:
    """Trap 8: the planned range, not what is there now."""
    logs = Logs.of(3)
    query = Query(logs, startingOffsets="earliest")
    query.batch()
    logs.add(0, 2)
    assert query.plan()
    logs.add(0, 2)
    query.restart()
    assert query.rows[1] == [b"0:3", b"0:4"]
    assert query.batch() == [b"0:5", b"0:6"]


def test_no_news_is_the_identical_text() -> None:
    """Trap 2: Spark compares texts; another one would be an empty batch, and another."""
    logs = Logs.of(30, 7)
    query = Query(logs, startingOffsets="earliest")
    query.batch()
    for _ in range(3):
        assert not query.plan()
    query.restart()
    assert not query.plan()


def test_limits_are_kept_and_nothing_is_lost() -> None:
    """Each batch within the limit, each record once."""
    logs = Logs.of(100, 3, 0, 20)
    query = Query(logs, startingOffsets="earliest", maxOffsetsPerTrigger=10)
    while query.batch():
        assert len(query.rows[-1]) <= 10 + 3
    assert sorted(value for rows in query.rows for value in rows) == everything(logs)


def test_an_engine_that_says_no_start_reads_each_record_once() -> None:
    """PySpark 4.0 and 4.1: it tells where a query stands that is started again, and nothing else."""
    logs = Logs.of(30, 7)
    query = Query(logs, startingOffsets="earliest", maxOffsetsPerTrigger=10)
    first = query.reader.latestOffset()
    rows = [query.values(query.reader.partitions(query.reader.initialOffset(), first))]
    assert query.reader.latestOffset() == first
    query.restart()
    logs.add(0, 20)
    assert query.reader.partitions(first, first) == []
    second = query.reader.latestOffset()
    rows.append(query.values(query.reader.partitions(first, second)))
    logs.add(0, 20)
    third = query.reader.latestOffset()
    rows.append(query.values(query.reader.partitions(second, third)))
    assert [len(each) for each in rows] == [37, 20, 10]
    assert len(set(chain.from_iterable(rows))) == 67


def test_an_engine_that_wants_all_gets_all() -> None:
    """``ReadAllAvailable`` (Trigger.Once) knows no limits of ours."""
    logs = Logs.of(100)
    query = Query(logs, startingOffsets="earliest", maxOffsetsPerTrigger=10)
    assert query.plan(ReadAllAvailable())
    assert len(query.run()) == 100


def test_a_limit_of_the_engine_is_kept() -> None:
    """Also where the options set none."""
    logs = Logs.of(100)
    query = Query(logs, startingOffsets="earliest")
    assert query.plan(ReadMaxRows(7))
    assert len(query.run()) == 7


def test_too_few_records_wait_for_more() -> None:
    """``minOffsetsPerTrigger``; not the first time."""
    logs = Logs.of(1)
    query = Query(logs, startingOffsets="earliest", minOffsetsPerTrigger=5)
    assert query.batch() == [b"0:0"]
    logs.add(0, 4)
    assert query.batch() is None
    logs.add(0, 1)
    assert len(query.batch() or ()) == 5


def test_sizes_are_not_asked_for_while_too_few_records_wait() -> None:
    """They cost a fetch of each partition, and each look would ask for them."""
    logs = Logs.of(1)
    options = {"minOffsetsPerTrigger": 5, "maxBytesPerTrigger": 10_000}
    query = Query(logs, startingOffsets="earliest", **options)
    assert query.batch() == [b"0:0"]
    logs.add(0, 4)
    asked = logs.sized
    assert query.batch() is None
    assert logs.sized == asked
    logs.add(0, 1)
    assert len(query.batch() or ()) == 5
    assert logs.sized == asked + 1


def test_a_run_until_now_ends_where_it_began_to_look() -> None:
    """AvailableNow: what comes later belongs to the next run; the group stands at the end."""
    logs = Logs.of(10, 5)
    query = Query(logs, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    query.reader.prepareForTriggerAvailableNow()
    expected = everything(logs)
    while query.batch():
        logs.add(0, 1)
    assert sorted(value for rows in query.rows for value in rows) == expected
    assert query.ack() == {"0": 10, "1": 5}


def test_an_idle_stream_is_acked_to_its_end(clock: Clock) -> None:
    """Trap 3: also after its only batch, within seconds."""
    logs = Logs.of(10)
    query = Query(logs, startingOffsets="earliest")
    query.batch()
    while query.ack() != {"0": 10}:
        assert not query.plan()
        clock.now += 0.5
    assert query.ack() == {"0": 10}


def test_an_idle_stream_has_one_empty_batch_where_nothing_else_would_ack_its_last(
    clock: Clock,
) -> None:
    """Trap 3: after a restart and one batch, which a commit has to follow."""
    logs = Logs.of(10)
    query = Query(logs, startingOffsets="earliest")
    query.batch()
    query.restart()
    logs.add(0, 5)
    assert len(query.batch() or []) == 5
    while query.ack() != {"0": 15}:
        assert query.batch() in (None, [])
        clock.now += 0.5
    assert query.ack() == {"0": 15}
    assert query.done == 3
    logs.add(0)
    assert len(query.batch() or []) == 1


def test_acks_follow_the_log() -> None:
    """Trap 4: what was planned and has not run is not acked."""
    logs = Logs.of(10)
    query = Query(logs, startingOffsets="earliest", maxOffsetsPerTrigger=2)
    for number in range(1, 5):
        assert query.plan()
        assert logs.group.get(at(0), 0) <= 2 * (number - 1)
        query.run()
    assert query.ack() == {"0": 6}


def test_nothing_is_acked_where_nobody_wants_it() -> None:
    """``ackMode=none``."""
    logs = Logs.of(10)
    query = Query(logs, startingOffsets="earliest", maxOffsetsPerTrigger=2, ackMode="none")
    query.reader.prepareForTriggerAvailableNow()
    while query.batch():
        pass
    assert logs.commits == []


def test_acks_that_fail_do_not_fail_the_query_nor_hold_it_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Trap 5: they are tried again behind the scenes."""
    monkeypatch.setattr(run, "_ACK_SECONDS", 0.0)
    logs = Logs.of(10)
    query = Query(logs, startingOffsets="earliest", maxOffsetsPerTrigger=1)
    query.reader.prepareForTriggerAvailableNow()
    logs.commit_faults = [Outcome.retry(OSError("down"))] * 3
    while query.batch():
        pass
    query.reader.stop()
    assert query.ack() == {"0": 10}


def test_acks_that_fail_fail_a_strict_query() -> None:
    """``strictAcks``: the error says what goes on where."""
    logs = Logs.of(10)
    query = Query(logs, startingOffsets="earliest", strictAcks=True, maxOffsetsPerTrigger=1)
    query.reader.prepareForTriggerAvailableNow()
    query.batch()
    logs.commit_faults = [Outcome(Outcome.durable().kind.FENCED, error=OSError("has members"))]
    with pytest.raises(StrictAckError, match=r"has members.*strictAcks"):
        query.batch()


def test_a_stopped_reader_has_acked_what_is_done() -> None:
    """The last word before the process ends."""
    logs = Logs.of(10)
    query = Query(logs, startingOffsets="earliest", maxOffsetsPerTrigger=2)
    for _ in range(5):
        query.batch()
    logs.commit_faults = [Outcome.retry(OSError("down"))]
    query.plan()
    query.reader.stop()
    query.reader.stop()
    assert query.ack() == {"0": 10}
    assert logs.opened == logs.closed


def test_a_new_partition_is_read_from_its_first_record() -> None:
    """Trap 11: all that is in it is new."""
    logs = Logs.of(3)
    query = Query(logs)
    query.batch()
    logs.add(1, 2)
    assert query.batch() == [b"1:0", b"1:1"]


@pytest.mark.parametrize("is_tolerant", [False, True])
def test_a_partition_that_a_list_leaves_out_keeps_its_place(is_tolerant: bool) -> None:  # noqa: FBT001 - a case
    """Trap 11: what no list shows for a moment is not gone, and not new when it comes back."""
    logs = Logs.of(3, 3)
    query = Query(logs, startingOffsets="earliest", failOnDataLoss=not is_tolerant)
    query.batch()
    logs.unlisted = {at(1)}
    logs.add(0, 1)
    logs.add(1, 1)
    assert query.batch() == [b"0:3"]
    logs.unlisted = set()
    assert query.batch() == [b"1:3"]


def test_an_outage_may_take_as_long_as_the_options_say() -> None:
    """Half a minute where they say nothing."""
    logs = Logs.of(1)
    logs.faults = [TransientAdapterError("away")] * 1000
    reader = PullStreamReader(memory_options(logs, maxOutage="200ms"))
    with pytest.raises(TransientAdapterError, match=r"has not answered for 0\.2 s .*maxOutage"):
        reader.latestOffset(INITIAL)
    reader.stop()


def test_a_topic_that_is_no_longer_subscribed_to_is_not_gone() -> None:
    """It keeps its place: the query goes on with the others, and with it when it is chosen again."""
    logs = Logs.of(3, 3)
    query = Query(logs, startingOffsets="earliest")
    query.batch()
    logs.unchosen = {at(1)}
    query.restart()
    logs.add(0, 1)
    logs.add(1, 1)
    assert query.batch() == [b"0:3"]
    assert query.batch() is None
    logs.unchosen = set()
    query.restart()
    assert query.batch() == [b"1:3"]


def test_a_stream_without_partitions_waits_for_them() -> None:
    """And misses nothing of what comes, in this run or the next: the checkpoint has begun."""
    logs = Logs.of()
    query = Query(logs)
    assert query.batch() == []
    assert query.batch() is None
    query.restart()
    assert query.batch() is None
    logs.add(0, 2)
    query.restart()
    assert query.batch() == [b"0:0", b"0:1"]


def test_a_stream_whose_partitions_are_all_gone_has_still_begun() -> None:
    """Trap 11: "latest" is for its very beginning: what is made again is new."""
    logs = Logs.of(3)
    query = Query(logs, failOnDataLoss=False)
    query.batch()
    logs.values.clear()
    assert query.batch() == []
    assert query.start != INITIAL
    logs.add(0, 2)
    query.restart()
    assert query.batch() == [b"0:0", b"0:1"]


@pytest.mark.parametrize("is_tolerant", [False, True])
def test_records_that_are_gone_are_a_loss(is_tolerant: bool) -> None:  # noqa: FBT001 - a case
    """Trap 8: ``failOnDataLoss``; without it, the query reads what is left."""
    logs = Logs.of(10)
    query = Query(logs, startingOffsets="earliest", failOnDataLoss=not is_tolerant)
    assert query.plan()
    logs.first[at(0)] = 8
    if is_tolerant:
        assert query.run() == [b"0:8", b"0:9"]
    else:
        with pytest.raises(DataLossError, match="failOnDataLoss"):
            query.run()


@pytest.mark.parametrize("is_tolerant", [False, True])
def test_records_deleted_before_a_task_reads_them_are_a_loss(is_tolerant: bool) -> None:  # noqa: FBT001 - a case
    """Retention runs between planning and reading too."""
    logs = Logs.of(30, 5)
    query = Query(logs, startingOffsets="earliest", failOnDataLoss=not is_tolerant)
    query.plan()
    tasks = query.reader.partitions(query.start, query.planned[0])
    logs.first = {at(0): 28, at(1): 5}
    if is_tolerant:
        assert query.values(tasks) == [b"0:28", b"0:29"]
    else:
        with pytest.raises(DataLossError, match="failOnDataLoss=false goes on"):
            query.values(tasks)


@pytest.mark.parametrize("is_tolerant", [False, True])
def test_a_log_made_again_below_a_planned_batch_is_a_loss(is_tolerant: bool) -> None:  # noqa: FBT001 - a case
    """Trap 11: it is found before a task waits for what never comes."""
    logs = Logs.of(10)
    query = Query(logs, startingOffsets="earliest", failOnDataLoss=not is_tolerant)
    assert query.plan()
    logs.values[at(0)] = [b"new"] * 2
    if is_tolerant:
        assert query.run() == [b"new"] * 2
    else:
        with pytest.raises(DataLossError, match="t/0 ends at 2, below 10"):
            query.run()


@pytest.mark.parametrize("is_tolerant", [False, True])
def test_a_log_made_again_before_a_task_reads_it_is_a_loss(is_tolerant: bool) -> None:  # noqa: FBT001 - a case
    """Nothing of the new one is read for what was lost, and the task ends."""
    logs = Logs.of(10)
    query = Query(logs, startingOffsets="earliest", failOnDataLoss=not is_tolerant)
    query.batch()
    logs.add(0, 5)
    query.plan()
    tasks = query.reader.partitions(query.start, query.planned[1])
    logs.values[at(0)] = [b"new"] * 2
    if is_tolerant:
        assert query.values(tasks) == []
    else:
        with pytest.raises(DataLossError, match="failOnDataLoss=false goes on"):
            query.values(tasks)


def test_a_short_outage_passes_unnoticed() -> None:
    """No exception, no lost record."""
    logs = Logs.of(10)
    query = Query(logs, startingOffsets="earliest")
    query.batch()
    logs.add(0, 1)
    logs.faults = [TransientAdapterError("down")] * 2
    found = [query.batch() for _ in range(4)]
    assert [rows for rows in found if rows] == [[b"0:10"]]


def test_a_batch_can_be_read_twice() -> None:
    """Trap 7: two actions on one batch, or a union with itself."""
    logs = Logs.of(25, 5)
    query = Query(logs, startingOffsets="earliest")
    query.plan()
    tasks = query.reader.partitions(query.start, query.planned[0])
    assert query.values(tasks) == query.values(tasks)
    assert sorted(query.values(tasks)) == everything(logs)


def test_a_reader_that_only_travels_starts_nothing() -> None:
    """Trap 17: neither a thread nor a connection where Spark plans or unpickles."""
    before = set(threading.enumerate())
    logs = Logs.of(1)
    reader = PullStreamReader(memory_options(logs))
    reader.getDefaultReadLimit()
    assert reader.reportLatestOffset() is None
    reader.stop()
    assert set(threading.enumerate()) <= before
    assert logs.opened == 0


def test_progress_reports_show_the_end_as_last_seen() -> None:
    """Whose it is, and since when something waits; without asking the broker."""
    logs = Logs.of(3)
    query = Query(logs, maxOffsetsPerTrigger=2)
    query.batch()
    asked = logs.asked
    ours = {"version": 1, "broker": "memory", "group": "g"}
    at_end = {"positions": {"t": {"0": "3"}}, "waiting": {}}
    assert query.reader.reportLatestOffset() == ours | at_end
    assert logs.asked == asked
    logs.add(0, 3)
    before = time.time()
    query.batch()
    logs.add(0, 3)
    query.batch()
    found = query.reader.reportLatestOffset()
    assert found is not None
    assert found["positions"] == {"t": {"0": "9"}}
    assert before <= found["waiting"]["t"]["0"] <= time.time()
    json.dumps(found)


def test_query_that_begins_behind_asks_how_old_its_records_are() -> None:
    """In the background: the next report has it. Its records have their times from 1 s on."""
    logs = Logs.of(30)
    query = Query(logs, startingOffsets="earliest", maxOffsetsPerTrigger=5)
    query.batch()
    running = query.reader._run
    assert running is not None
    asked = running._planner._ages._round
    assert asked is not None
    of_this_process().loop.call(asyncio.wait([asked]), timeout=PATIENCE)
    query.batch()
    found = query.reader.reportLatestOffset()
    assert found is not None
    assert found["waiting"] == {"t": {"0": 1.005}}
    while query.batch():
        pass
    found = query.reader.reportLatestOffset()
    assert found is not None
    assert found["waiting"] == {}
    query.reader.stop()
