"""Each output once for who reads ``read_committed``, whatever goes wrong in between."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
)

from consumer_sdk import Consumer, Message, RetryPolicy
from consumer_sdk.adapters import KafkaAdapter, KafkaTransactions
from consumer_sdk.adapters.kafka.commits.metadata import HEAD_SIZE, MOST, read_metadata
from consumer_sdk.adapters.kafka.commits.structs import TxnOffsetCommit
from consumer_sdk.adapters.kafka.dead_letters import KafkaDeadLetters
from consumer_sdk.adapters.kafka.transactions import producer as producers
from consumer_sdk.adapters.kafka.transactions.structs import InitProducerId
from consumer_sdk.errors import AdapterError, ConfigurationError, ProducerFencedError
from consumer_sdk.records import Outcome, Partition
from tests.adapters.kafka.harness import KafkaHarness
from tests.adapters.kafka.transactions.ledger import Stage, outputs_of, until
from tests.adapters.kafka.world import numbered

pytestmark = pytest.mark.kafka


@pytest.fixture
def stage(harness: KafkaHarness) -> Stage:
    """Topics of this test's own."""
    return Stage(harness)


def meddle(transactions: KafkaTransactions, kind: Any, trouble: Callable[[int, Any], Any]) -> None:
    """``trouble`` gets the number of each request of a kind, and what sends it; it returns the answer."""
    cluster = transactions._cluster
    assert cluster is not None
    real, count = cluster.send, 0

    async def send(to: Any, request: Any, **options: Any) -> Any:
        nonlocal count
        if not isinstance(request, kind):
            return await real(to, request, **options)
        count += 1
        return await trouble(count, lambda: real(to, request, **options))

    cluster.send = send  # type: ignore[method-assign]


class Meddled(KafkaTransactions):
    """Whose requests go wrong, from the opening on."""

    __slots__ = ("_kind", "_trouble")

    def __init__(self, name: str, kind: Any, trouble: Callable[[int, Any], Any]) -> None:
        super().__init__(name)
        self._kind, self._trouble = kind, trouble

    async def open(self, adapter: Any) -> None:
        await super().open(adapter)
        meddle(self, self._kind, self._trouble)


async def test_outputs_and_positions_are_committed_together(stage: Stage) -> None:
    """What a failed delivery has sent is in no transaction; key and headers arrive."""
    await stage.build(300, 2)

    async def handle(message: Message) -> None:
        await stage.echo(message)
        if message.position % 50 == 7 and message.attempt == 1:
            raise ValueError("again")

    consumer = stage.consumer(retry=RetryPolicy(initial=0.01))
    async with stage.running(handle, consumer) as task:
        await until(lambda: stage.is_at(300, 2), task)
    assert sorted(await stage.ledger()) == stage.marks(300, 2)
    assert len(stage.seen) == 2 * (300 + 6)
    record = (await outputs_of(stage.kafka.servers, stage.target))[0]
    assert record.headers == (("n", b"1"),)


async def test_positions_that_are_refused_abort_their_outputs(stage: Stage) -> None:
    """They are written again, and those of the first transaction are never seen."""
    await stage.build(100)
    refused = []

    async def trouble(number: int, send: Any) -> Any:
        answer = await send()
        if number == 1:
            refused.append(answer.topics)
            topic, partitions = answer.topics[0]
            answer.topics = [(topic, [(partition, 22) for partition, _code in partitions])]
        return answer

    transactions = Meddled(stage.name, TxnOffsetCommit, trouble)
    async with stage.running(transactions=transactions) as task:
        await until(lambda: stage.is_at(100), task)
    assert refused
    assert sorted(await stage.ledger()) == stage.marks(100)
    assert len(await stage.ledger(is_committed=False)) > 100
    assert len(stage.seen) == 100


@pytest.mark.parametrize("is_applied", [True, False])
async def test_commit_without_an_answer_is_asked_for_until_it_is_known(
    stage: Stage, *, is_applied: bool
) -> None:
    """Whether the broker has done it or not: nothing is written twice, and nothing is lost."""
    await stage.build(50)

    async def trouble(number: int, send: Any) -> Any:
        if number > 2:
            return await send()
        if is_applied:
            await send()
        raise KafkaConnectionError("the answer is lost")

    transactions = Meddled(stage.name, EndTxnRequest, trouble)
    async with stage.running(transactions=transactions) as task:
        await until(lambda: stage.is_at(50), task)
    assert sorted(await stage.ledger()) == stage.marks(50)
    assert len(stage.seen) == 50


class CutShort(Meddled):
    """Whose first flush is cancelled while it waits for the answer to the commit."""

    __slots__ = ("answers", "asked", "cancelled")

    def __init__(self, name: str) -> None:
        super().__init__(name, EndTxnRequest, self._hold)
        self.asked, self.answers, self.cancelled = asyncio.Event(), asyncio.Event(), 0

    async def _hold(self, number: int, send: Any) -> Any:
        answer = await send()
        if number == 1:
            self.asked.set()
            await self.answers.wait()
        return answer

    async def commit(self, flushes: Any) -> Any:
        task = asyncio.ensure_future(super().commit(flushes))
        if not self.cancelled:
            await self.asked.wait()
            self.cancelled += task.cancel()
            await asyncio.wait({task})
            self.answers.set()
            return [Outcome.retry(OSError("cut short"))] * len(flushes)
        return await task


REQUESTS = (
    *(InitProducerId, AddPartitionsToTxnRequest, ProduceRequest),
    *(AddOffsetsToTxnRequest, TxnOffsetCommit, EndTxnRequest),
)


@pytest.mark.parametrize(
    "seed, records",
    [(1, 400), *(pytest.param(n, 2_000, marks=pytest.mark.campaign) for n in range(2, 22))],
)
async def test_answers_that_are_lost_anywhere_leave_each_output_once(
    stage: Stage, seed: int, records: int
) -> None:
    """Of any request, before or after its effect; outputs of one key keep the order of their records."""
    await stage.build(records, 2)
    chance = random.Random(seed)

    async def trouble(_number: int, send: Any) -> Any:
        what = chance.random()
        answer = None if what < 0.1 else await send()
        if what < 0.2:
            raise KafkaConnectionError("the answer is lost")
        return answer

    async def handle(message: Message) -> None:
        await asyncio.sleep(chance.random() * 0.01)
        message.send(stage.target, stage.mark(message), key=message.partition.id.encode())

    transactions = Meddled(stage.name, REQUESTS, trouble)
    async with stage.running(handle, transactions=transactions, ordering="partition") as task:
        await until(lambda: stage.is_at(records, 2), task)
    found = await stage.ledger()
    assert sorted(found) == stage.marks(records, 2)
    for partition in "01":
        positions = [int(mark[2:]) for mark in found if mark.startswith(partition)]
        assert positions == sorted(positions)


async def test_flush_that_is_cancelled_does_not_write_its_outputs_again(stage: Stage) -> None:
    """The transaction goes on; the next flush has the same records, and waits for its end."""
    await stage.build(20)
    transactions = CutShort(stage.name)
    async with stage.running(transactions=transactions) as task:
        await until(lambda: stage.is_at(20), task)
    assert transactions.cancelled == 1
    assert sorted(await stage.ledger()) == stage.marks(20)
    assert len(await stage.ledger(is_committed=False)) == 20


async def test_second_consumer_of_a_transactional_id_fences_the_first(stage: Stage) -> None:
    """The first one ends with a typed error; each output is there once."""
    await stage.build(50, 2)
    run = stage.consumer().run(stage.echo, transactions=stage.transactions(), handle_signals=False)
    first = asyncio.create_task(run)
    await until(lambda: stage.is_at(50, 2), first)
    transactions = stage.transactions()
    async with stage.running(transactions=transactions) as second:
        await until(lambda: is_opened(transactions), second)
        for partition in range(2):
            await stage.kafka.append(stage.source, numbered(50, 60), partition)
        with pytest.raises(ProducerFencedError, match="an id of its own"):
            await first
        await until(lambda: stage.is_at(60, 2), second)
    assert sorted(await stage.ledger()) == stage.marks(60, 2)


async def is_opened(transactions: KafkaTransactions) -> bool:
    """It has fenced all others of its name."""
    return transactions._producer is not None and transactions._producer.producer.epoch >= 0


async def test_partition_that_is_lost_takes_its_outputs_with_it(stage: Stage) -> None:
    """Before its position is sent: the transaction is aborted, and the next owner writes them."""
    await stage.build(30)
    consumer = stage.consumer(adapter := stage.adapter())
    lost = asyncio.Event()

    async def trouble(number: int, send: Any) -> Any:
        if number == 1:
            lose_and_offer_again(adapter)
            lost.set()
        return await send()

    transactions = Meddled(stage.name, AddOffsetsToTxnRequest, trouble)
    async with stage.running(consumer=consumer, transactions=transactions) as task:
        await until(lambda: stage.is_at(30), task)
    assert lost.is_set()
    assert sorted(await stage.ledger()) == stage.marks(30)


def lose_and_offer_again(adapter: KafkaAdapter) -> None:
    """As if the session had ended, and the group had given the partitions back."""
    session = adapter.session
    for grant in list(session.grants):
        session._rounds.lose([grant])
        session.grants.offer(grant.again())
    session._rounds.wake()


async def test_outputs_above_a_hole_are_written_with_the_range_that_holds_their_record(
    stage: Stage,
) -> None:
    """A restart delivers the record of the hole alone."""
    await stage.build(40)
    hole = asyncio.Event()

    async def handle(message: Message) -> None:
        if message.position == 5 and not hole.is_set():
            await asyncio.Event().wait()
        await stage.echo(message)

    consumer = stage.consumer(drain_timeout=0.1)
    async with stage.running(handle, consumer, ordering="none") as task:
        await until(lambda: has_ranges(stage), task)
    assert sorted(await stage.ledger()) == sorted(set(stage.marks(40)) - {"0:5"})
    hole.set()
    async with stage.running(handle, ordering="none") as task:
        await until(lambda: stage.is_at(40), task)
    assert sorted(await stage.ledger()) == stage.marks(40)
    assert len(stage.seen) == 40


async def has_ranges(stage: Stage) -> bool:
    """All but record 5 are committed."""
    at = (await stage.commits()).get(0)
    if at is None:
        return False
    place: Any = {"group": f"{stage.group}-{stage.kafka.uid}", "identity": None}
    place["partition"] = Partition(stage.source, "0")
    committed, _ = read_metadata(at.metadata, at.offset, **place)
    return committed.checkpoint.ranges == ((6, 39),)


async def test_more_holes_than_a_commit_has_room_for_write_nothing_twice(stage: Stage) -> None:
    """What does not fit is not written either; a restart delivers it, and writes it once."""
    await stage.build(400)
    dice = random.Random(23)
    held = {position for position in range(400) if dice.random() < 0.5}
    release = asyncio.Event()

    async def handle(message: Message) -> None:
        if not release.is_set():
            adapter.session.limit.size = HEAD_SIZE + 20  # before anything is settled
        await stage.echo(message)
        if message.position in held:
            await release.wait()

    adapter = stage.adapter()
    consumer = stage.consumer(adapter, drain_timeout=0.1)
    async with stage.running(handle, consumer, ordering="none", concurrency=500) as task:
        await until(lambda: is_cut(consumer, 400 - len(held)), task)
    before = await stage.ledger()
    assert len(before) < 400 - len(held)
    release.set()
    async with stage.running(handle, ordering="none") as task:
        await until(lambda: stage.is_at(400), task)
    counts = Counter(await stage.ledger())
    assert [mark for mark, count in counts.items() if count > 1] == []
    assert sorted(counts) == stage.marks(400)


async def test_metadata_that_the_broker_refuses_is_made_smaller(stage: Stage) -> None:
    """Its limit was changed since it was asked for; the outputs come with the next transaction."""
    await stage.build(40)
    adapter = stage.adapter()
    size = MOST

    async def trouble(number: int, send: Any) -> Any:
        answer = await send()
        if number == 1:
            topic, partitions = answer.topics[0]
            answer.topics = [(topic, [(partition, 12) for partition, _code in partitions])]
        return answer

    transactions = Meddled(stage.name, TxnOffsetCommit, trouble)
    consumer = stage.consumer(adapter)
    async with stage.running(consumer=consumer, transactions=transactions) as task:
        await until(lambda: stage.is_at(40), task)
        size = adapter.session.limit.size
    assert size < MOST
    assert sorted(await stage.ledger()) == stage.marks(40)


async def is_held(consumer: Consumer) -> bool:
    """It has a partition."""
    return bool(consumer.stats().partitions)


async def is_cut(consumer: Consumer, settled: int) -> bool:
    """Some ranges did not fit, and so many records are settled."""
    stats = consumer.stats()
    return stats.truncated > 0 and stats.settled == settled


async def test_dead_letter_is_part_of_the_transaction(stage: Stage) -> None:
    """Its topic is created; the letter is there once, and the outputs of its deliveries are not."""
    await stage.build(20)

    async def handle(message: Message) -> None:
        await stage.echo(message)
        if message.position == 3:
            raise ValueError("never")

    letters = KafkaDeadLetters(f"{stage.target}-dlq", bootstrap_servers=stage.kafka.servers)
    retry = RetryPolicy(max_attempts=2, initial=0.01)
    consumer = stage.consumer(dead_letters=letters, retry=retry)
    async with stage.running(handle, consumer) as task:
        await until(lambda: stage.is_at(20), task)
    assert sorted(await stage.ledger()) == sorted(set(stage.marks(20)) - {"0:3"})
    (letter,) = await outputs_of(stage.kafka.servers, f"{stage.target}-dlq")
    assert dict(letter.headers)["dlq.position"] == b"3"
    assert letter.value == b"3"


async def test_output_that_is_too_large_for_its_topic_ends_the_consumer(stage: Stage) -> None:
    """The broker refuses it, and no retry would help; nothing of the transaction is seen."""
    await stage.build(5)
    stage.target = await stage.kafka.create_stream(1, max_message_bytes="2000")

    async def handle(message: Message) -> None:
        message.send(stage.target, bytes(5000))

    with pytest.raises(AdapterError, match=r"raise max\.message\.bytes"):
        async with stage.running(handle) as task:
            await asyncio.wait({task})
    assert await stage.ledger() == []
    assert await stage.committed() == {}


async def test_outputs_that_are_too_many_for_one_batch_are_cut(stage: Stage) -> None:
    """The topic takes small batches alone."""
    await stage.build(200)
    stage.target = await stage.kafka.create_stream(1, max_message_bytes="1000")
    async with stage.running() as task:
        await until(lambda: stage.is_at(200), task)
    assert sorted(await stage.ledger()) == stage.marks(200)


async def test_topic_that_does_not_exist_ends_the_consumer_and_is_not_created(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it is sure that no broker just hears of it late."""
    await stage.build(5)
    monkeypatch.setattr(producers, "TOPIC_PATIENCE", 0.2)
    stage.target = f"absent-{stage.source}"
    with pytest.raises(AdapterError, match="does not exist"):
        async with stage.running() as task:
            await asyncio.wait({task})
    assert stage.target not in await stage.kafka.admin.list_topics()


async def test_topics_that_are_named_are_looked_up_before_the_first_record(stage: Stage) -> None:
    """And an output to another one goes to the dead letters at once."""
    await stage.build(3)
    absent = f"absent-{stage.source}"
    with pytest.raises(ConfigurationError, match=f"{absent}.* does not exist"):
        async with stage.running(transactions=stage.transactions(topics=[absent])) as task:
            await asyncio.wait({task})
    assert stage.seen == []
    transactions = stage.transactions(topics=[stage.source])
    letters = KafkaDeadLetters(f"{stage.target}-dlq", bootstrap_servers=stage.kafka.servers)
    consumer = stage.consumer(dead_letters=letters)
    async with stage.running(consumer=consumer, transactions=transactions) as task:
        await until(lambda: stage.is_at(3), task)
    found = await outputs_of(stage.kafka.servers, f"{stage.target}-dlq")
    assert {dict(each.headers)["dlq.error-type"] for each in found} == {
        b"consumer_sdk.errors.OutputError"
    }
    assert len(stage.seen) == 3


async def test_timeout_that_the_broker_does_not_allow_is_refused(stage: Stage) -> None:
    """Before the first record."""
    await stage.build(3)
    with pytest.raises(ConfigurationError, match=r"transaction\.max\.timeout\.ms"):
        async with stage.running(transactions=stage.transactions(timeout=100_000.0)) as task:
            await asyncio.wait({task})
    assert stage.seen == []


async def test_consumer_that_is_open_before_it_runs_has_transactions_too(stage: Stage) -> None:
    """Its partitions are there already."""
    await stage.build(10)
    async with stage.consumer() as consumer:
        while not consumer.stats().partitions:
            await asyncio.sleep(0.02)
        async with stage.running(consumer=consumer) as task:
            await until(lambda: stage.is_at(10), task)
    assert sorted(await stage.ledger()) == stage.marks(10)
