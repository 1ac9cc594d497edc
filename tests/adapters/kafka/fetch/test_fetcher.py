"""Fetches from a cluster that loses things by a seed, in virtual time; and the rules by themselves."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import wraps
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import (
    CorruptRecordException,
    IncompatibleBrokerVersion,
    InvalidTopicError,
    KafkaConnectionError,
    KafkaError,
    LeaderNotAvailableError,
    OffsetOutOfRangeError,
    UnsupportedVersionError,
)

from consumer_sdk.adapters.kafka.fetch.cursor import Chunk, Cursor, Fault
from consumer_sdk.adapters.kafka.fetch.cursors import MOST_THROTTLE, PACE, Cursors, FetchOptions
from consumer_sdk.adapters.kafka.fetch.fetcher import Fetcher
from consumer_sdk.adapters.kafka.fetch.session import Ask
from consumer_sdk.adapters.kafka.fetch.structs import (
    AnswerFormatError,
    FetchAnswer,
    Fetched,
    FetchRequest,
    PartitionAnswer,
)
from consumer_sdk.errors import PositionOutOfRangeError
from consumer_sdk.testing import simulate
from tests.adapters.kafka.decoding.test_salvage import rows
from tests.adapters.kafka.decoding.test_unpacking import batch
from tests.adapters.kafka.fetch.fake_cluster import FakeCluster, answer

A, B, C, D = (TopicPartition("t", n) for n in range(4))
OPEN = batch(rows(0, 3), producer=7, transaction=True)
"""Of a transaction that has no end."""
SMALL = FetchOptions(max_bytes=4000, max_partition_bytes=1000)


class Reader:
    """Reads what is fetched for its cursors, batch by batch."""

    def __init__(self, cluster: FakeCluster, options: FetchOptions = SMALL) -> None:
        self.cluster = cluster
        self._news = asyncio.Event()
        self.fetcher = Fetcher(cluster, options, self._news.set)
        self.cursors: dict[TopicPartition, Cursor] = {}
        self.seen: dict[TopicPartition, list[int]] = {}
        self.faults: list[Exception] = []

    def open(self, tp: TopicPartition, position: int = 0) -> Cursor:
        """Reads a partition from an offset on."""
        cursor = self.cursors[tp] = Cursor(tp)
        self.fetcher.add(cursor)
        self.seen[tp] = []
        cursor.seek(position)
        cursor.resume()
        return cursor

    def take(self, cursor: Cursor) -> None:
        """One item of a partition."""
        item = cursor.front
        if item is None or cursor.paused:
            return
        if isinstance(item, Fault):
            cursor.advance()
            self._fault(cursor, item.error)
            return
        if item.position != cursor.position:
            cursor.rewind()
            return
        self._read(cursor, item)
        if self.fetcher.cursors.wants_look(cursor) or self.fetcher.cursors.is_full:
            self.fetcher.kick()

    def _read(self, cursor: Cursor, chunk: Chunk) -> None:
        self.seen[cursor.tp] += range(chunk.position, chunk.end)
        cursor.consumed_to(chunk.end)
        cursor.advance()

    def _fault(self, cursor: Cursor, error: Exception) -> None:
        if isinstance(error, CorruptRecordException):
            cursor.rewind()  # as whoever doubts it once more
        else:
            self.faults.append(error)
            cursor.pause()

    async def read(self, seconds: float = 1.0) -> None:
        """Takes whatever comes for so long."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while loop.time() < until:
            for cursor in list(self.cursors.values()):
                while cursor.queue and not cursor.paused:
                    self.take(cursor)
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._news.wait()


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a test in virtual time; a seed that it is given is the simulation's too."""

    @wraps(test)
    def run(**given: Any) -> None:
        simulate(lambda _simulation: test(**given), seed=given.get("seed", 0))

    return run


@pytest.mark.parametrize("seed", range(20))
@virtual
async def test_every_record_comes_once_and_in_order(seed: int) -> None:
    """Whatever is lost: requests, answers, sessions, leaders; whoever is paused, sought or asked anew."""
    chance = random.Random(seed)
    cluster = FakeCluster(chance, trouble=0.05)
    for tp in (A, B, C, D):
        cluster.create(tp, chance.randint(1, 3))
    reader = Reader(cluster)
    for tp in (A, B, C, D):
        reader.open(tp)
    for _ in range(40):
        await _disturb(chance, reader)
    cluster.trouble = 0.0
    for cursor in reader.cursors.values():
        cursor.resume()
    await reader.read(20)
    assert reader.seen == {tp: list(range(cluster.logs[tp].end)) for tp in (A, B, C, D)}
    assert not reader.faults
    assert reader.fetcher.error is None
    await reader.fetcher.aclose()


async def _disturb(chance: random.Random, reader: Reader) -> None:
    tp = chance.choice([A, B, C, D])
    cursor = reader.cursors[tp]
    match chance.randint(0, 7):
        case 0 | 1 | 2:
            for _ in range(chance.randint(1, 12)):
                reader.cluster.append(tp, chance.randint(1, 5))
        case 3:
            reader.cluster.elect(tp, chance.randint(1, 3))
        case 4:
            cursor.pause()
        case 5:
            cursor.resume()
        case 6:
            cursor.rewind()
        case 7:  # granted anew
            seen = reader.seen[tp]
            reader.open(tp, cursor.position)
            reader.seen[tp] = seen
            assert cursor.is_closed
    await reader.read(chance.random() / 5)


@virtual
async def test_next_request_leaves_before_the_last_answer_is_read() -> None:
    """It asks for what comes behind it; there is one under way at a time."""
    cluster = FakeCluster()
    log = cluster.create(A)
    for _ in range(4):
        log.append(2)
    reader = Reader(cluster, FetchOptions(max_partition_bytes=10_000))
    cursor = reader.open(A)
    await asyncio.sleep(0.2)
    assert cursor.position == 0
    offsets = [request.request.asks[A].offset for _node, request in cluster.requests]
    assert offsets[:2] == [0, 8]
    await reader.fetcher.aclose()


@virtual
async def test_partition_that_nobody_reads_is_fetched_up_to_a_bound() -> None:
    """Half of what a request brings, and one more request."""
    cluster = FakeCluster()
    log = cluster.create(A)
    for _ in range(200):
        log.append(1)
    reader = Reader(cluster)
    cursor = reader.open(A)
    await asyncio.sleep(5)
    assert SMALL.max_partition_bytes // 2 <= cursor.buffered
    assert sum(len(chunk.data) for chunk in cursor.queue if isinstance(chunk, Chunk)) <= 2000
    await reader.read(5)
    assert reader.seen[A] == list(range(200))
    await reader.fetcher.aclose()


@virtual
async def test_what_is_fetched_behind_a_batch_is_known_to_continue_it() -> None:
    """Then none may begin before it; after somebody has gone elsewhere, one may."""
    cluster = FakeCluster()
    cluster.create(A).append(3)
    reader = Reader(cluster, FetchOptions())
    cursor = reader.open(A)

    def continues() -> list[bool]:
        return [chunk.continues for chunk in cursor.queue if isinstance(chunk, Chunk)]

    await asyncio.sleep(1)
    cluster.append(A, 3)
    await asyncio.sleep(1)
    assert continues() == [False, True]
    await reader.read(1)
    cluster.append(A, 3)
    await asyncio.sleep(1)
    assert continues() == [True]
    cursor.rewind()
    await asyncio.sleep(1)
    assert continues() == [True]
    cursor.seek(7)
    await asyncio.sleep(1)
    assert continues() == [False]
    await reader.fetcher.aclose()


@virtual
async def test_paused_partition_keeps_what_was_fetched_and_what_is_on_its_way() -> None:
    """And nothing more is asked for it; nor do the others wait for it."""
    cluster = FakeCluster()
    for tp in (A, B):
        cluster.create(tp).append(3)
    reader = Reader(cluster)
    paused, other = reader.open(A), reader.open(B)
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # the request is under way
    paused.pause()
    await reader.read(1)
    assert (len(paused.queue), reader.seen[B]) == (1, [0, 1, 2])
    assert [r.request.asks.keys() for _n, r in cluster.requests[1:]] == [{B}] * (
        len(cluster.requests) - 1
    )
    cluster.append(B, 1)
    await reader.read(0.2)
    assert reader.seen[B] == [0, 1, 2, 3]
    paused.resume()
    await reader.read(1)
    assert reader.seen[A] == [0, 1, 2]
    assert other.position == 4
    await reader.fetcher.aclose()


@virtual
async def test_paused_partitions_that_fill_the_buffer_do_not_stop_the_others() -> None:
    """What nobody will take leaves no room, for ever."""
    cluster = FakeCluster()
    for tp in (A, B, C):
        for _ in range(50):
            cluster.create(tp) if tp not in cluster.logs else cluster.append(tp, 1)
    reader = Reader(cluster, FetchOptions(max_bytes=1500, max_partition_bytes=1000))
    for tp in (A, B):
        reader.open(tp)
    await asyncio.sleep(1)
    for tp in (A, B):
        reader.cursors[tp].pause()
    reader.open(C)
    await reader.read(10)
    assert reader.seen[C] == list(range(49))
    await reader.fetcher.aclose()


PATIENT = SMALL._replace(max_wait=3_600_000)
"""A broker that has nothing new answers once in an hour."""


@pytest.mark.parametrize("what", ["open", "resume", "seek", "grant anew", "rest"])
@virtual
async def test_partition_that_comes_while_the_broker_waits_is_asked_for_aside(what: str) -> None:
    """It does not wait for what others have nothing of; nor do those that wait lose their request."""
    cluster = FakeCluster()
    for tp in (A, B, C):
        cluster.create(tp)
    cluster.append(B, 5)
    reader = Reader(cluster, PATIENT)
    reader.open(A)
    if what != "open":
        cursor = reader.open(B, 5 if what in ("seek", "grant anew") else 0)
        if what == "resume":
            cursor.pause()
        if what == "rest":
            cluster.trouble = 1.0
            await reader.read(0.02)
            cluster.trouble = 0.0
    await reader.read(1)
    if what == "resume":
        cursor.resume()
    elif what == "seek":
        cursor.seek(0)
    elif what != "rest":
        reader.open(B)
    await reader.read(0.2)
    assert reader.seen[B] == list(range(5))
    if what != "rest":
        assert len(cluster.asides) >= 1
    cluster.append(A, 1)
    await reader.read(0.1)
    assert reader.seen[A] == [0]
    await reader.fetcher.aclose()


@virtual
async def test_partition_that_is_asked_for_aside_and_has_nothing_is_asked_again_soon_not_at_once() -> (
    None
):
    """Until the broker answers what waits: then it is asked for with the others."""
    cluster = FakeCluster()
    for tp in (A, B):
        cluster.create(tp)
    reader = Reader(cluster, PATIENT)
    reader.open(A)
    await reader.read(1)
    reader.open(B)
    await reader.read(10)
    assert 50 <= len(cluster.asides) <= 110
    cluster.append(B, 3)
    await reader.read(0.2)
    assert reader.seen[B] == [0, 1, 2]
    cluster.append(A, 1)
    await reader.read(1)
    done = len(cluster.asides)
    await reader.read(10)
    assert len(cluster.asides) == done
    assert cluster.requests[-1][1].request.asks.keys() == {A, B}
    await reader.fetcher.aclose()


@virtual
async def test_request_aside_that_is_lost_is_made_again() -> None:
    """It touches no session; what waits goes on waiting."""
    cluster = FakeCluster()
    for tp in (A, B):
        cluster.create(tp)
    reader = Reader(cluster, PATIENT)
    reader.open(A)
    await reader.read(1)
    made = len(cluster.requests)
    cluster.append(B, 3)
    cluster.trouble = 1.0
    reader.open(B)
    await reader.read(1)
    assert 5 <= len(cluster.asides) <= 11
    assert reader.seen[B] == []
    cluster.trouble = 0.0
    await reader.read(0.3)
    assert reader.seen[B] == [0, 1, 2]
    assert len(cluster.requests) == made
    cluster.append(A, 1)
    await reader.read(0.1)
    assert reader.seen[A] == [0]
    assert cluster.requests[-1][1].request.epoch > 1  # the session goes on
    await reader.fetcher.aclose()


@virtual
async def test_request_aside_that_takes_long_does_not_keep_its_partitions_from_the_session() -> (
    None
):
    """Whichever answers first counts, and the other one does not."""
    cluster = FakeCluster()
    for tp in (A, B):
        cluster.create(tp)
    cluster.append(B, 3)
    send, thawed = cluster.send_aside, asyncio.Event()

    async def hangs(node: int, request: FetchRequest) -> FetchAnswer:
        await thawed.wait()
        return await send(node, request)

    faulty: Any = cluster
    faulty.send_aside = hangs
    reader = Reader(cluster, PATIENT)
    reader.open(A)
    await reader.read(1)
    reader.open(B)
    await reader.read(1)
    assert reader.seen[B] == []
    cluster.append(A, 1)
    await reader.read(1)
    assert reader.seen[B] == [0, 1, 2]
    thawed.set()
    await reader.read(1)
    assert (reader.seen[A], reader.seen[B]) == ([0], [0, 1, 2])
    await reader.fetcher.aclose()


@virtual
async def test_full_partition_is_asked_for_as_soon_as_it_is_read() -> None:
    """The broker does not wait for another one's records meanwhile."""
    cluster = FakeCluster()
    cluster.create(B)
    log = cluster.create(A)
    for _ in range(400):
        log.append(1)
    reader = Reader(cluster)
    cursor = reader.open(A)
    reader.open(B)
    loop = asyncio.get_running_loop()
    began = loop.time()
    while cursor.position < 400:
        await asyncio.sleep(0.01)
        reader.take(cursor)
    assert loop.time() - began < 5  # a wait of the broker for each fetch would be 20 s
    await reader.fetcher.aclose()


@virtual
async def test_position_that_is_not_stored_is_a_fault_behind_what_is_buffered() -> None:
    """Read ahead or not."""
    cluster = FakeCluster()
    cluster.create(A).append(3)
    reader = Reader(cluster)
    cursor = reader.open(A, 7)
    await reader.read(1)
    assert isinstance(reader.faults[0], OffsetOutOfRangeError)
    assert len(reader.faults) == 1
    assert (cursor.has_lost_past, cursor.past_end) == (True, -1)
    cursor.seek(0)
    cursor.resume()
    await asyncio.sleep(0.1)
    cluster.logs[A].start = 50  # everything is gone, also what is asked for now
    await reader.read(1)
    assert reader.seen[A] == [0, 1, 2]
    assert len(reader.faults) == 2
    await reader.fetcher.aclose()


@virtual
async def test_truncated_log_is_a_fault_that_names_both_offsets() -> None:
    """KIP-320: what was delivered is not in the new leader's log."""
    cluster = FakeCluster()
    log = cluster.create(A)
    log.append(5)
    log.append(5)
    reader = Reader(cluster)
    cursor = reader.open(A)
    await reader.read(1)
    assert (cursor.position, cursor.last_epoch) == (10, 0)
    log.truncate(5)
    cluster.elect(A, 2)
    cluster.append(A, 20)  # the position is in range again
    await reader.read(3)
    (fault,) = reader.faults
    assert isinstance(fault, PositionOutOfRangeError)
    assert "the position is 10" in str(fault)
    assert "only up to 5 (leader epoch 0)" in str(fault)
    assert (cursor.has_lost_past, cursor.past_end) == (True, 5)
    assert reader.seen[A] == list(range(10))
    await reader.fetcher.aclose()


@virtual
async def test_what_was_only_buffered_of_a_truncated_log_is_forgotten() -> None:
    """Nobody has seen it: the new leader's records come in its place."""
    cluster = FakeCluster()
    log = cluster.create(A)
    log.append(5)
    reader = Reader(cluster, FetchOptions(max_partition_bytes=10_000))
    cursor = reader.open(A)
    await reader.read(0.2)
    log.append(5)
    await asyncio.sleep(1)
    cluster.append(A, 5)
    cursor.rewind()
    await asyncio.sleep(1)
    last: Any = cursor.queue[-1]
    assert last.end == 15
    log.truncate(5)
    cluster.elect(A, 2)
    cluster.append(A, 3)
    await asyncio.sleep(3)
    await reader.read(1)
    assert not reader.faults
    assert reader.seen[A] == list(range(8))
    assert cursor.last_epoch == 1
    await reader.fetcher.aclose()


@virtual
async def test_replica_that_the_leader_names_is_asked_and_left_again() -> None:
    """KIP-392: until it fails, or is behind."""
    cluster = FakeCluster()
    cluster.create(A).append(5)
    cluster.replicas[A] = 2
    reader = Reader(cluster, SMALL._replace(rack="r"))
    cursor = reader.open(A)
    await reader.read(1)
    assert reader.seen[A] == list(range(5))
    assert [node for node, _request in cluster.requests[:3]] == [1, 2, 2]
    del cluster.replicas[A]  # it is none any more, and says so
    cluster.append(A, 5)
    await reader.read(2)
    assert reader.seen[A] == list(range(10))
    assert cluster.requests[-1][0] == 1
    assert cursor.replica is None
    await reader.fetcher.aclose()


@virtual
async def test_replica_that_is_away_is_not_tried_without_a_pause() -> None:
    """Its leader names it again and again, until it has noticed."""
    cluster = FakeCluster()
    cluster.create(A).append(5)
    cluster.replicas[A] = 2
    send = cluster.send

    async def without_node_2(node: int, request: FetchRequest) -> FetchAnswer:
        if node == 2:
            asked.append(node)
            raise KafkaConnectionError("it is away")
        return await send(node, request)

    asked: list[int] = []
    faulty: Any = cluster
    faulty.send = without_node_2
    reader = Reader(cluster, SMALL._replace(rack="r"))
    reader.open(A)
    await reader.read(5)
    assert 2 < len(asked) <= 51
    del cluster.replicas[A]
    await reader.read(1)
    assert reader.seen[A] == list(range(5))
    await reader.fetcher.aclose()


@virtual
async def test_broker_that_is_too_old_is_a_fault_that_says_so() -> None:
    """It has no version of a fetch that can be sent."""
    cluster = FakeCluster()
    cluster.create(A).append(5)

    async def old(_node: int, request: FetchRequest) -> FetchAnswer:
        with pytest.raises(NotImplementedError):
            request.prepare({1: (0, 3)})
        raise IncompatibleBrokerVersion  # as the connection layer has it

    faulty: Any = cluster
    faulty.send = old
    reader = Reader(cluster)
    reader.open(A)
    await reader.read(1)
    (fault,) = reader.faults
    assert isinstance(fault, IncompatibleBrokerVersion)
    assert "knows no fetch of Kafka 0.11 or newer" in str(fault)
    await reader.fetcher.aclose()


@virtual
async def test_answer_of_a_partition_that_nobody_asked_for_is_not_used() -> None:
    """A bit of its number, or of the topic's name: all of the answer is in doubt."""
    cluster = FakeCluster()
    cluster.create(A).append(5)
    faulty: Any = cluster
    collect = faulty._collect

    async def wrong(*given: Any) -> Any:
        faulty._collect = collect
        parts = await collect(*given)
        return {TopicPartition("t", 9): parts[A]}

    faulty._collect = wrong
    reader = Reader(cluster)
    cursor = reader.open(A)
    await asyncio.sleep(1)
    fault = cursor.front
    assert isinstance(fault, Fault)
    assert isinstance(fault.error, CorruptRecordException)
    assert "nobody asked for" in str(fault.error)
    await reader.read(1)
    assert reader.seen[A] == list(range(5))
    await reader.fetcher.aclose()


@virtual
async def test_brokers_that_are_away_are_not_asked_without_a_pause() -> None:
    """Nor for metadata."""
    cluster = FakeCluster(trouble=1.0)
    cluster.create(A).append(5)
    reader = Reader(cluster)
    reader.open(A)
    await asyncio.sleep(10)
    assert 10 < len(cluster.requests) <= 101
    cluster.trouble = 0.0
    await reader.read(1)
    assert reader.seen[A] == list(range(5))
    await reader.fetcher.aclose()


@virtual
async def test_partition_without_a_leader_waits_for_one() -> None:
    """Metadata are asked for until there is one."""
    cluster = FakeCluster()
    cluster.create(A).append(5)
    leader = cluster.leaders.pop(A)
    cluster.stale.clear()
    reader = Reader(cluster)
    reader.open(A)
    await reader.read(5)
    assert not cluster.requests
    cluster.leaders[A] = leader
    await reader.read(1)
    assert reader.seen[A] == list(range(5))
    await reader.fetcher.aclose()


@virtual
async def test_metadata_that_do_not_come_are_asked_for_again() -> None:
    """Nobody else may ask: the partition has no leader, and nothing is under way."""
    cluster = FakeCluster()
    cluster.create(A).append(5)
    del cluster.stale[A]
    refresh, lost = cluster.refresh, [1, 2, 3]

    def lossy() -> None:
        lost.pop() if lost else refresh()

    faulty: Any = cluster
    faulty.refresh = lossy
    reader = Reader(cluster)
    reader.open(A)
    await reader.read(10)
    assert reader.seen[A] == list(range(5))
    await reader.fetcher.aclose()


@virtual
async def test_metadata_are_asked_for_again_after_a_pause_however_many_want_them() -> None:
    """Once in a second, while they do not come."""
    cluster = FakeCluster()
    cluster.create(A)
    cluster.create(B)
    cluster.stale.clear()
    time = asyncio.get_running_loop().time
    began, asked = time(), list[float]()
    faulty: Any = cluster
    faulty.refresh = lambda: asked.append(time() - began)
    reader = Reader(cluster)
    reader.open(A)
    await asyncio.sleep(0.03)
    reader.open(B)
    await asyncio.sleep(4)
    assert asked == pytest.approx([0.0, 0.1, 1.1, 2.1, 3.1])
    await reader.fetcher.aclose()


@virtual
async def test_metadata_that_came_are_not_asked_for_again() -> None:
    """Nor are there more looks than requests and their pauses need."""
    cluster = FakeCluster()
    cluster.create(A).append(5)
    reader = Reader(cluster)
    reader.open(A)
    await reader.read(1)
    cluster.elect(A, 2)
    cluster.append(A, 5)
    calls: Counter[str] = Counter()
    refresh, leader_of = cluster.refresh, cluster.leader_of

    def asked() -> None:
        calls["asked"] += 1
        refresh()

    def looked(tp: TopicPartition) -> tuple[int, int] | None:
        calls["looked"] += 1
        return leader_of(tp)

    faulty: Any = cluster
    faulty.refresh, faulty.leader_of = asked, looked
    await reader.read(20)
    assert reader.seen[A] == list(range(10))
    assert 1 <= calls["asked"] <= 3
    assert calls["looked"] < 200
    assert len(reader.fetcher._tasks) <= 2  # what is done is let go
    await reader.fetcher.aclose()


def test_defect_ends_all_fetching_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever waits for records is woken, and raises it."""
    defect = ValueError("a defect")

    def leader_of(_tp: TopicPartition) -> tuple[int, int]:
        raise defect

    async def test() -> None:
        cluster = FakeCluster()
        faulty: Any = cluster
        faulty.leader_of = leader_of
        reader = Reader(cluster)
        reader.open(A)
        await asyncio.sleep(0)
        await asyncio.wait_for(reader._news.wait(), 1)
        assert reader.fetcher.error is defect
        await reader.fetcher.aclose()

    virtual(test)()
    assert "fetching has ended" in caplog.text


@virtual
async def test_replica_that_nobody_knows_is_not_asked_for_without_a_pause() -> None:
    """A broker that the metadata do not name: its leader names it again and again."""
    cluster = FakeCluster()
    cluster.create(A).append(5)
    cluster.replicas[A] = 9
    reader = Reader(cluster, SMALL._replace(rack="r"))
    reader.open(A)
    await reader.read(5)
    assert 2 < len(cluster.requests) <= 60
    del cluster.replicas[A]
    await reader.read(1)
    assert reader.seen[A] == list(range(5))
    await reader.fetcher.aclose()


@pytest.mark.parametrize("is_full", [True, False])
@virtual
async def test_broker_that_does_not_wait_is_not_asked_without_a_pause(*, is_full: bool) -> None:
    """It has nothing, and says so at once."""
    cluster = FakeCluster()
    log = cluster.create(A)
    cluster.create(B)
    for _ in range(50):
        log.append(1)
    faulty: Any = cluster
    collect = faulty._collect

    async def hasty(node: int, broker: Any, request: FetchRequest) -> Any:
        hurried = request.limits._replace(max_wait=0)
        return await collect(node, broker, FetchRequest(hurried, request.request))

    faulty._collect = hasty
    reader = Reader(cluster)
    if is_full:
        reader.open(A)  # and nobody takes anything
    reader.open(B)
    await asyncio.sleep(1)
    begun = len(cluster.requests)
    await asyncio.sleep(2)
    assert len(cluster.requests) - begun <= 101
    await reader.fetcher.aclose()


@virtual
async def test_partition_that_is_no_longer_full_is_asked_for_at_once_if_the_others_are_idle() -> (
    None
):
    """If they are not, they will be answered soon, and what is asked for aside may wait for that."""
    cluster = FakeCluster()
    cursors = Cursors(cluster, SMALL)
    for tp in (A, B):
        cluster.create(tp)
        cursor = Cursor(tp)
        cursors.add(cursor)
        cursor.seek(0)
        cursor.resume()
    for _ in range(8):
        cluster.append(A, 1)
    full, _idle = cursors

    def brought(end: int) -> PartitionAnswer:
        records = cluster.logs[A].read(full.position, 1000)
        return PartitionAnswer("t", 0, 0, 99, 99, 0, (), -1, None, records[:end])

    (plan,) = cursors.look(0.0).plans
    nothing = PartitionAnswer("t", 1, 0, 0, 0, 0, (), -1, None, b"")
    assert cursors.accept(plan, Fetched(0, 0, 7, [brought(1000), nothing]), 0.001)
    assert full.buffered >= SMALL.max_partition_bytes // 2
    (plan,) = cursors.look(0.03).plans
    assert plan.request.asks.keys() == {B}
    full.consumed_to(8)
    full.advance()
    assert cursors.wants_look(full)
    (aside,) = cursors.look(0.031).plans
    assert aside.is_aside
    assert aside.request.asks.keys() == {A}
    cursors.accept(aside, Fetched(0, 0, 0, []), 0.04)
    cursors.accept(plan, Fetched(0, 0, 7, []), 0.2)
    full.rewind()  # nobody knows whether it has something new
    (plan,) = cursors.look(0.3).plans
    assert plan.request.asks.keys() == {A, B}
    full.rewind()
    found = cursors.look(0.301)
    assert (found.plans, found.wake_at) == ([], 0.3 + PACE)
    (aside,) = cursors.look(0.321).plans
    assert aside.is_aside
    await asyncio.sleep(0)


@virtual
async def test_broker_waits_for_a_while_though_a_partition_is_full() -> None:
    """A reader that is slow is the usual case; it costs the broker ten requests a second, not fifty."""
    cluster = FakeCluster()
    log = cluster.create(A)
    cluster.create(B)
    for _ in range(50):
        log.append(1)
    reader = Reader(cluster)
    reader.open(A)
    reader.open(B)
    await asyncio.sleep(1)
    begun = len(cluster.requests)
    await asyncio.sleep(10)
    assert len(cluster.requests) - begun <= 101
    await reader.fetcher.aclose()


@pytest.mark.parametrize("has_sessions", [True, False])
@virtual
async def test_node_that_has_nothing_is_not_asked_without_a_pause(*, has_sessions: bool) -> None:
    """Though it should have: its high watermark lies further on, and another partition is full."""
    cluster = FakeCluster()
    cluster.create(B).append(1)
    log = cluster.create(A)
    for _ in range(50):
        log.append(1)
    part = cluster._part

    def without_records(node: int, tp: TopicPartition, *rest: Any) -> Any:
        found = part(node, tp, *rest)
        return (*found[:5], b"", found[6]) if tp == B else found

    async def collect(node: int, broker: Any, request: FetchRequest) -> Any:
        broker.number = 0
        asks = request.request.asks.items()
        return {tp: cluster._part(node, tp, ask, 5000) for tp, ask in asks}

    faulty: Any = cluster
    faulty._part = without_records
    if not has_sessions:
        faulty._collect = collect
    reader = Reader(cluster)
    reader.open(A)
    reader.open(B)
    await asyncio.sleep(1)
    begun = len(cluster.requests)
    await asyncio.sleep(2)
    assert len(cluster.requests) - begun <= 110
    await reader.fetcher.aclose()


@virtual
async def test_offset_that_is_not_stored_is_asked_for_again_before_it_is_a_fault() -> None:
    """One that no longer leads, and does not know, may have less; the metadata may not have told yet."""
    cluster = FakeCluster()
    log = cluster.create(A)
    log.append(5)
    reader = Reader(cluster)
    part = cluster._part
    said: list[int] = []

    def doubtful(node: int, tp: TopicPartition, ask: Any, room: int) -> Any:
        if ask.offset == 5 and not said:
            said.append(node)
            cluster.append(A, 5)
            return (1, -1, -1, -1, -1, b"", b"\0")
        return part(node, tp, ask, room)

    faulty: Any = cluster
    faulty._part = doubtful
    reader.open(A)
    await reader.read(3)
    assert said
    assert not reader.faults
    assert reader.seen[A] == list(range(10))
    await reader.fetcher.aclose()


@virtual
async def test_epoch_that_no_leader_has_had_yet_is_not_believed() -> None:
    """No checksum covers it, and a broker finds the log of a wrong one truncated."""
    cluster = FakeCluster()
    log = cluster.create(A)
    log.append(5)
    first, end, epoch, raw = log.batches[0]
    log.batches[0] = first, end, epoch, raw[:12] + b"\x40" + raw[13:]
    reader = Reader(cluster)
    cursor = reader.open(A)
    await reader.read(1)
    assert (cursor.position, cursor.last_epoch) == (5, -1)
    assert {request.request.asks[A].last_epoch for _node, request in cluster.requests} == {-1}
    await reader.fetcher.aclose()


@pytest.mark.parametrize(
    "code, error",
    [(17, InvalidTopicError), (35, UnsupportedVersionError), (76, KafkaError)],
)
@virtual
async def test_error_that_nothing_mends_is_a_fault(code: int, error: type[Exception]) -> None:
    """It would be asked again for ever, and nobody would know."""
    cluster = FakeCluster()
    cluster.create(A).append(5)
    faulty: Any = cluster
    faulty._part = lambda *_: (code, -1, -1, -1, -1, b"", b"\0")
    reader = Reader(cluster)
    reader.open(A)
    await reader.read(1)
    (fault,) = reader.faults
    assert isinstance(fault, error)
    assert str(code) in str(fault)
    await reader.fetcher.aclose()


@virtual
async def test_rest_that_a_broker_asks_for_is_bounded() -> None:
    """A bit of it: the node would be left alone for days."""
    cluster = FakeCluster()
    cluster.create(A).append(5)
    cursors = Cursors(cluster, SMALL)
    cursor = Cursor(A)
    cursors.add(cursor)
    cursor.seek(0)
    cursor.resume()
    (plan,) = cursors.look(100.0).plans
    cursors.accept(plan, Fetched(2**31 - 1, 0, 0, []), 100.0)
    found = cursors.look(101.0)
    assert found.plans == []
    assert found.wake_at == 100.0 + MOST_THROTTLE
    assert len(cursors.look(100.0 + MOST_THROTTLE).plans) == 1


@virtual
async def test_nodes_share_the_room_there_is() -> None:
    """What all of them bring at once is bounded, however many there are."""
    cluster = FakeCluster()
    cursors = Cursors(cluster, FetchOptions(max_bytes=9000, max_partition_bytes=1000))
    for node, tp in enumerate((A, B, C), 1):
        cluster.create(tp, node)
        cursor = Cursor(tp)
        cursors.add(cursor)
        cursor.seek(0)
        cursor.resume()
    plans = cursors.look(0.0).plans
    assert [plan.limits.max_bytes for plan in plans] == [3000, 3000, 3000]


@virtual
async def test_replica_whose_time_is_over_still_speaks_for_itself_alone() -> None:
    """It is behind, and says so after its leader is to be asked again."""
    cluster = FakeCluster()
    cluster.create(A).append(5)
    options = SMALL._replace(rack="r", replica_age=10.0)
    cursors = Cursors(cluster, options)
    cursor = Cursor(A)
    cursors.add(cursor)
    cursor.seek(5)
    cursor.resume()
    cursor.replica = 2, 10.0
    (plan,) = cursors.look(9.0).plans
    assert plan.node == 2
    assert cursors.look(11.0).plans == []
    part = PartitionAnswer("t", 0, 1, -1, -1, -1, (), -1, None, b"")
    for now in (11.0, 12.0):
        assert not cursors.accept(plan, Fetched(0, 0, 7, [part]), now)
        assert not cursor.queue
        (plan,) = cursors.look(now + 0.5).plans
        assert plan.node == 1


@virtual
async def test_replica_that_has_less_than_was_read_is_left() -> None:
    """KIP-392: it has lost what it had, and copies it again; what the leader has is what counts."""
    cluster = FakeCluster()
    cluster.create(A).append(10)
    cursors = Cursors(cluster, SMALL._replace(rack="r"))
    cursor = Cursor(A)
    cursors.add(cursor)
    cursor.seek(10)
    cursor.last_epoch = 0
    cursor.resume()
    cursor.replica = 2, 10.0
    (plan,) = cursors.look(0.0).plans
    assert plan.node == 2
    part = PartitionAnswer("t", 0, 0, 5, 5, 0, (), -1, (0, 5), b"")
    assert not cursors.accept(plan, Fetched(0, 0, 7, [part]), 0.0)
    assert not cursor.queue
    found = cursors.look(0.01)
    assert (found.plans, found.is_stale, found.wake_at) == ([], True, SMALL.backoff)
    (plan,) = cursors.look(1.0).plans
    assert plan.node == 1
    assert plan.request.asks[A].last_epoch == 0
    assert cursors.accept(plan, Fetched(0, 0, 7, [part]), 1.0)
    fault = cursor.front
    assert isinstance(fault, Fault)
    assert isinstance(fault.error, PositionOutOfRangeError)


@virtual
async def test_offset_that_was_not_stored_for_a_moment_is_doubted_again_the_next_time() -> None:
    """A leader that is none any more has said so once; long after that, another one does."""
    cluster = FakeCluster()
    cluster.create(A).append(5)
    cursors = Cursors(cluster, SMALL)
    cursor = Cursor(A)
    cursors.add(cursor)
    cursor.seek(5)
    cursor.resume()
    absent = PartitionAnswer("t", 0, 1, -1, -1, -1, (), -1, None, b"")
    nothing = PartitionAnswer("t", 0, 0, 5, 5, 0, (), -1, None, b"")
    for now, part in enumerate([absent, nothing, absent]):
        (plan,) = cursors.look(float(now)).plans
        assert not cursors.accept(plan, Fetched(0, 0, 7, [part]), float(now))
    assert not cursor.queue
    (plan,) = cursors.look(9.0).plans
    assert cursors.accept(plan, Fetched(0, 0, 7, [absent]), 9.0)
    assert isinstance(cursor.front, Fault)


@virtual
async def test_partition_whose_leader_hangs_is_asked_of_the_next_one() -> None:
    """Not only when the request has run into its time; what comes late does not count."""
    cluster = FakeCluster()
    cluster.create(A).append(5)
    reader = Reader(cluster)
    reader.open(A)
    await reader.read(1)
    send, thawed = cluster.send, asyncio.Event()

    async def hangs(node: int, request: FetchRequest) -> FetchAnswer:
        if node == 1:
            await thawed.wait()
            return answer({A: (0, 9, 9, 0, -1, b"x" * 100, b"\0")})
        return await send(node, request)

    faulty: Any = cluster
    faulty.send = hangs
    await asyncio.sleep(1)
    cluster.elect(A, 2)
    cluster.append(A, 5)
    await reader.read(9)
    assert reader.seen[A] == list(range(10))
    thawed.set()
    await reader.read(1)
    assert reader.seen[A] == list(range(10))
    assert not reader.cursors[A].queue
    await reader.fetcher.aclose()


@pytest.mark.parametrize(
    "changed, is_doubted",
    [
        ({}, True),
        ({"isolation": 0}, False),
        ({"max_partition_bytes": 50}, False),  # the first batch comes in any case
        ({"max_partition_bytes": len(OPEN)}, False),
        ({"last_stable": 3}, False),
    ],
)
@virtual
async def test_answer_that_may_leave_out_an_aborted_transaction_is_asked_for_once_more(
    changed: dict[str, int], *, is_doubted: bool
) -> None:
    """It ends with a segment that the log cleaner is replacing: the broker no longer finds what was aborted."""
    settings: dict[str, Any] = {"isolation": 1, "max_partition_bytes": 1000, "last_stable": 9}
    settings |= changed
    stable = settings.pop("last_stable")
    data = OPEN

    def answered(*aborted: tuple[int, int]) -> Fetched:
        part = PartitionAnswer("t", 0, 0, 9, stable, 0, aborted, -1, None, data)
        return Fetched(0, 0, 7, [part])

    cluster = FakeCluster()
    cluster.create(A)
    cursors = Cursors(cluster, SMALL._replace(**settings))
    cursor = Cursor(A)
    cursors.add(cursor)
    cursor.seek(0)
    cursor.resume()
    (plan,) = cursors.look(0.0).plans
    assert cursors.accept(plan, answered(), 0.0) is not is_doubted
    if is_doubted:
        (plan,) = cursors.look(0.0).plans
        assert plan.request.asks[A].offset == 0
        assert cursors.accept(plan, answered((7, 0)), 0.0)
    chunk = cursor.front
    assert isinstance(chunk, Chunk)
    assert list(chunk.aborted) == ([(7, 0)] if is_doubted else [])


@virtual
async def test_answer_that_says_the_same_twice_counts() -> None:
    """The transaction was committed, and its marker lies in the next segment."""
    data = batch(rows(0, 3), producer=7, transaction=True)
    part = PartitionAnswer("t", 0, 0, 9, 9, 0, (), -1, None, data)
    cluster = FakeCluster()
    cluster.create(A)
    cursors = Cursors(cluster, SMALL._replace(isolation=1))
    cursor = Cursor(A)
    cursors.add(cursor)
    cursor.seek(0)
    cursor.resume()
    for is_taken in (False, True):
        (plan,) = cursors.look(0.0).plans
        assert cursors.accept(plan, Fetched(0, 0, 7, [part]), 0.0) is is_taken
    assert cursor.buffered


@virtual
async def test_second_answer_that_leaves_out_more_than_the_first_one_does_not_count() -> None:
    """1. An answer ends inside of a transaction that was committed; 2. it is asked for again, and a segment is replaced just then."""
    data = batch(rows(0, 3), producer=7, transaction=True)
    data += batch(rows(3, 6), producer=8, transaction=True)
    cluster = FakeCluster()
    cluster.create(A)
    cursors = Cursors(cluster, SMALL._replace(isolation=1, max_partition_bytes=1000))
    cursor = Cursor(A)
    cursors.add(cursor)
    cursor.seek(0)
    cursor.resume()
    right, wrong = [(8, 3)], list[tuple[int, int]]()
    for aborted, is_taken in [(right, False), (wrong, False), (right, True)]:
        (plan,) = cursors.look(0.0).plans
        assert plan.request.asks[A].offset == 0
        part = PartitionAnswer("t", 0, 0, 9, 9, 0, aborted, -1, None, data)
        assert cursors.accept(plan, Fetched(0, 0, 7, [part]), 0.0) is is_taken
    chunk = cursor.front
    assert isinstance(chunk, Chunk)
    assert chunk.aborted == right


@pytest.mark.parametrize(
    "isolation, size, asked", [(1, 1000, 2), (0, 1000, 1), (1, 50, 1), (1, len(OPEN), 1)]
)
@virtual
async def test_batch_that_is_fetched_by_itself_is_asked_for_once_more_too(
    isolation: int, size: int, asked: int
) -> None:
    """So it is, too, if its answer may leave out an aborted transaction."""
    lists = [[], [(7, 0)]]

    class Scripted(FakeCluster):
        async def send(self, node: int, request: FetchRequest) -> FetchAnswer:
            self.requests.append((node, request))
            aborted = lists[len(self.requests) - 1]
            return answer({A: (0, 9, 9, 0, -1, OPEN, b"\0", aborted)})

    cluster = Scripted()
    cluster.create(A, 3)
    options = SMALL._replace(isolation=isolation, max_partition_bytes=size)
    fetcher = Fetcher(cluster, options, lambda: None)
    cursor = Cursor(A, b"1" * 16)
    cursor.seek(0)
    part = await fetcher.fetch_alone(cursor, 100)
    assert [node for node, _request in cluster.requests] == [3] * asked
    request = cluster.requests[0][1]
    assert request.limits == (100, 1, size, isolation, "")
    assert request.request.asks == {A: Ask(b"1" * 16, 0, 0, -1, size)}
    assert part.aborted == lists[asked - 1]


@virtual
async def test_batch_of_a_partition_without_a_leader_cannot_be_fetched_by_itself() -> None:
    """Fresh metadata may know one."""
    cluster = FakeCluster()
    cluster.create(A)
    cluster.stale.clear()
    fetcher = Fetcher(cluster, SMALL, lambda: None)
    with pytest.raises(LeaderNotAvailableError):
        await fetcher.fetch_alone(Cursor(A), 100)
    assert not cluster.requests
    await asyncio.sleep(1)
    assert cluster.stale == cluster.leaders
    await fetcher.aclose()


@pytest.mark.parametrize(
    "error, fault",
    [
        (IncompatibleBrokerVersion(), IncompatibleBrokerVersion),
        (ValueError("damaged"), CorruptRecordException),
    ],
)
@virtual
async def test_answer_that_cannot_be_used_wakes_whoever_waits_for_records(
    error: Exception, fault: type[Exception]
) -> None:
    """There is a fault to be handed out, and nothing else would come."""
    cluster = FakeCluster()
    cluster.create(A)

    async def fails(_node: int, _request: FetchRequest) -> FetchAnswer:
        raise error

    faulty: Any = cluster
    faulty.send = fails
    reader = Reader(cluster)
    cursor = reader.open(A)
    await asyncio.wait_for(reader._news.wait(), 1)
    assert isinstance(cursor.front, Fault)
    assert isinstance(cursor.front.error, fault)
    assert fault is IncompatibleBrokerVersion or cursor.front.error.__cause__ is error
    assert reader.fetcher.answers == 1
    await reader.fetcher.aclose()


@virtual
async def test_answers_are_counted_and_failures_are_not() -> None:
    """Whoever compares the counts knows whether the brokers answer."""
    cluster = FakeCluster()
    cluster.create(A)
    reader = Reader(cluster)
    reader.open(A)
    await asyncio.sleep(2.3)
    assert reader.fetcher.answers == len(cluster.requests) - 1 > 2
    counted, cluster.trouble = reader.fetcher.answers, 1.0
    cluster.append(A, 1)
    await asyncio.sleep(1)
    assert reader.fetcher.answers <= counted + 1  # the one that was under way
    await reader.fetcher.aclose()


@pytest.mark.parametrize("isolation, asked", [(1, 2), (0, 1)])
@virtual
async def test_batch_that_is_fetched_by_itself_counts_if_its_answer_says_the_same_twice(
    isolation: int, asked: int
) -> None:
    """Its transaction was committed; it would be asked for without end."""

    class Scripted(FakeCluster):
        async def send(self, node: int, request: FetchRequest) -> FetchAnswer:
            self.requests.append((node, request))
            assert len(self.requests) <= asked
            return answer({A: (0, 9, 9, 0, -1, OPEN, b"\0")})

    cluster = Scripted()
    cluster.create(A)
    fetcher = Fetcher(cluster, SMALL._replace(isolation=isolation), lambda: None)
    cursor = Cursor(A)
    cursor.seek(0)
    assert (await fetcher.fetch_alone(cursor, 100)).records == OPEN
    assert len(cluster.requests) == asked


@virtual
async def test_answer_without_the_batch_that_was_asked_for_is_none() -> None:
    """It has another partition, or nothing."""

    class Scripted(FakeCluster):
        async def send(self, node: int, request: FetchRequest) -> FetchAnswer:
            return answer({B: (0, 9, 9, 0, -1, OPEN, b"\0")})

    cluster = Scripted()
    cluster.create(A)
    cursor = Cursor(A)
    cursor.seek(0)
    with pytest.raises(AnswerFormatError, match=r"node 1 does not answer of t\[0\]"):
        await Fetcher(cluster, SMALL, lambda: None).fetch_alone(cursor, 100)


@virtual
async def test_close_leaves_nothing_behind() -> None:
    """What waits at a broker is over, and no look follows; a second close does nothing."""
    cluster = FakeCluster()
    cluster.create(A)
    reader = Reader(cluster, PATIENT)
    reader.open(A)
    await reader.read(1)
    (waiting,) = reader.fetcher._tasks
    await reader.fetcher.aclose()
    assert waiting.cancelled()
    assert cluster._listeners == []
    made = len(cluster.requests)
    reader.cursors[A].rewind()
    await asyncio.sleep(10)
    assert len(cluster.requests) == made
    await reader.fetcher.aclose()
