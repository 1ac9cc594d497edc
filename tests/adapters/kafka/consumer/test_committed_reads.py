"""``read_committed`` on a log that transactions write to while Kafka compacts it, against a plain model of both, by a seed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest
from aiokafka import TopicPartition

from consumer_sdk.adapters.assignment_book import AssignmentBook, GrantState
from consumer_sdk.adapters.kafka.consumer.fetching import FetchBuffer
from consumer_sdk.adapters.kafka.consumer.grants import Grant
from consumer_sdk.adapters.kafka.fetch.cursors import FetchOptions
from consumer_sdk.adapters.kafka.fetch.fetcher import Fetcher
from consumer_sdk.adapters.kafka.fetch.session import CLOSING, Ask
from consumer_sdk.adapters.kafka.fetch.structs import FetchAnswer, FetchRequest
from consumer_sdk.records import Run
from consumer_sdk.testing import Simulation, simulate
from tests.adapters.kafka.consumer.test_salvaging import OPTIONS
from tests.adapters.kafka.decoding.transactional_log import (
    TransactionalLog,
    compact,
    write_by_chance,
)
from tests.adapters.kafka.fetch.fake_cluster import Broker, FakeCluster, Part, answer

PARTITIONS = [TopicPartition("t", n) for n in range(2)]
HEAD = 61


class Cluster(FakeCluster):
    """One whose logs transactions write to, and the log cleaner compacts, also while an answer is made."""

    def __init__(self, chance: Random, trouble: float) -> None:
        super().__init__(chance, trouble)
        self.texts = {tp: TransactionalLog(chance.choice([100, 300, 4000])) for tp in PARTITIONS}
        self.damages = trouble
        for tp in PARTITIONS:
            self.create(tp, 1 + tp.partition)

    def change(self, log: TransactionalLog) -> None:
        """Something happens to a log; whoever waits is answered."""
        match write_by_chance(log, self._chance, 12):
            case 10:
                compact(log, self._chance)
            case 11 if self._chance.random() < 0.2:
                log.delete(self._chance.randint(1, 3))
        self._appended.set()
        self._appended = asyncio.Event()

    async def send(self, node: int, request: FetchRequest) -> FetchAnswer:
        """Also of one that asks by itself for what cannot be read: that one comes sound."""
        if request.request.epoch != CLOSING:
            return await super().send(node, request)
        await asyncio.sleep(self._chance.random() / 100)
        damages, self.damages = self.damages, 0.0
        broker = Broker()
        broker.asks = dict(request.request.asks)
        try:
            return answer(await self._collect(node, broker, request))
        finally:
            self.damages = damages

    def _part(self, node: int, tp: TopicPartition, ask: Ask, room: int) -> Part:
        log, chance = self.texts[tp], self._chance
        nothing = (-1, -1, -1, -1, b"", b"\0")
        leader, epoch = self.leaders[tp]
        if node != leader:
            return (6, *nothing)
        if ask.leader_epoch not in (-1, epoch):
            return (74 if ask.leader_epoch < epoch else 75, *nothing)
        if not log.start <= ask.offset <= log.end:
            return (1, *nothing)
        race = partial(self._race, log) if chance.random() < 0.3 else lambda: None
        start, stable = log.start, log.stable
        found = log.read(ask.offset, min(ask.max_bytes, room), race) if room else None
        if found is None:
            return (0, log.end, stable, start, -1, b"", b"\0", ())
        data = found.data
        if chance.random() < self.damages and len(data) > HEAD:
            at = chance.randrange(HEAD, len(data))
            data = data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        return (0, log.end, stable, start, -1, data, b"\0", found.aborted)

    def _race(self, log: TransactionalLog) -> None:
        if self._chance.random() < 0.8:
            compact(log, self._chance)
        else:
            log.delete(self._chance.randint(1, 3))


class Reader:
    """Takes what comes of both partitions, and holds it to the logs.

    Attributes:
        begun: where each partition was last begun at; `seen`: what has come since.
    """

    def __init__(self, cluster: Cluster, options: FetchOptions) -> None:
        self.cluster = cluster
        self.grants = AssignmentBook[Grant]()
        self.buffer = FetchBuffer(
            cluster, self.grants, replace(OPTIONS, isolation_level="read_committed")
        )
        buffer: Any = self.buffer
        fetcher = Fetcher(cluster, options, self.buffer.wake)
        buffer._fetcher = buffer.salvage._fetcher = fetcher
        self.begun: dict[TopicPartition, int] = {}
        self.seen: dict[TopicPartition, list[int]] = {}
        self.held: dict[TopicPartition, Grant] = {}

    def open(self, tp: TopicPartition, position: int) -> None:
        """Holds it, and begins there."""
        grant = self.held[tp] = Grant(tp, None)
        grant.state = GrantState.OPEN
        grant.cursor.seek(position)
        self.begun[tp], self.seen[tp] = position, []
        self.buffer.add(grant.cursor)
        grant.cursor.resume()
        self.grants.offer(grant)

    def seek(self, tp: TopicPartition, position: int) -> None:
        """Goes on there."""
        self.check(tp)
        grant = self.held[tp]
        grant.has_fault = False
        grant.cursor.seek(position)
        grant.resume()
        self.begun[tp], self.seen[tp] = position, []

    def check(self, tp: TopicPartition) -> None:
        """What has come is what is committed."""
        position = self.held[tp].cursor.position
        self.cluster.texts[tp].check(self.begun[tp], position, self.seen[tp])

    def has_more(self, tp: TopicPartition) -> bool:
        """Something that is decided is not read yet; of what the cleaner has left."""
        return self.cluster.texts[tp].read(self.held[tp].cursor.position, 1) is not None

    async def take(self, max_records: int, max_bytes: int) -> None:
        """What is there now."""
        if self.buffer.salvage.waiting:
            await self.buffer.salvage.run()
        for run in self.buffer.take(max_records, max_bytes):
            self._add(run)

    def _add(self, run: Run) -> None:
        tp = TopicPartition(run.assignment.partition.stream, int(run.assignment.partition.id))
        if run.fault is not None:
            start = self.cluster.texts[tp].start
            assert self.held[tp].cursor.position < start, run.fault
            self.seek(tp, start)
            return
        self.seen[tp] += [message.position for message in run.messages]
        assert all(message.value == b"%d" % message.position for message in run.messages)
        self.check(tp)


async def read_by(seed: int) -> None:
    """Things that happen to two logs, and to who reads them."""
    chance = Random(seed)
    cluster = Cluster(chance, chance.choice([0.0, 0.0, 0.05]))
    size = chance.choice([60, 250, 1000, 20_000])
    options = FetchOptions(
        max_wait=100,
        isolation=1,
        max_partition_bytes=size,
        max_bytes=chance.choice([size, 3 * size, 1 << 20]),
        backoff=0.01,
    )
    reader = Reader(cluster, options)
    for tp, log in cluster.texts.items():
        for _ in range(chance.randint(0, 60)):
            cluster.change(log)
        reader.open(tp, chance.randint(log.start, log.stable))
    for _ in range(chance.randint(20, 80)):
        await happen(chance, cluster, reader, chance.choice(PARTITIONS))
    cluster.trouble = cluster.damages = 0.0
    for tp, log in cluster.texts.items():
        for producer in (1, 2, 3):
            log.finish(producer, is_aborted=chance.random() < 0.5)
        cluster.change(log)
        reader.held[tp].resume()
    async with asyncio.timeout(100):
        while any(reader.has_more(tp) for tp in PARTITIONS):
            await asyncio.sleep(0.01)
            await reader.take(100, 1 << 20)
    for tp in PARTITIONS:
        reader.check(tp)
    await reader.buffer.aclose()


async def happen(chance: Random, cluster: Cluster, reader: Reader, tp: TopicPartition) -> None:
    """One of them."""
    log, grant = cluster.texts[tp], reader.held[tp]
    match chance.randrange(10):
        case 0 | 1 | 2 | 3:
            for _ in range(chance.randint(1, 5)):
                cluster.change(log)
        case 4 if chance.random() < 0.3:
            reader.seek(tp, chance.randint(log.start, log.stable))
        case 5:
            grant.resume() if grant.is_paused else grant.pause()
        case 6 if chance.random() < 0.3:
            cluster.elect(tp, chance.randint(1, 3))
        case 7 | 8:
            await asyncio.sleep(chance.random() / 20)
        case _:
            await reader.take(chance.choice([1, 3, 100]), chance.choice([1, 5, 1 << 20]))


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_what_is_committed_comes_once_and_nothing_else(first: int) -> None:
    """Through answers that are cut anywhere, parts of any size, seeks, faults, leaders that change."""

    async def main(_simulation: Simulation, seed: int) -> None:
        await read_by(seed)

    for seed in range(first, first + 50):
        simulate(partial(main, seed=seed))
