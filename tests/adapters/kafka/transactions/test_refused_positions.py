"""Transactions whose positions are refused, not sent, or sent by whoever holds them no more; and the end of a run."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
)

from consumer_sdk.adapters.kafka.client.lookups import Coordinator
from consumer_sdk.adapters.kafka.commits.structs import TxnOffsetCommit
from consumer_sdk.adapters.kafka.consumer.committing import MOST_BYTES
from consumer_sdk.adapters.kafka.consumer.grants import Grant
from consumer_sdk.adapters.kafka.groups.coordinator import Stamp
from consumer_sdk.adapters.kafka.transactions import producer as producers
from consumer_sdk.adapters.kafka.transactions.transactions import (
    ABORTED,
    LOST,
    NO_ROOM,
    NOT_JOINED,
)
from consumer_sdk.errors import AdapterError, ProducerFencedError, TransientAdapterError
from consumer_sdk.records import Outcome
from tests.adapters.kafka.transactions.model import Bench, ModelCluster, Trouble

FENCED, MOVED, OLD_GENERATION = 90, 16, 22


class Asked:
    """Keeps the answers that outcomes are made of, and the requests for positions."""

    def __init__(self, bench: Bench) -> None:
        self.codes: list[int | Exception | None] = []
        self.stamps: list[Stamp | None] = []
        self.requests: list[Any] = []
        self.forgotten: list[Any] = []
        self._bench = bench
        self._outcomes = bench.session.committer.outcomes
        bench.session.committer.outcomes = self.outcomes
        bench.cluster.forget = self.forgotten.append  # type: ignore[method-assign, assignment]  # another name of the argument

    async def outcomes(self, flushes: Any, answers: Any) -> list[Outcome]:
        """What became of each flush."""
        found = [answers.get(flush.assignment) for flush in flushes]
        self.codes = [answer and answer.code for answer in found]
        self.stamps = [answer and answer.stamp for answer in found]
        outcomes: list[Outcome] = await self._outcomes(flushes, answers)
        return outcomes

    def refusing(self, *codes: int | None) -> Trouble:
        """The broker answers these to the positions of a request, one after another; None leaves one out."""

        async def answer(_cluster: ModelCluster, request: Any) -> Any:
            self.requests.append(request)
            topics = [
                (
                    topic,
                    [(e.partition, c) for e, c in zip(each, codes, strict=True) if c is not None],
                )
                for topic, each in request.fields["topics"]
            ]
            return SimpleNamespace(topics=topics)

        return answer


async def two() -> tuple[Bench, Asked]:
    """Two partitions, each with an output."""
    bench = await Bench(2).open()
    for partition in range(2):
        bench.settle(0, partition=partition)
    return bench, Asked(bench)


async def test_position_says_who_commits_it() -> None:
    """The producer's epoch, and the member's, with the instance of a static one."""
    bench, asked = await two()
    bench.session.options.client_options["group_instance_id"] = "static"
    bench.cluster.troubles[TxnOffsetCommit] = [asked.refusing(0, 0)]
    assert await bench.commit(1, 1) == ["durable", "durable"]
    (request,) = asked.requests
    fields = request.fields
    assert (fields["transactional_id"], fields["group"]) == ("tx", "g")
    assert (fields["producer_id"], fields["producer_epoch"]) == (7, 0)
    stamp = (fields["generation"], fields["member"], fields["group_instance_id"])
    assert stamp == (3, "me", "static")
    assert asked.codes == [0, 0]


async def test_position_that_is_refused_takes_the_others_with_it() -> None:
    """All are put back, and told apart; the next transaction has them."""
    bench, asked = await two()
    bench.cluster.troubles[TxnOffsetCommit] = [asked.refusing(0, OLD_GENERATION)]
    assert await bench.commit(1, 1) == ["retry", "retry"]
    assert asked.codes == [ABORTED, OLD_GENERATION]
    assert asked.stamps == [None, Stamp(3, "me")]
    assert (bench.cluster.visible, bench.cluster.positions) == ([], {})
    assert await bench.commit(1, 1) == ["durable", "durable"]
    assert sorted(bench.cluster.visible) == ["0:0", "1:0"]


async def test_position_that_the_answer_leaves_out_is_refused() -> None:
    """Nobody knows what became of it."""
    bench, asked = await two()
    bench.cluster.troubles[TxnOffsetCommit] = [asked.refusing(0, None)]
    assert await bench.commit(1, 1) == ["retry", "retry"]
    assert asked.codes == [ABORTED, -1]
    assert bench.cluster.visible == []


async def test_coordinator_that_has_moved_is_looked_up_again() -> None:
    """Before the next transaction; a refusal of another kind says nothing of it."""
    bench, asked = await two()
    bench.cluster.troubles[TxnOffsetCommit] = [
        asked.refusing(OLD_GENERATION, OLD_GENERATION),
        asked.refusing(MOVED, MOVED),
    ]
    assert await bench.commit(1, 1) == ["retry", "retry"]
    assert asked.forgotten == []
    assert await bench.commit(1, 1) == ["retry", "retry"]
    assert asked.forgotten == [Coordinator("g")]


async def test_positions_are_not_fewer_in_a_request_because_one_was_refused() -> None:
    """Only a batch that the broker finds too large is cut, and one that has a single position is not."""
    bench, asked = await two()
    known: Any = bench.transactions
    bench.cluster.troubles[TxnOffsetCommit] = [asked.refusing(OLD_GENERATION, 0)]
    await bench.commit(1, 1)
    assert known._most_bytes == MOST_BYTES
    bench.cluster.troubles[TxnOffsetCommit] = [asked.refusing(-1)]
    await bench.commit(1)
    assert known._most_bytes == MOST_BYTES
    bench.cluster.troubles[TxnOffsetCommit] = [asked.refusing(-1, 0)]
    await bench.commit(1, 1)
    assert known._most_bytes == MOST_BYTES // 2


async def test_partition_that_is_lost_while_outputs_are_written_is_not_committed() -> None:
    """Its position would go with the stamp of a later epoch, in which another member may have it."""
    bench, asked = await two()

    async def lose(cluster: ModelCluster, request: Any) -> Any:
        bench.grants.offer(bench.held[1].again())
        return await cluster.answer(request)

    bench.cluster.troubles[AddOffsetsToTxnRequest] = [lose]
    assert await bench.commit(1, 1) == ["retry", "retry"]
    assert asked.codes == [ABORTED, LOST]
    assert "TxnOffsetCommit" not in bench.cluster.sent
    assert bench.cluster.visible == []


async def test_member_that_joins_anew_commits_nothing() -> None:
    """It has no epoch that the broker would take; 0 is one."""
    bench, asked = await two()
    bench.session.coordinator.stamp = Stamp(-1, "me")
    assert await bench.commit(1, 1) == ["retry", "retry"]
    assert asked.codes == [NOT_JOINED, NOT_JOINED]
    assert "TxnOffsetCommit" not in bench.cluster.sent
    bench.session.coordinator.stamp = Stamp(0, "me")
    assert await bench.commit(1, 1) == ["durable", "durable"]


async def test_flush_of_nothing_is_no_transaction() -> None:
    """Of a partition that is not held, or without a position: nothing is asked of the broker."""
    bench, asked = await two()
    (flush,) = bench.flush(1)
    known = len(bench.cluster.sent)
    stranger = replace(flush, assignment=Grant(TopicPartition("in", 9)).assignment)
    stranger.outputs = bench.books[0]
    (unsettled,) = bench.flush(1)
    unsettled = replace(
        unsettled, checkpoint=replace(flush.checkpoint, watermark=None, resume=None)
    )
    unsettled.outputs = bench.books[0]
    outcomes = await bench.transactions.commit([stranger, unsettled])
    assert [outcome.kind.value for outcome in outcomes] == ["retry", "retry"]
    assert asked.codes == [None, None]
    assert len(bench.cluster.sent) == known


async def test_flush_that_has_no_room_says_so() -> None:
    """The others are committed."""
    bench, asked = await two()
    bench.books[0].close()
    assert await bench.commit(1, 1) == ["retry", "durable"]
    assert asked.codes == [NO_ROOM, 0]
    assert bench.cluster.visible == ["1:0"]


async def test_fenced_producer_ends_the_run() -> None:
    """Each later flush says the same, and asks the broker nothing; nothing is aborted, for another one has the name."""
    bench, asked = await two()
    bench.cluster.troubles[TxnOffsetCommit] = [asked.refusing(FENCED, 0)]
    with pytest.raises(ProducerFencedError, match="committing positions of transactional_id 'tx'"):
        await bench.commit(1, 1)
    known = list(bench.cluster.sent)
    assert "EndTxnRequest" not in known
    with pytest.raises(ProducerFencedError):
        await bench.commit(1, 1)
    assert bench.cluster.sent == known


async def test_failure_ends_the_flushes_that_wait_too() -> None:
    """They would be transactions of a producer that is fenced."""
    bench, asked = await two()
    bench.cluster.troubles[TxnOffsetCommit] = [asked.refusing(FENCED, 0)]
    found = await asyncio.gather(bench.commit(1, 1), bench.commit(1, 1), return_exceptions=True)
    assert [type(each) for each in found] == [ProducerFencedError] * 2
    assert len(asked.requests) == 1


async def test_output_that_is_refused_is_aborted_and_ends_the_run() -> None:
    """It would be refused again."""
    bench, asked = await two()

    async def refuse(_cluster: ModelCluster, request: Any) -> Any:
        return SimpleNamespace(errors=[(t, [(n, 29) for n in each]) for t, each in request._topics])

    bench.cluster.troubles[AddPartitionsToTxnRequest] = [refuse]
    with pytest.raises(AdapterError, match="TopicAuthorizationFailed") as found:
        await bench.commit(1, 1)
    assert not isinstance(found.value, TransientAdapterError)
    assert "EndTxnRequest" in bench.cluster.sent
    assert asked.codes == []
    with pytest.raises(AdapterError):
        await bench.commit(1, 1)


async def test_failure_that_may_pass_is_the_reason_of_each_flush(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where it happened comes first."""
    monkeypatch.setattr(producers, "PATIENCE", 0.0)
    bench, asked = await two()

    async def break_down(_cluster: ModelCluster, _request: Any) -> Any:
        raise KafkaConnectionError("gone")

    bench.cluster.troubles[TxnOffsetCommit] = [break_down]
    assert await bench.commit(1, 1) == ["retry", "retry"]
    assert [str(code) for code in asked.codes] == ["a transaction: KafkaConnectionError: gone"] * 2
    assert await bench.commit(1, 1) == ["durable", "durable"]


async def test_error_of_this_program_is_aborted_first() -> None:
    """Nothing of the transaction may be seen, wherever it was; then the error flies."""
    bench, _asked = await two()

    async def fail(_cluster: ModelCluster, _request: Any) -> Any:
        raise ZeroDivisionError

    bench.cluster.troubles[TxnOffsetCommit] = [fail]
    with pytest.raises(ZeroDivisionError):
        await bench.commit(1, 1)
    assert bench.cluster.visible == []
    assert bench.cluster.sent[-2:] == ["EndTxnRequest", "InitProducerId"]
    with pytest.raises(ZeroDivisionError):
        await bench.commit(1, 1)


async def test_wait_that_is_cancelled_leaves_the_transaction_to_end() -> None:
    """The next one waits for that, and a closing consumer too."""
    bench, _asked = await two()
    go_on, is_asked = asyncio.Event(), asyncio.Event()

    async def wait(cluster: ModelCluster, request: Any) -> Any:
        is_asked.set()
        await go_on.wait()
        return await cluster.answer(request)

    bench.cluster.troubles[EndTxnRequest] = [wait]
    waiting = asyncio.ensure_future(bench.commit(1))
    await is_asked.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    bench.settle(1)
    later = asyncio.ensure_future(bench.commit(2))
    closing = asyncio.ensure_future(bench.transactions.aclose())
    await asyncio.sleep(0)
    assert bench.cluster.visible == []
    go_on.set()
    assert await later == ["durable"]
    await closing
    assert bench.cluster.visible == ["0:0", "0:1"]
    assert bench.cluster.is_closed
    await bench.transactions.aclose()
