"""Several processes as one consumer, from snapshots alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk import Partition
from consumer_sdk.admin.merging import (
    COUNTS,
    NOTHING,
    REMEMBERED,
    Member,
    Memory,
    ended,
    health,
    labelled,
    merged,
)
from consumer_sdk.runtime import Event, Health, HistogramSnapshot, PartitionSnapshot, Snapshot
from consumer_sdk.telemetry.metric import Labels
from consumer_sdk.telemetry.model import METRICS, collected, grouped

ZERO, ONE = Partition("s", "0"), Partition("s", "1")
READY = Health(live=True, ready=True)


def snapshot(*partitions: PartitionSnapshot, time: float = 1.0, **changes: Any) -> Snapshot:
    """Of a process that runs; changes of its stats as ``stats={…}``."""
    stats = replace(NOTHING.stats, **changes.pop("stats", {}))
    base = replace(NOTHING, time=time, broker="kafka", group="g", state="running", health=READY)
    return replace(base, partitions=partitions, stats=stats, **changes)


def times(count: int, seconds: float) -> HistogramSnapshot:
    """So many in the first bucket."""
    return HistogramSnapshot((count, *[0] * 14), seconds)


# -- as one ---------------------------------------------------------------------------------------


def test_counts_of_all_are_added() -> None:
    """Of everything that is counted; a time is the longest."""
    one = snapshot(
        stats={"settled": 3, "in_flight": 1, "partitions": (ZERO,)},
        handlers=1,
        in_flight_limit=10,
        loop_lag=0.5,
        handler_times={("s", None): times(2, 0.1), ("s", "KeyError"): times(1, 0.1)},
        dead_letters={"KeyError": 1},
    )
    other = snapshot(
        time=2.0,
        stats={"settled": 4, "partitions": (ONE,)},
        handlers=2,
        in_flight_limit=10,
        is_full=True,
        handler_times={("s", None): times(5, 0.25)},
        dead_letters={"KeyError": 2, "OSError": 1},
    )
    both = merged([other, one])
    assert (both.time, both.state, both.broker, both.group) == (2.0, "running", "kafka", "g")
    assert (both.stats.settled, both.stats.in_flight) == (7, 1)
    assert both.stats.partitions == (ZERO, ONE)
    assert (both.handlers, both.in_flight_limit, both.is_full, both.loop_lag) == (3, 20, True, 0.5)
    assert both.handler_times == {("s", None): times(7, 0.35), ("s", "KeyError"): times(1, 0.1)}
    assert both.dead_letters == {"KeyError": 3, "OSError": 1}


def test_partition_that_moved_is_one_with_the_counts_of_both() -> None:
    """Whoever holds it says what it does; a stopped one that claims it still is not believed."""
    left = PartitionSnapshot(ZERO, is_held=False, settled=3, revoked=1)
    stale = PartitionSnapshot(ZERO, settled=5, in_flight=9, lag=100, worker=1)
    here = PartitionSnapshot(ZERO, settled=2, in_flight=1, lag=4, worker=2)
    (row,) = merged(
        [snapshot(left, time=3.0), snapshot(here, time=2.0), snapshot(stale, time=1.0)]
    ).partitions
    assert row == here._replace(settled=10, revoked=1)


def test_pause_of_a_partition_that_nobody_holds_is_shown() -> None:
    """As long as one of them knows of it."""
    paused = PartitionSnapshot(ZERO, is_held=False, pause_text="why")
    gone = PartitionSnapshot(ZERO, is_held=False, settled=1)
    (row,) = merged([snapshot(paused), snapshot(gone, time=2.0)]).partitions
    assert row == paused._replace(settled=1)


def test_state_of_all_is_that_of_the_best() -> None:
    """One that was stopped alone has ended, though its process runs."""
    for states, state in (
        (["opening", "running", "failed"], "running"),
        (["stopping", "opening"], "opening"),
        (["closed", "stopping"], "stopping"),
        (["failed", "closed"], "closed"),
    ):
        assert merged([snapshot(state=each) for each in states]).state == state


def test_events_of_all_are_in_order_of_time_with_their_worker() -> None:
    """The last two hundred; their numbers tell them apart, also those of two lives of one worker."""
    events = [Event(n + 1, float(n), "assigned", (ZERO,), 1, "x") for n in range(150)]
    lives = [
        labelled(snapshot(events=tuple(events)), worker, life)
        for worker, life in ((0, 1), (1, 2), (0, 3))
    ]
    found = merged(lives).events
    assert len(found) == len({event.number for event in found}) == 200
    assert [event.time for event in found] == sorted(event.time for event in found)
    assert [event.worker for event in found[-3:]] == [0, 1, 0]


# -- ends -----------------------------------------------------------------------------------------


def test_what_has_ended_keeps_its_counts_alone() -> None:
    """No partition is held, nothing is in flight, and no handler runs."""
    row = PartitionSnapshot(ZERO, settled=3, lag=7, in_flight=2, pause_text="why", worker=1)
    left = ended(
        snapshot(
            row,
            stats={"settled": 3, "in_flight": 2, "retrying": 1, "partitions": (ZERO,)},
            handlers=2,
            handlers_limit=5,
            is_full=True,
            flushes={"durable": 2},
        )
    )
    assert left.partitions == (PartitionSnapshot(ZERO, is_held=False, settled=3),)
    assert (left.stats.settled, left.stats.in_flight, left.stats.retrying) == (3, 0, 0)
    assert (left.stats.partitions, left.handlers, left.handlers_limit) == ((), 0, 0)
    assert (left.is_full, left.flushes, left.broker) == (False, {"durable": 2}, "kafka")
    assert ended(left) == left


def test_counts_of_partitions_that_ended_are_bounded() -> None:
    """Those that were heard of last are kept."""
    rows = [PartitionSnapshot(Partition("s", str(n)), settled=n) for n in range(REMEMBERED + 1)]
    past = ended(merged([snapshot(*rows), snapshot(rows[0], time=2.0)]))
    kept = {each.partition.id for each in past.partitions}
    assert len(kept) == REMEMBERED
    assert "0" in kept
    assert "1" not in kept


def _counters(snapshots: list[Snapshot]) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Each counter of the metrics."""

    def key(labels: Labels) -> tuple[tuple[str, str], ...]:
        return tuple(labels.items())

    return {
        (metric.name, key(labels)): value if isinstance(value, int | float) else value.total
        for metric in METRICS
        if metric.kind in {"counter", "histogram"}
        for labels, value in collected(metric, grouped(snapshots))
    }


LIVES = st.lists(
    st.tuples(st.integers(0, 2), st.booleans(), st.integers(0, 1), st.integers(0, 5)), max_size=30
)


@given(LIVES)
def test_no_counter_falls_whoever_ends(steps: list[tuple[int, bool, int, int]]) -> None:
    """Workers count, end and start again; partitions move between them."""
    past, living = NOTHING, dict.fromkeys(range(3), snapshot())
    before: dict[Any, float] = {}
    for clock, (worker, ends, partition, more) in enumerate(steps):
        if ends:
            past = ended(merged([past, living[worker]]))
            living[worker] = snapshot(time=float(clock))
        else:
            living[worker] = _counted(living[worker], Partition("s", str(partition)), more, clock)
        now = _counters([merged([past, *living.values()])])
        assert all(now[key] >= value for key, value in before.items())
        before = now


def _counted(one: Snapshot, partition: Partition, more: int, clock: int) -> Snapshot:
    rows = {each.partition: each for each in one.partitions}
    row = rows.get(partition, PartitionSnapshot(partition))
    rows[partition] = row._replace(**{name: getattr(row, name) + more for name in COUNTS})
    known = one.handler_times.get(("s", None), times(0, 0.0))
    return replace(
        one,
        time=float(clock),
        partitions=tuple(rows.values()),
        stats=replace(one.stats, lost=one.stats.lost + more),
        handler_times={("s", None): known.plus(times(more, 0.1))},
        flushes={"durable": one.flushes.get("durable", 0) + more},
    )


# -- health ---------------------------------------------------------------------------------------


def test_all_are_ready_or_it_is_said_which_is_not() -> None:
    """One that is away or starts is started anyhow: that is no reason to restart the whole."""
    closing = Health(live=True, ready=False, reasons=("the consumer is stopping",))
    found = health(
        [
            Member(0, snapshot()),
            Member(1, is_running=False),
            Member(2),
            Member(3, snapshot(health=closing)),
        ]
    )
    assert (found.live, found.ready) == (True, False)
    assert found.reasons == (
        "worker 1 does not run",
        "worker 2 is being started",
        "worker 3 says: the consumer is stopping",
    )
    assert health([Member(0, snapshot()), Member(1, snapshot())]) == READY
    assert not health([]).ready


def test_worker_that_owes_an_answer_is_named_and_given_up_after_ten_seconds() -> None:
    """As an event loop that does not turn."""
    found = health([Member(0, snapshot(), silent=1.2)])
    assert (found.live, found.ready) == (True, True)
    assert found.reasons == ("worker 0 has not answered for 1.2 s",)
    found = health([Member(0, snapshot(), silent=10.5), Member(1, snapshot(), silent=0.3)])
    assert (found.live, found.ready) == (False, False)
    assert found.reasons == ("worker 0 has not answered for 10.5 s",)


# -- what a process forgets -----------------------------------------------------------------------


def _settled(*parts: tuple[Partition, int]) -> Snapshot:
    return snapshot(*(PartitionSnapshot(at, settled=count) for at, count in parts))


def test_what_a_process_has_forgotten_of_a_partition_still_counts() -> None:
    """It keeps the counts of a thousand that left, and begins anew with one that comes back."""
    memory, other = Memory(), _settled((ZERO, 100))
    counts = []
    for parts in (
        [(ZERO, 5), (ONE, 1)],
        [(ONE, 2)],  # forgotten
        [(ONE, 3)],
        [(ZERO, 1), (ONE, 3)],  # it is back, and begins anew
        [(ZERO, 4), (ONE, 3)],
        [(ZERO, 2), (ONE, 3)],  # it was forgotten, and came back, between two looks
        [(ONE, 3)],
        [(ZERO, 0), (ONE, 3)],
    ):
        rows = merged([memory.with_forgotten(_settled(*parts)), other]).partitions
        counts.append({row.partition.id: row.settled for row in rows})
    assert [each["0"] for each in counts] == [105, 105, 105, 106, 109, 111, 111, 111]
    assert [each["1"] for each in counts] == [1, 2, 3, 3, 3, 3, 3, 3]


def test_partition_that_one_answer_left_out_is_not_counted_twice() -> None:
    """It came in the middle of a look: the next answer has all of it."""
    memory = Memory()
    counts = [
        merged([memory.with_forgotten(_settled(*parts))]).partitions[0].settled
        for parts in ([(ZERO, 5)], [], [(ZERO, 6)], [(ZERO, 7)])
    ]
    assert counts == [5, 5, 6, 7]


def test_what_was_forgotten_is_bounded() -> None:
    """As what was counted by those that ended is."""
    memory = Memory()
    memory.with_forgotten(_settled(*((Partition("s", str(n)), n) for n in range(REMEMBERED + 5))))
    assert len(memory.with_forgotten(_settled()).partitions) == REMEMBERED
