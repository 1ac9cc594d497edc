"""A cluster that answers fetches as Kafka does, with sessions, in virtual time; and loses things by a seed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError

from consumer_sdk.adapters.kafka.fetch.session import CLOSING, Ask, SessionRequest
from consumer_sdk.adapters.kafka.fetch.structs import FetchAnswer, FetchRequest
from tests.adapters.kafka.decoding.test_salvage import rows
from tests.adapters.kafka.decoding.test_unpacking import batch
from tests.adapters.kafka.fetch.test_structs import TEXT, answer_schema

__all__ = ["FakeCluster", "Log", "answer"]

Part = tuple[Any, ...]


def answer(parts: Mapping[TopicPartition, Part], session: int = 0, error: int = 0) -> FetchAnswer:
    """An answer of version 12.

    Args:
        parts: error, high watermark, last stable offset, the log's first offset, replica, records, tags; and perhaps
            producer and first offset of each aborted transaction.
    """
    topics: dict[str, list[Any]] = {}
    for tp, (code, high, stable, first, replica, records, tags, *aborted) in parts.items():
        listed = [(*transaction, {}) for transactions in aborted for transaction in transactions]
        row: Any = (tp.partition, code, high, stable, first, listed, replica, records, tags)
        topics.setdefault(tp.topic, []).append(row)
    found: Any = [(topic, part, {}) for topic, part in topics.items()]
    return FetchAnswer(12, answer_schema(TEXT).encode((0, error, session, found, {})), 0)


class Log:
    """A partition's: batches, and the epochs of the leaders that wrote them."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, int, bytes]] = []  # first, end, epoch, bytes
        self.start = 0

    @property
    def end(self) -> int:
        """The offset behind the last record."""
        return self.batches[-1][1] if self.batches else self.start

    def append(self, count: int, epoch: int = 0) -> None:
        """Appends a batch of so many records; their values are their offsets."""
        first = self.end
        raw = bytearray(batch(rows(first, first + count)))
        raw[12:16] = epoch.to_bytes(4)
        self.batches.append((first, first + count, epoch, bytes(raw)))

    def truncate(self, end: int) -> None:
        """Loses what begins at an offset or behind it."""
        self.batches = [each for each in self.batches if each[1] <= end]

    def read(self, offset: int, most: int) -> bytes:
        """The batches from the one that holds an offset; at least one."""
        found = b""
        for _first, end, _epoch, raw in self.batches:
            if end <= offset:
                continue
            if found and len(found) + len(raw) > most:
                return found + raw[: most - len(found)]  # cut off
            found += raw
        return found

    def diverges(self, offset: int, epoch: int) -> tuple[int, int] | None:
        """As a broker finds it by the epoch of the last record that was fetched."""
        known = [each for each in self.batches if each[2] <= epoch]
        if epoch < 0 or not known:
            return None
        found, end = known[-1][2], known[-1][1]
        return (found, end) if found < epoch or end < offset else None


class Broker:
    """One node's sessions."""

    def __init__(self) -> None:
        self.number = 0
        self.epoch = 0
        self.asks: dict[TopicPartition, Ask] = {}
        self.highs: dict[TopicPartition, int] = {}
        self.is_busy = False


class FakeCluster:
    """See the module.

    Args:
        trouble: of a request: between 0 and 1.

    Attributes:
        logs: by partition.
        leaders: node and epoch.
        stale: what the metadata say, until they are asked for again.
        requests: node and request, in order; `asides` likewise.
    """

    def __init__(
        self, chance: random.Random | None = None, trouble: float = 0.0, nodes: int = 3
    ) -> None:
        self._chance = chance or random.Random(0)
        self.trouble = trouble
        self.logs: dict[TopicPartition, Log] = {}
        self.leaders: dict[TopicPartition, tuple[int, int]] = {}
        self.stale: dict[TopicPartition, tuple[int, int]] = {}
        self.requests: list[tuple[int, FetchRequest]] = []
        self.asides: list[tuple[int, FetchRequest]] = []
        self.replicas: dict[TopicPartition, int] = {}
        self._brokers = {node: Broker() for node in range(1, nodes + 1)}
        self._listeners: list[Callable[[Any], None]] = []
        self._appended = asyncio.Event()

    # -- metadata -----------------------------------------------------------------------------

    def leader_of(self, tp: TopicPartition) -> tuple[int, int] | None:
        """As the last metadata have it."""
        return self.stale.get(tp)

    def has_node(self, node: int) -> bool:
        """Every one that there is."""
        return node in self._brokers

    def refresh(self) -> None:
        """They come a little later."""
        asyncio.get_running_loop().call_later(0.01 + self._chance.random() / 10, self._tell)

    def _tell(self) -> None:
        self.stale = dict(self.leaders)
        for listener in self._listeners:
            listener(self)

    def add_listener(self, listener: Callable[[Any], None]) -> None:
        """As `Cluster` has it."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[Any], None]) -> None:
        """As `Cluster` has it."""
        self._listeners.remove(listener)

    # -- what happens -------------------------------------------------------------------------

    def create(self, tp: TopicPartition, node: int = 1) -> Log:
        """A partition, and its leader."""
        self.logs[tp] = Log()
        self.leaders[tp] = self.stale[tp] = (node, 0)
        return self.logs[tp]

    def append(self, tp: TopicPartition, count: int) -> None:
        """By the leader of now; whoever waits is answered."""
        self.logs[tp].append(count, self.leaders[tp][1])
        self._appended.set()
        self._appended = asyncio.Event()

    def elect(self, tp: TopicPartition, node: int) -> None:
        """Another leader, of which clients hear when they ask."""
        self.leaders[tp] = (node, self.leaders[tp][1] + 1)

    async def send(self, node: int, request: FetchRequest) -> FetchAnswer:
        """As `Cluster` has it; a connection's requests are answered one after another."""
        self.requests.append((node, request))
        broker = self._brokers[node]
        assert not broker.is_busy, "two requests to a node at once"
        broker.is_busy = True
        try:
            return await self._answer(node, broker, request)
        finally:
            broker.is_busy = False

    async def send_aside(self, node: int, request: FetchRequest) -> FetchAnswer:
        """As `Cluster` has it; nothing of a session is touched."""
        self.asides.append((node, request))
        asked, chance = request.request, self._chance
        assert (asked.session, asked.epoch, request.limits.max_wait) == (0, CLOSING, 0)
        await asyncio.sleep(chance.random() / 100)
        if chance.random() < self.trouble:
            raise KafkaConnectionError("the request is lost")
        broker = Broker()
        broker.asks = dict(asked.asks)
        return answer(await self._collect(node, broker, request))

    async def _answer(self, node: int, broker: Broker, request: FetchRequest) -> FetchAnswer:
        chance = self._chance
        await asyncio.sleep(chance.random() / 100)
        if chance.random() < self.trouble:
            raise KafkaConnectionError("the request is lost")
        if chance.random() < self.trouble:
            broker.number = -1  # it has made room for others
        error = self._enter(broker, request.request)
        if error:
            return answer({}, error=error)
        parts = await self._collect(node, broker, request)
        if chance.random() < self.trouble:
            raise KafkaConnectionError("the answer is lost")
        if chance.random() < self.trouble:
            return FetchAnswer(12, chance.randbytes(20), 0)
        return answer(parts, broker.number)

    def _enter(self, broker: Broker, request: SessionRequest) -> int:
        if request.epoch == 0:
            broker.number = self._chance.randint(1, 2**31 - 1)
            broker.epoch, broker.asks, broker.highs = 1, dict(request.changed), {}
            return 0
        if request.session != broker.number:
            return 70
        if request.epoch != broker.epoch:
            return 71
        broker.epoch += 1
        for tp in request.forgotten:
            broker.asks.pop(tp)
        broker.asks |= request.changed
        assert broker.asks == request.asks
        return 0

    async def _collect(
        self, node: int, broker: Broker, request: FetchRequest
    ) -> dict[TopicPartition, Part]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.limits.max_wait / 1000
        while True:
            room, parts = request.limits.max_bytes, {}
            for tp, ask in broker.asks.items():
                part = self._part(node, tp, ask, room)
                room = max(room - len(part[5]), 0)
                if part[0] or part[5] or part[6] != b"\0" or part[4] >= 0:
                    parts[tp] = part
                elif broker.highs.get(tp) != part[1]:
                    broker.highs[tp] = part[1]
                    parts[tp] = part
            if parts or loop.time() >= deadline:
                return parts
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._appended.wait()

    def _part(self, node: int, tp: TopicPartition, ask: Ask, room: int) -> Part:
        log, (leader, epoch) = self.logs[tp], self.leaders[tp]
        nothing = (-1, -1, -1, -1, b"", b"\0")
        if node not in (leader, self.replicas.get(tp)):
            return (6, *nothing)
        if ask.leader_epoch not in (-1, epoch):
            return (74 if ask.leader_epoch < epoch else 75, *nothing)
        found = log.diverges(ask.offset, ask.last_epoch)
        if found is not None:
            tag = b"\1\0\x0d" + found[0].to_bytes(4) + found[1].to_bytes(8) + b"\0"
            return (0, log.end, log.end, log.start, -1, b"", tag)
        if not log.start <= ask.offset <= log.end:
            return (1, *nothing)
        if tp in self.replicas and node != self.replicas[tp]:
            return (0, log.end, log.end, log.start, self.replicas[tp], b"", b"\0")
        records = log.read(ask.offset, ask.max_bytes) if room else b""
        return (0, log.end, log.end, log.start, -1, records, b"\0")
