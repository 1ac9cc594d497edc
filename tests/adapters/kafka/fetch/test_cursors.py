"""The rules of fetching one by one: what is asked, when it is asked again, and what an answer means."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import (
    CorruptRecordException,
    InvalidTopicError,
    KafkaError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
)

from consumer_sdk.adapters.kafka.fetch.cursor import OVERHEAD, Chunk, Cursor, Fault
from consumer_sdk.adapters.kafka.fetch.cursors import ASIDE, PACE, Cursors, FetchOptions, Plan
from consumer_sdk.adapters.kafka.fetch.structs import Fetched, PartitionAnswer
from consumer_sdk.errors import PositionOutOfRangeError
from tests.adapters.kafka.decoding.test_salvage import rows
from tests.adapters.kafka.decoding.test_unpacking import batch

A, B, C = (TopicPartition("t", n) for n in range(3))
OPTIONS = FetchOptions(max_bytes=16_000, max_partition_bytes=4000, backoff=0.25)
SESSION = 7


class Known:
    """What the metadata say: node and epoch of each leader, and the nodes."""

    def __init__(self) -> None:
        self.leaders: dict[TopicPartition, tuple[int, int]] = {}
        self.nodes = {1, 2}

    def leader_of(self, tp: TopicPartition) -> tuple[int, int] | None:
        """As `Leaders` has it."""
        return self.leaders.get(tp)

    def has_node(self, node: int) -> bool:
        """As `Leaders` has it."""
        return node in self.nodes


class Bench:
    """Cursors at offset 5 of the partitions of node 1, in the leader's epoch 3."""

    def __init__(self, *tps: TopicPartition, **options: Any) -> None:
        self.known = Known()
        self.cursors = Cursors(self.known, OPTIONS._replace(**options))
        self.all = [self.open(tp) for tp in tps or (A,)]
        self.cursor = self.all[0]

    def open(self, tp: TopicPartition, position: int = 5) -> Cursor:
        """One more cursor."""
        self.known.leaders.setdefault(tp, (1, 3))
        cursor = Cursor(tp)
        self.cursors.add(cursor)
        cursor.seek(position)
        cursor.resume()
        return cursor

    def plan(self, now: float) -> Plan:
        """The one request that is to be sent now."""
        (plan,) = self.cursors.look(now).plans
        return plan

    def wakes(self, now: float) -> float | None:
        """When to look again, where there is nothing to send now."""
        found = self.cursors.look(now)
        assert found.plans == []
        return found.wake_at

    def accept(self, plan: Plan, now: float, *parts: PartitionAnswer, **head: int) -> bool:
        """Takes an answer."""
        fields = {"throttle": 0, "error": 0, "session": SESSION} | head
        return self.cursors.accept(plan, Fetched(**fields, partitions=list(parts)), now)


def part(**changed: Any) -> PartitionAnswer:
    """An answer for the first partition: nothing new, with the end of the log at 9."""
    fields: dict[str, Any] = {"topic": "t", "partition": 0, "error": 0, "highwater": 9}
    fields |= {"last_stable": 8, "log_start": 2, "aborted": (), "replica": -1}
    return PartitionAnswer(**(fields | {"diverging": None, "records": b""} | changed))


def records(first: int, end: int, epoch: int = 3) -> bytes:
    """A batch."""
    raw = batch(rows(first, end))
    return raw[:12] + epoch.to_bytes(4, signed=True) + raw[16:]


# -- errors of a partition -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code, error",
    [
        (2, CorruptRecordException),
        (17, InvalidTopicError),
        (29, TopicAuthorizationFailedError),
        (35, UnsupportedVersionError),
        (43, KafkaError),
        (76, KafkaError),
    ],
)
def test_error_that_is_the_readers_comes_at_once(code: int, error: type[Exception]) -> None:
    """Whoever reads decides; nothing is asked behind it."""
    bench = Bench()
    assert bench.accept(bench.plan(0.0), 0.0, part(error=code))
    fault = bench.cursor.front
    assert isinstance(fault, Fault)
    assert isinstance(fault.error, error)
    assert bench.wakes(9.0) is None


@pytest.mark.parametrize("code", [3, 5, 6, 9, 56, 74, 75, 78, 100, 103])
def test_leader_of_before_is_asked_again_after_a_while_and_its_successor_at_once(
    code: int,
) -> None:
    """Fresh metadata say whether there is one."""
    bench = Bench()
    assert not bench.accept(bench.plan(0.0), 0.0, part(error=code))
    found = bench.cursors.look(0.1)
    assert (found.plans, found.is_stale, found.wake_at) == ([], True, 0.25)
    assert not bench.cursors.look(0.2).is_stale
    bench.known.leaders[A] = (2, 4)
    plan = bench.plan(0.2)
    assert (plan.node, plan.request.asks[A].leader_epoch) == (2, 4)
    assert bench.cursor.front is None


@pytest.mark.parametrize("code", [-1, 7, 13])
def test_error_that_may_pass_is_asked_again_without_fresh_metadata(code: int) -> None:
    """As soon as the pause is over."""
    bench = Bench()
    assert not bench.accept(bench.plan(0.0), 0.0, part(error=code))
    assert not bench.cursors.look(0.1).is_stale
    assert bench.wakes(0.2) == 0.25
    assert bench.plan(0.25).request.asks[A].offset == 5


def test_offset_out_of_range_is_a_fault_if_the_leader_says_it_twice_of_the_same_offset() -> None:
    """A leader that was replaced says it too; so the metadata are asked for."""
    bench = Bench()
    assert not bench.accept(bench.plan(0.0), 0.0, part(error=1))
    assert bench.cursors.look(0.1).is_stale
    assert not bench.cursor.has_lost_past
    bench.cursor.seek(6)
    assert not bench.accept(bench.plan(1.0), 1.0, part(error=1))
    assert bench.accept(bench.plan(2.0), 2.0, part(error=1))
    fault = bench.cursor.front
    assert isinstance(fault, Fault)
    assert isinstance(fault.error, OffsetOutOfRangeError)
    assert fault.error.args == ({A: 6},)
    assert bench.cursor.has_lost_past


def test_error_of_a_replica_leads_back_to_the_leader() -> None:
    """A follower may be behind: it says nothing of what the log has."""
    bench = Bench(rack="r")
    bench.cursor.replica = 2, 100.0
    for now in (0.0, 1.0):
        assert not bench.accept(bench.plan(now), now, part(error=1))
        assert bench.cursor.replica is None
    assert bench.cursor.missing == 5  # the second one was the leader


@pytest.mark.parametrize("code", [2, 17, 29])
def test_error_of_a_replica_that_the_leader_would_have_too_comes_at_once(code: int) -> None:
    """Only where the log ends may it know less."""
    bench = Bench(rack="r")
    bench.cursor.replica = 2, 100.0
    plan = bench.plan(0.0)
    assert (plan.node, bench.accept(plan, 0.0, part(error=code))) == (2, True)
    assert isinstance(bench.cursor.front, Fault)


# -- what an answer says ---------------------------------------------------------------------------


def test_answer_tells_where_the_log_begins_and_ends() -> None:
    """Lag is told from it."""
    bench = Bench()
    cursor = bench.cursor
    assert not bench.accept(bench.plan(0.0), 0.0, part())
    assert (cursor.highwater, cursor.last_stable, cursor.log_start) == (9, 8, 2)
    assert not bench.accept(bench.plan(1.0), 1.0, part(log_start=0))
    assert cursor.log_start == 0
    assert not bench.accept(bench.plan(2.0), 2.0, part(log_start=-1))  # a broker before Kafka 0.11
    assert cursor.log_start is None


@pytest.mark.parametrize(
    "leader_epoch, written, kept",
    [(3, 3, 3), (3, 2, 2), (3, 4, -1), (0, 0, 0), (0, 1, -1), (-1, 3, 3), (3, -1, -1)],
)
def test_epoch_of_what_was_read_is_that_of_no_later_leader(
    leader_epoch: int, written: int, kept: int
) -> None:
    """Where the metadata tell no epoch, the batch's own is the only one."""
    bench = Bench()
    bench.known.leaders[A] = (1, leader_epoch)
    assert bench.accept(bench.plan(0.0), 0.0, part(records=records(5, 8, written)))
    chunk = bench.cursor.front
    assert isinstance(chunk, Chunk)
    assert (chunk.position, chunk.end, chunk.epoch, chunk.highwater) == (5, 8, kept, 9)
    assert bench.plan(0.1).request.asks[A].last_epoch == kept


def test_answer_without_a_whole_batch_is_a_fault() -> None:
    """A broker sends the first batch whole, however large it is."""
    bench = Bench()
    assert bench.accept(bench.plan(0.0), 0.0, part(records=records(5, 8)[:-1]))
    fault = bench.cursor.front
    assert isinstance(fault, Fault)
    assert isinstance(fault.error, CorruptRecordException)


@pytest.mark.parametrize("end, is_lost", [(4, True), (5, False), (6, False)])
def test_log_that_ends_before_what_was_read_has_lost_it(end: int, *, is_lost: bool) -> None:
    """KIP-320: what is behind the position was only buffered, and is fetched again."""
    bench = Bench()
    bench.cursor.last_epoch = 2
    diverging = part(diverging=(1, end))
    assert bench.accept(bench.plan(0.0), 0.0, diverging) is is_lost
    assert bench.cursor.last_epoch == 1
    assert bench.cursor.has_lost_past is is_lost
    assert bench.cursor.past_end == (end if is_lost else -1)
    if is_lost:
        fault = bench.cursor.front
        assert isinstance(fault, Fault)
        assert isinstance(fault.error, PositionOutOfRangeError)
    else:
        assert bench.plan(0.1).request.asks[A].offset == 5


def test_answer_that_comes_after_a_seek_does_not_count() -> None:
    """It begins at an offset that nobody wants; neither does what it says of the log."""
    bench = Bench()
    plan = bench.plan(0.0)
    bench.cursor.seek(20)
    assert not bench.accept(plan, 0.1, part(records=records(5, 8)))
    assert (bench.cursor.front, bench.cursor.highwater) == (None, None)
    assert bench.plan(0.2).request.asks[A].offset == 20


def test_request_that_failed_counts_once() -> None:
    """What is open at its end is asked again after a pause, and the metadata are asked for."""
    bench = Bench(A, B)
    plan = bench.plan(0.0)
    bench.all[1].seek(20)
    bench.cursors.failed(plan, 0.1)
    found = bench.cursors.look(0.1)
    (again,) = found.plans
    assert (found.is_stale, found.wake_at) == (True, 0.35)
    assert again.request.asks.keys() == {B}
    assert not again.is_aside
    assert again.request.epoch == 0  # nobody knows whether the broker remembers the session


# -- replicas --------------------------------------------------------------------------------------


@pytest.mark.parametrize("replica", [2, 0])
def test_replica_is_read_while_the_cluster_has_it_and_for_so_long(replica: int) -> None:
    """KIP-392: then its leader is asked for one again."""
    bench = Bench(rack="r", replica_age=10.0)
    bench.known.nodes.add(replica)
    assert not bench.accept(bench.plan(0.0), 0.0, part(replica=replica))
    for now in (0.1, 5.0, 9.99):
        plan = bench.plan(now)
        assert plan.node == replica
        bench.accept(plan, now, session=8)
    assert bench.plan(10.0).node == 1


def test_replica_that_the_cluster_has_no_more_is_left() -> None:
    """Before its time is over."""
    bench = Bench(rack="r")
    bench.cursor.replica = 2, 100.0
    bench.known.nodes.discard(2)
    assert bench.plan(1.0).node == 1
    assert bench.cursor.replica is None


def test_replica_that_does_not_answer_is_left() -> None:
    """Its leader may name the same one again: not at once."""
    bench = Bench(rack="r")
    bench.cursor.replica = 2, 100.0
    bench.cursors.failed(bench.plan(0.0), 0.1)
    assert bench.wakes(0.2) == 0.35
    assert bench.plan(0.35).node == 1


@pytest.mark.parametrize("replica, rack", [(2, ""), (1, "r"), (9, "r")])
def test_replica_that_cannot_be_read_is_not_followed(replica: int, rack: str) -> None:
    """Nobody asked for one, or it is the leader itself, or none that the cluster has."""
    bench = Bench(rack=rack)
    assert not bench.accept(bench.plan(0.0), 0.0, part(replica=replica))
    found = bench.cursors.look(0.1)
    assert [plan.node for plan in found.plans] == ([] if rack else [1])
    assert found.is_stale == bool(rack)
    assert bench.cursor.replica is None
    if rack:
        assert found.wake_at == 0.25


def test_leader_that_names_no_replica_is_asked_again() -> None:
    """At once, and without fresh metadata."""
    bench = Bench(rack="r")
    assert not bench.accept(bench.plan(0.0), 0.0, part())
    found = bench.cursors.look(0.03)
    assert ([plan.node for plan in found.plans], found.is_stale) == ([1], False)


@pytest.mark.parametrize("replica", [2, 0])
def test_replica_that_is_named_is_asked_at_once(replica: int) -> None:
    """Whether it has something nobody knows, though the leader had nothing, and others there have nothing."""
    bench = Bench(A, rack="r")
    bench.known.nodes.add(replica)
    bench.known.leaders[B] = (replica, 3)
    bench.open(B)
    end = part(partition=1, highwater=5)
    first, other = bench.cursors.look(0.0).plans
    assert (first.node, other.node) == (1, replica)
    bench.accept(other, 0.0, end)
    bench.accept(bench.plan(1.0), 1.0, end)
    bench.accept(first, 1.0, part(highwater=5, replica=replica))
    plan = bench.plan(1.001)
    assert (plan.node, set(plan.request.asks)) == (replica, {A, B})


# -- a broker as a whole ---------------------------------------------------------------------------


def test_broker_that_asks_for_a_pause_gets_it() -> None:
    """Quotas of clients: half a second here."""
    bench = Bench()
    bench.accept(bench.plan(1.0), 1.0, part(), throttle=500)
    assert bench.wakes(1.4) == 1.5
    assert bench.plan(1.5).node == 1


def test_pause_of_less_than_nothing_is_none() -> None:
    """A broker that is wrong about that is asked all the same."""
    bench = Bench()
    bench.accept(bench.plan(1.0), 1.0, part(), throttle=-500)
    assert bench.plan(1.1).node == 1


@pytest.mark.parametrize("code", [70, 71, 106])
def test_session_that_is_lost_is_opened_again_at_once_and_then_after_a_pause(code: int) -> None:
    """A broker that refuses each session must not be asked without end."""
    bench = Bench()
    plan = bench.plan(0.0)
    assert not bench.accept(plan, 0.0, error=code)
    again = bench.plan(0.1)
    assert again.request.epoch == 0
    assert not bench.accept(again, 0.1, error=code)
    assert bench.wakes(0.2) == 0.35
    bench.accept(bench.plan(0.35), 0.35, part())
    assert not bench.accept(bench.plan(1.0), 1.0, error=code)
    assert bench.plan(1.1).request.epoch == 0  # an answer that counts ends the row


def test_lost_session_of_partitions_without_news_is_opened_again_at_once() -> None:
    """What they have nobody knows any more."""
    bench = Bench()
    bench.accept(bench.plan(0.0), 0.0, part(highwater=5))
    assert not bench.accept(bench.plan(1.0), 1.0, error=70)
    assert bench.plan(1.001).request.epoch == 0


def test_broker_that_refuses_for_another_reason_is_left_alone_for_a_while() -> None:
    """From the first time on."""
    bench = Bench()
    assert not bench.accept(bench.plan(0.0), 0.0, error=-1)
    assert bench.wakes(0.1) == 0.25
    assert bench.plan(0.25).request.epoch == 0


def test_pause_that_a_broker_asks_for_is_not_made_shorter_by_its_error() -> None:
    """The longer one counts."""
    bench = Bench()
    bench.accept(bench.plan(0.0), 0.0, error=-1, throttle=500)
    assert bench.wakes(0.3) == 0.5


def test_broker_that_is_late_makes_the_metadata_stale_again_and_again() -> None:
    """Somebody else may lead by now: half a second of waiting, and five more."""
    bench = Bench()
    bench.plan(10.0)
    found = bench.cursors.look(15.4)
    assert (found.plans, found.is_stale, found.wake_at) == ([], False, 15.5)
    found = bench.cursors.look(15.5)
    assert (found.plans, found.is_stale, found.wake_at) == ([], True, 20.5)


# -- how much, and of what -------------------------------------------------------------------------


def filled(size: int) -> bytes:
    """A batch, and one that is cut off: so many bytes as they are buffered."""
    batch = records(5, 8)
    return batch + bytes(size - OVERHEAD - len(batch))


@pytest.mark.parametrize("size, asked, wait", [(1999, {A, B}, 500), (2000, {B}, 100)])
def test_partition_with_half_a_request_buffered_is_not_asked_for(
    size: int, asked: set[TopicPartition], wait: int
) -> None:
    """The broker waits only a little then, so that the partition is asked for again soon."""
    bench = Bench(A, B)
    plan = bench.plan(0.0)
    assert (plan.limits.max_wait, plan.limits.min_bytes, plan.limits.isolation) == (500, 1, 0)
    assert bench.accept(plan, 0.0, part(records=filled(size)))
    assert bench.cursors.wants_look(bench.cursor) == (size < 2000)
    plan = bench.plan(0.1)
    assert (set(plan.request.asks), plan.limits.max_wait) == (asked, wait)


def test_short_wait_is_not_made_longer() -> None:
    """If a broker is to wait for less in any case."""
    bench = Bench(A, B, max_wait=50)
    assert bench.accept(bench.plan(0.0), 0.0, part(records=filled(2000)))
    assert bench.plan(0.1).limits.max_wait == 50


@pytest.mark.parametrize("room, is_full", [(1, False), (0, True), (-1, True)])
def test_nothing_is_asked_without_room_while_something_will_be_taken(
    room: int, *, is_full: bool
) -> None:
    """What is buffered of paused partitions alone stops nobody."""
    bench = Bench(A, B, max_bytes=3000 + room)
    assert bench.accept(bench.plan(0.0), 0.0, part(records=filled(3000)))
    assert bench.cursors.has_room() is not is_full
    plans = bench.cursors.look(0.1).plans
    assert bench.cursors.is_full is is_full
    assert [plan.request.asks.keys() for plan in plans] == ([] if is_full else [{B}])
    for plan in plans:
        bench.accept(plan, 0.1)
    bench.cursor.pause()
    assert bench.cursors.has_room()
    assert bench.plan(0.2).request.asks.keys() == {B}
    assert not bench.cursors.is_full


def test_room_that_is_left_bounds_a_request_but_a_partition_always_fits() -> None:
    """Else a large batch would never come."""
    for size, most in ((1000, 15_000), (12_000, 4000), (13_000, 4000)):
        bench = Bench(A, B)
        plan = bench.plan(0.0)
        assert plan.limits.max_bytes == 16_000
        assert bench.accept(plan, 0.0, part(records=filled(size)))
        assert bench.plan(0.1).limits.max_bytes == most


def test_partitions_that_were_served_come_last() -> None:
    """So that one with much to read does not keep the others waiting."""
    bench = Bench(A, B, C)
    plan = bench.plan(0.0)
    assert list(plan.request.asks) == [A, B, C]
    bench.accept(plan, 0.0, part(records=records(5, 8)))
    assert list(bench.plan(0.1).request.asks) == [B, C, A]
    stranger = Cursor(B)
    bench.cursors.served(stranger)
    assert [cursor.tp for cursor in bench.cursors] == [B, C, A]


def test_cursor_that_comes_for_the_same_partition_ends_the_one_before() -> None:
    """Its answers do not count any more; one that is added twice goes on."""
    bench = Bench()
    plan = bench.plan(0.0)
    bench.cursors.add(bench.cursor)
    was_closed = bench.cursor.is_closed
    new = bench.open(A, 30)
    assert (was_closed, bench.cursor.is_closed) == (False, True)
    assert len(bench.cursors) == 1
    assert not bench.accept(plan, 0.1, part(records=records(5, 8)))
    assert new.front is None
    assert bench.plan(0.2).request.asks[A].offset == 30


def test_closed_cursor_is_forgotten() -> None:
    """Nothing is asked for it, and it takes no room."""
    bench = Bench(A, B)
    bench.cursor.close()
    assert bench.plan(0.0).request.asks.keys() == {B}
    assert len(bench.cursors) == 1


def test_partition_whose_position_is_not_known_yet_is_not_asked_for() -> None:
    """A grant that waits for it."""
    bench = Bench(A)
    cursor = Cursor(B)
    bench.known.leaders[B] = (1, 3)
    bench.cursors.add(cursor)
    cursor.resume()
    assert bench.plan(0.0).request.asks.keys() == {A}


# -- aside -----------------------------------------------------------------------------------------


def test_partition_that_comes_while_the_broker_waits_is_asked_for_aside_now_and_then() -> None:
    """Without a session and without a wait; it is looked at once for each request."""
    bench = Bench(A)
    waiting = bench.plan(0.0)
    bench.accept(waiting, 0.0, part(highwater=5))
    waiting = bench.plan(1.0)
    assert not bench.cursors.wants_look(bench.cursor)
    late = bench.open(B)
    assert bench.cursors.wants_look(late)
    assert not bench.cursors.wants_look(late)
    aside = bench.plan(1.0)
    assert (aside.is_aside, aside.limits.max_wait, aside.request.session) == (True, 0, 0)
    assert aside.request.asks.keys() == {B}
    assert not bench.cursors.wants_look(late)
    bench.accept(aside, 1.01, session=0)
    assert bench.wakes(1.02) == 1.0 + ASIDE
    assert bench.plan(1.0 + ASIDE).is_aside
    bench.accept(waiting, 1.2, part(highwater=5))


def test_node_with_two_requests_under_way_is_not_looked_at() -> None:
    """Its answers are looked at anyway."""
    bench = Bench(A)
    bench.accept(bench.plan(0.0), 0.0, part(highwater=5))
    bench.plan(1.0)
    second, third = bench.open(B), bench.open(C)
    bench.cursors.look(1.0)
    third.rewind()
    assert not bench.cursors.wants_look(third)
    assert not second.is_noted
    elsewhere = Cursor(TopicPartition("u", 0))
    bench.cursors.add(elsewhere)
    elsewhere.seek(0)
    assert bench.cursors.wants_look(elsewhere)  # nobody knows yet whom it is asked of


def asked_aside(**options: Any) -> tuple[Bench, Plan, Plan]:
    """Node 1 waits for the first partition since 1.0, and is asked aside for the second one."""
    bench = Bench(A, **options)
    bench.accept(bench.plan(0.0), 0.0, part(highwater=5))
    waiting = bench.plan(1.0)
    bench.open(B)
    return bench, waiting, bench.plan(1.0)


def test_partition_without_news_aside_is_asked_for_in_the_session_as_soon_as_that_can_be() -> None:
    """The pause is between two requests aside."""
    bench, waiting, aside = asked_aside()
    bench.accept(aside, 1.01, session=0)
    bench.accept(waiting, 1.03, part(highwater=5))
    plan = bench.plan(1.04)
    assert (set(plan.request.asks), plan.is_aside) == ({A, B}, False)


@pytest.mark.parametrize("now, asked", [(1.09, {A}), (1.0 + ASIDE, {A, B})])
def test_partition_that_is_asked_for_aside_is_not_asked_for_twice_unless_that_takes_long(
    now: float, asked: set[TopicPartition]
) -> None:
    """Its answer is as good as there."""
    bench, waiting, _aside = asked_aside()
    bench.accept(waiting, 1.03, part(highwater=5))
    assert bench.plan(now).request.asks.keys() == asked


@pytest.mark.parametrize("now", [1.0 + ASIDE, 1.2])
def test_node_that_wants_to_be_left_alone_is_not_looked_at_before(now: float) -> None:
    """Though a partition is due: a look that finds nothing to do would follow the other."""
    bench, _waiting, aside = asked_aside()
    bench.accept(aside, 1.01, session=0, throttle=500)
    assert bench.wakes(now) == 1.51


def test_error_of_a_request_aside_is_the_brokers() -> None:
    """It is left alone for a while; the session goes on."""
    bench, waiting, aside = asked_aside()
    assert not bench.accept(aside, 1.01, session=0, error=-1)
    assert bench.wakes(1.2) == 1.26
    assert not bench.accept(waiting, 1.3, part(highwater=5))
    plan = bench.plan(1.4)
    assert (set(plan.request.asks), plan.request.epoch) == ({A, B}, waiting.request.epoch + 1)


def test_partition_that_had_news_aside_is_asked_for_aside_at_once() -> None:
    """There may be more."""
    bench, _waiting, aside = asked_aside()
    assert bench.accept(aside, 1.01, part(partition=1, records=records(5, 8)), session=0)
    again = bench.plan(1.02)
    assert (again.is_aside, again.request.asks[B].offset) == (True, 8)


def test_look_while_all_are_asked_for_is_the_last_one_before_the_answer() -> None:
    """But for one that finds the answer late."""
    bench = Bench(A)
    bench.plan(0.0)
    assert bench.wakes(0.001) == 5.5


def test_partition_of_a_leader_that_hangs_is_asked_of_the_next_one_aside() -> None:
    """Which waits for another one; what the old leader says after that does not count."""
    bench = Bench(A)
    hangs = bench.plan(0.0)
    bench.known.leaders[B] = (2, 3)
    bench.open(B)
    bench.accept(bench.plan(0.0), 0.0, part(partition=1, highwater=5))
    assert bench.plan(1.0).node == 2
    bench.known.leaders[A] = (2, 4)
    aside = bench.plan(1.1)
    assert (aside.node, aside.is_aside, set(aside.request.asks)) == (2, True, {A})
    assert not bench.accept(hangs, 1.2, part(records=records(5, 8)))
    assert bench.cursor.front is None
    assert bench.accept(aside, 1.3, part(records=records(5, 9)), session=0)


def test_answer_that_cannot_be_used_ends_its_request_and_its_session() -> None:
    """Each partition that was asked for has the fault, but for those that were sought meanwhile."""
    bench = Bench(A, B)
    bench.accept(bench.plan(0.0), 0.0)
    plan = bench.plan(1.0)
    assert plan.request.session == SESSION
    bench.all[1].seek(20)
    bench.cursors.unusable(plan, ValueError("no answer"))
    assert isinstance(bench.cursor.front, Fault)
    assert bench.all[1].front is None
    again = bench.plan(1.1)
    assert (again.is_aside, set(again.request.asks)) == (False, {B})
    assert again.request.epoch == 0  # a new session


# -- a broker that has nothing ----------------------------------------------------------------------


def test_partition_that_a_session_says_nothing_of_has_nothing() -> None:
    """A broker that does not wait is not asked again at once, though there should be something."""
    bench = Bench(A)
    bench.accept(bench.plan(0.0), 0.0, part(highwater=9))
    bench.cursor.rewind()
    bench.accept(bench.plan(0.1), 0.101)
    assert bench.wakes(0.102) == 0.1 + PACE
    assert bench.plan(0.1 + PACE).request.asks.keys() == {A}


@pytest.mark.parametrize("isolation, highwater, stable", [(0, 5, 3), (1, 9, 5)])
def test_partition_that_was_at_its_end_has_nothing_while_others_have(
    isolation: int, highwater: int, stable: int
) -> None:
    """The end is that of what may be read; behind it, the broker may have something new."""
    for offset in (5, 4):
        bench = Bench(A, B, isolation=isolation)
        end = part(highwater=highwater, last_stable=stable)
        bench.accept(bench.plan(0.0), 0.0, end, part(partition=1, highwater=5))
        bench.cursor.seek(offset)
        bench.accept(bench.plan(0.1), 0.101, part(partition=1, records=records(5, 8)))
        bench.all[1].pause()
        if offset == 5:
            assert bench.wakes(0.102) == 0.1 + PACE
        else:
            assert bench.plan(0.102).request.asks.keys() == {A}
