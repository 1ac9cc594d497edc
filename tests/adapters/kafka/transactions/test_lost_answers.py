"""Transactions whose requests are lost, late or refused: nothing is seen twice, half or never."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
)

from consumer_sdk.adapters.kafka.commits.structs import TxnOffsetCommit
from consumer_sdk.adapters.kafka.transactions import producer as producers
from consumer_sdk.adapters.kafka.transactions import transactions
from consumer_sdk.adapters.kafka.transactions.structs import InitProducerId
from consumer_sdk.errors import AdapterError, ProducerFencedError
from consumer_sdk.records.outputs import Output
from tests.adapters.kafka.transactions.model import Bench, ModelCluster, lost


@pytest.fixture
async def bench() -> Bench:
    """One partition."""
    return await Bench().open()


async def test_transaction_shows_outputs_and_position_together(bench: Bench) -> None:
    """What the model says of an ordinary one."""
    bench.settle(0, 1)
    assert await bench.commit(2) == ["durable"]
    assert bench.cluster.visible == ["0:0", "0:1"]
    assert bench.cluster.positions[0][0] == 2
    assert bench.cluster.epoch == 0


@pytest.mark.parametrize("kind", [EndTxnRequest, AddPartitionsToTxnRequest, AddOffsetsToTxnRequest])
async def test_request_that_arrives_late_changes_no_later_transaction(
    bench: Bench, kind: type[Any]
) -> None:
    """1. The answer is lost, and it is asked again. 2. The transaction commits. 3. The first request arrives in the next one."""
    late: list[Any] = []

    async def lose(_cluster: ModelCluster, request: Any) -> Any:
        late.append(request)
        raise KafkaConnectionError("the answer is lost")

    async def come_now(cluster: ModelCluster, request: Any) -> Any:
        await cluster.answer(late[0])
        raise KafkaConnectionError(f"{type(request).__name__} is lost")

    bench.cluster.troubles[kind] = [lose]
    bench.settle(0)
    assert await bench.commit(1) == ["durable"]
    bench.settle(1)
    bench.cluster.troubles[TxnOffsetCommit] = [come_now]
    assert await bench.commit(2) == ["retry"]
    assert bench.cluster.visible == ["0:0"]
    assert bench.cluster.positions[0][0] == 1
    assert await bench.commit(2) == ["durable"]
    assert bench.cluster.visible == ["0:0", "0:1"]
    assert bench.cluster.state == "committed"


async def test_partition_that_is_lost_and_comes_back_is_not_committed_for_its_former_grant(
    bench: Bench,
) -> None:
    """The member may be in the same epoch: the broker takes the position of a grant that is over.

    1. The position is sent. 2. The partition is lost, and comes back; the new grant reads the group's position. 3. The broker
    takes the position. If it were committed, the new grant's outputs would be there a second time.
    """

    async def come_back(cluster: ModelCluster, request: Any) -> Any:
        bench.grants.offer(bench.held[0].again())
        return await cluster.answer(request)

    bench.settle(0)
    bench.cluster.troubles[TxnOffsetCommit] = [come_back]
    assert await bench.commit(1) == ["retry"]
    assert (bench.cluster.visible, bench.cluster.positions) == ([], {})


async def test_transaction_before_that_takes_long_to_complete_is_waited_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its markers cannot be written while a partition has no leader: that passes, and is no reason to end."""
    monkeypatch.setattr(producers, "PATIENCE", 0.0)

    async def busy(_cluster: ModelCluster, request: Any) -> Any:
        answer: Any = type("Answer", (), {})()
        answer.errors = [(t, [(n, 51) for n in numbers]) for t, numbers in request._topics]
        return answer

    bench.settle(0)
    bench.cluster.troubles[AddPartitionsToTxnRequest] = [busy]
    assert await bench.commit(1) == ["retry"]
    assert await bench.commit(1) == ["durable"]
    assert bench.cluster.visible == ["0:0"]


async def test_metadata_that_the_broker_finds_too_large_shrink(bench: Bench) -> None:
    """The principal may not ask for the limit; without less metadata no flush would ever be taken."""
    bench.cluster.limit = 300
    ranges = tuple((n, n) for n in range(10, 9000, 2))
    bench.settle(0)
    kinds = [await bench.commit(1, ranges=ranges) for _ in range(6)]
    assert kinds[-1] == ["durable"]
    assert bench.cluster.visible == ["0:0"]
    assert len(bench.cluster.positions[0][1]) <= 300


async def test_positions_that_are_too_many_for_one_batch_are_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The brokers' ``message.max.bytes`` is small: the positions go in several requests of one transaction."""
    monkeypatch.setattr(transactions, "FEWEST_BYTES", 500)
    bench = await Bench(8).open()
    for partition in range(8):
        bench.settle(0, partition=partition)
    bench.cluster.most_bytes = 100
    kinds = [await bench.commit(*[1] * 8, ranges=((10, 10), (12, 12))) for _ in range(12)]
    assert kinds[0] == ["retry"] * 8
    assert kinds[-1] == ["durable"] * 8
    assert sorted(bench.cluster.visible) == [f"{n}:0" for n in range(8)]
    assert len(bench.cluster.positions) == 8


async def test_closing_ends_a_transaction_that_nobody_answers(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing goes on asking when the connections are closed."""
    monkeypatch.setattr(transactions, "CLOSE_PATIENCE", 0.0)
    never, asked = asyncio.Event(), asyncio.Event()

    async def silent(_cluster: ModelCluster, _request: Any) -> Any:
        asked.set()
        await never.wait()

    bench.cluster.troubles[AddPartitionsToTxnRequest] = [silent]
    bench.cluster.troubles[EndTxnRequest] = [lost] * 1000
    bench.settle(0)
    committing = asyncio.ensure_future(bench.commit(1))
    await asked.wait()
    await bench.transactions.aclose()
    await asyncio.wait({committing})
    assert committing.cancelled() or isinstance(committing.exception(), AdapterError)
    assert bench.cluster.visible == []


async def test_partition_that_the_topic_has_no_more_is_chosen_anew(bench: Bench) -> None:
    """A topic of dead letters that was made again with fewer partitions: the flush would be tried for ever."""
    book = bench.books[0]
    book.send(0, 0, 1, Output.make("out", b"letter", b"key", partition=9))
    book.settled(0)
    assert await bench.commit(1) == ["durable"]
    assert bench.cluster.visible == ["letter"]


async def test_coordinator_that_stays_away_is_no_reason_to_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that nobody answers for long aborts; the next flush has it all."""
    monkeypatch.setattr(producers, "PATIENCE", 0.0)
    bench.cluster.troubles[AddOffsetsToTxnRequest] = [lost]
    bench.settle(0)
    assert await bench.commit(1) == ["retry"]
    assert await bench.commit(1) == ["durable"]
    assert bench.cluster.visible == ["0:0"]


async def test_requests_of_many_partitions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker closes the connection for a request above its ``socket.request.max.bytes``, each time again."""
    monkeypatch.setattr(producers, "REQUEST_BYTES", 300)
    bench = await Bench(partitions=1).open()
    bench.cluster.resize(8)
    for n in range(8):
        output = Output.make("out", bytes(200), partition=n)
        bench.books[0].send(n, n, 1, output)
        bench.books[0].settled(n)
    assert await bench.commit(8) == ["durable"]
    assert len(bench.cluster.visible) == 8
    assert bench.cluster.sent.count("ProduceRequest") == 8


KINDS = (
    InitProducerId,
    AddPartitionsToTxnRequest,
    AddOffsetsToTxnRequest,
    ProduceRequest,
    TxnOffsetCommit,
    EndTxnRequest,
)


class Storm:
    """Requests that are lost before or after their effect, or arrive long after somebody has stopped to wait for them."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.late: list[Any] = []

    async def blow(self, cluster: ModelCluster, request: Any) -> Any:
        """What happens to one request."""
        if self.late and self.dice.random() < 0.3:
            await cluster.answer(self.late.pop(0))
        chance = self.dice.random()
        if chance < 0.1:
            self.late.append(request)
        if chance < 0.25:
            raise KafkaConnectionError("the answer is lost")
        answer = await cluster.answer(request)
        if chance < 0.35:
            raise KafkaConnectionError("the answer is lost")
        return answer


@pytest.mark.parametrize("seed", range(40))
async def test_whatever_is_lost_or_late_outputs_and_position_are_one(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """At each moment a reader sees the outputs of what lies before the group's position, once each."""
    monkeypatch.setattr(producers, "SHORT_REST", 0.0)
    bench, storm = await Bench().open(), Storm(seed)
    for kind in KINDS:
        bench.cluster.troubles[kind] = [storm.blow] * 10_000
    settled = 0
    for _ in range(30):
        bench.settle(settled, settled + 1)
        settled += 2
        try:
            await bench.commit(settled)
        except (
            ProducerFencedError
        ):  # a late request has opened, or ended, a transaction of its own epoch
            break
        at, _text = bench.cluster.positions.get(0, (0, ""))
        assert bench.cluster.visible == [f"0:{n}" for n in range(at)]
    at, _text = bench.cluster.positions.get(0, (0, ""))
    assert bench.cluster.visible == [f"0:{n}" for n in range(at)]
