"""`Consumer.run` with transactions: what handlers send is written once, and with the position of its record."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from consumer_sdk import (
    AdapterError,
    Batch,
    ConfigurationError,
    Consumer,
    Message,
    NoTransactionsError,
    OutputError,
    Reject,
)
from consumer_sdk.abc import Adapter, DeadLetters, Transactions
from consumer_sdk.adapters import KafkaAdapter, KafkaTransactions
from consumer_sdk.testing import FaultRates, Faults, MemoryAdapter, MemoryBroker, MemoryStore
from consumer_sdk.testing.memory import MemoryTransactions
from tests.runtime.bench import QUICK, Bench, bench


def written(b: Bench, stream: str = "out") -> list[str]:
    """The values of a stream, in order."""
    stored = b.broker.stream(stream).logs[0].stored()
    return [(record.value or b"").decode() for _position, record in sorted(stored.items())]


def texts(*values: int) -> list[str]:
    """As the handlers write them."""
    return [str(value) for value in values]


async def echo(message: Message) -> None:
    """Sends its value on."""
    assert message.send("out", message.value, key=message.key)


def prepare(b: Bench, records: int) -> None:
    """Records 0, 1, 2, …, and somewhere to write to."""
    b.broker.create_stream("out")
    b.append(*texts(*range(records)))


def test_outputs_are_written_with_their_records_and_not_before() -> None:
    """An unfinished handler's are not there, and the position stays below it."""

    async def test(b: Bench) -> None:
        prepare(b, 4)
        release = asyncio.Event()

        async def handle(message: Message) -> None:
            await echo(message)
            if message.value == b"1":
                await release.wait()

        consumer = b.consumer()
        run = consumer.run(handle, ordering="none", transactions=MemoryTransactions())
        running = asyncio.create_task(run)
        await asyncio.sleep(5)
        assert written(b) == texts(0, 2, 3)
        assert b.committed() == {"0": 1}
        release.set()
        await asyncio.sleep(5)
        assert written(b) == texts(0, 2, 3, 1)
        consumer.stop()
        await running

    bench(test)


def test_failed_delivery_leaves_nothing_and_its_retry_sends_anew() -> None:
    """Each attempt's outputs are its own; a rejected record has none."""

    async def test(b: Bench) -> None:
        prepare(b, 3)

        async def handle(message: Message) -> None:
            message.send("out", f"{message.position}:{message.attempt}".encode())
            if message.value == b"1" and message.attempt < 3:
                raise ValueError("again")
            if message.value == b"2":
                raise Reject("no")

        await b.run(b.consumer(), handle, transactions=MemoryTransactions())
        assert sorted(written(b)) == ["0:1", "1:3"]
        assert [letter.position for letter in b.letters.kept] == ["2"]

    bench(test)


def test_retry_that_sends_nothing_leaves_nothing_of_the_failed_delivery() -> None:
    """It settles the record, and not what was sent before it."""

    async def test(b: Bench) -> None:
        prepare(b, 2)

        async def handle(message: Message) -> None:
            if message.attempt == 1:
                await echo(message)
                if message.value == b"0":
                    raise ValueError("again")

        await b.run(b.consumer(), handle, transactions=MemoryTransactions())
        assert written(b) == ["1"]
        assert b.committed() == {"0": 2}

    bench(test)


def test_message_with_a_tree_sends_until_its_tree_is_done() -> None:
    """Its branches' work counts; a tree that fails drops what was sent."""

    async def test(b: Bench) -> None:
        prepare(b, 2)

        async def finish(message: Message, branch: Any) -> None:
            await asyncio.sleep(1)
            message.send("out", b"late " + (message.value or b""))
            if message.value == b"1" and message.attempt == 1:
                branch.fail("again")
            else:
                branch.ack()

        tasks = []

        async def handle(message: Message) -> None:
            await echo(message)
            with message.tree() as tree:
                tasks.append(asyncio.create_task(finish(message, tree.branch())))

        await b.run(b.consumer(), handle, transactions=MemoryTransactions())
        assert sorted(written(b)) == ["0", "1", "late 0", "late 1"]
        assert len(tasks) == 3

    bench(test)


def test_batch_sends_by_its_messages_and_only_the_wrong_one_is_given_up() -> None:
    """An output that cannot be written rejects its message; the others are tried again."""

    async def test(b: Bench) -> None:
        prepare(b, 4)

        async def handle(batch: Batch) -> None:
            for message in batch:
                wrong: Any = "text"
                message.send("out", wrong if message.value == b"2" else message.value)

        consumer = b.consumer()
        asyncio.get_running_loop().call_later(60, consumer.stop)
        await consumer.run(handle, batch_size=4, transactions=MemoryTransactions())
        assert sorted(written(b)) == texts(0, 1, 3)
        (letter,) = b.letters.kept
        assert (letter.position, letter.error_type) == ("2", "consumer_sdk.errors.OutputError")

    bench(test)


@pytest.mark.parametrize("seed", range(5))
def test_commits_that_fail_before_or_after_their_effect_write_nothing_twice(seed: int) -> None:
    """Each output is there once, also over crashes and rebalances."""

    async def test(b: Bench) -> None:
        prepare(b, 200)
        for _ in range(4):
            faults = Faults(
                b.simulation.random, rates={"commit": FaultRates(before=0.2, after=0.2)}
            )
            adapter = MemoryAdapter(b.broker, "s", group="g", faults=faults, metadata_size=150)
            consumer = Consumer(adapter, retry=QUICK, clock=b.simulation.clock)

            async def handle(message: Message) -> None:
                await asyncio.sleep(b.simulation.random.random())
                await echo(message)
                if b.simulation.random.random() < 0.05:
                    raise ValueError("again")

            run = consumer.run(
                handle, concurrency=8, ordering="none", transactions=MemoryTransactions()
            )
            running = asyncio.create_task(run)
            await asyncio.sleep(b.simulation.random.random() * 8)
            adapter.crash()
            running.cancel()
            await asyncio.wait({running})
        consumer = b.consumer()
        await b.run(consumer, echo, transactions=MemoryTransactions(), seconds=600)
        counts = Counter(written(b))
        assert {text: n for text, n in counts.items() if n > 1} == {}
        assert sorted(map(int, counts)) == list(range(200))

    bench(test, seed=seed)


def test_stop_while_transactions_are_opened_ends_the_run_at_once() -> None:
    """The broker may be busy with what a former consumer has left open."""

    class Slow(MemoryTransactions):
        async def open(self, adapter: Adapter) -> None:
            await super().open(adapter)
            await asyncio.sleep(3600)

    async def test(b: Bench) -> None:
        prepare(b, 3)
        consumer = b.consumer()
        await b.run(consumer, echo, transactions=Slow(), seconds=5)
        assert b.simulation.clock.monotonic() < 20
        assert consumer.stats().fetched == 0

    bench(test)


def test_stop_while_transactions_are_opened_waits_until_they_have_given_up() -> None:
    """What is closed next is in nobody's hands; they are closed in the end, as they always are."""
    calls: list[str] = []

    class Slow(MemoryTransactions):
        async def open(self, adapter: Adapter) -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                await asyncio.sleep(1)
                calls.append("given up")

        async def aclose(self) -> None:
            calls.append("closed")

    async def test(b: Bench) -> None:
        prepare(b, 3)
        await b.run(b.consumer(), echo, transactions=Slow(), seconds=5)

    bench(test)
    assert calls == ["given up", "closed"]


def test_transactions_that_cannot_be_opened_end_the_run() -> None:
    """With their error, before anything is fetched."""

    class Broken(MemoryTransactions):
        async def open(self, adapter: Adapter) -> None:
            raise AdapterError("no coordinator")

    async def test(b: Bench) -> None:
        prepare(b, 3)
        consumer = b.consumer()
        with pytest.raises(AdapterError, match="no coordinator"):
            await b.run(consumer, echo, transactions=Broken())
        assert consumer.stats().fetched == 0

    bench(test)


def test_dead_letters_are_offered_to_the_transactions() -> None:
    """They may write them with the position of their record."""
    offered: list[DeadLetters] = []

    class Noting(MemoryTransactions):
        def letters_of(self, destination: DeadLetters) -> Any:
            offered.append(destination)
            return super().letters_of(destination)

    async def test(b: Bench) -> None:
        prepare(b, 1)
        await b.run(b.consumer(), echo, transactions=Noting(), seconds=5)
        assert offered == [b.letters]

    bench(test)


def test_bytes_in_flight_have_the_outputs_in_them() -> None:
    """Until they are written."""

    async def test(b: Bench) -> None:
        prepare(b, 1)
        consumer = b.consumer()
        found: list[tuple[int, int]] = []

        async def handle(message: Message) -> None:
            before = consumer.stats().in_flight_bytes
            message.send("out", bytes(10_000))
            found.append((before, consumer.stats().in_flight_bytes))

        await b.run(consumer, handle, transactions=MemoryTransactions(), seconds=5)
        ((before, after),) = found
        assert 0 < before < 1000
        assert before + 10_000 <= after < before + 11_000
        assert consumer.stats().in_flight_bytes == 0

    bench(test)


def test_outputs_count_for_the_limit_of_bytes() -> None:
    """Those that wait for a hole to close hold the fetches back; those that need not wait are flushed at once."""

    async def test(b: Bench) -> None:
        prepare(b, 2_000)
        hold = asyncio.Event()

        async def handle(message: Message) -> None:
            message.send("out", bytes(10_000))
            if message.position == 0:
                await hold.wait()

        adapter = MemoryAdapter(b.broker, "s", group="g", metadata_size=0)
        consumer = Consumer(
            adapter,
            clock=b.simulation.clock,
            max_in_flight_bytes=1_000_000,
            fetch_records=50,
            flush_interval=3600,
        )
        run = consumer.run(handle, ordering="none", transactions=MemoryTransactions())
        running = asyncio.create_task(run)
        await asyncio.sleep(60)
        assert 90 < consumer.stats().fetched < 300
        assert written(b) == []
        hold.set()
        await asyncio.sleep(60)
        assert len(written(b)) > 1_800
        consumer.stop()
        await running
        assert len(written(b)) == 2_000

    bench(test)


def test_send_after_the_message_was_settled_is_an_error() -> None:
    """What is acked is acked: the output could not be committed with it."""

    async def test(b: Bench) -> None:
        prepare(b, 1)
        errors: list[Exception] = []

        async def handle(message: Message) -> None:
            message.ack()
            try:
                message.send("out", b"late")
            except OutputError as error:
                errors.append(error)

        await b.run(b.consumer(), handle, transactions=MemoryTransactions())
        assert "before you settle it" in str(errors[0])
        assert written(b) == []

    bench(test)


def test_send_after_the_ack_that_nobody_catches_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """The record is settled, so that nothing is rejected or tried again: the output would be lost in silence."""

    async def test(b: Bench) -> None:
        prepare(b, 1)

        async def handle(message: Message) -> None:
            message.ack()
            message.send("out", b"late")

        await b.run(b.consumer(), handle, transactions=MemoryTransactions())
        assert b.letters.kept == []

    bench(test)
    (told,) = [r.getMessage() for r in caplog.records if "before you settle it" in r.getMessage()]
    assert "is not written" in told


def test_send_without_transactions_ends_the_consumer_and_dead_letters_nothing() -> None:
    """It would fail with every record; the same for what is pulled."""

    async def test(b: Bench) -> None:
        prepare(b, 3)
        consumer = b.consumer()
        with pytest.raises(NoTransactionsError, match="KafkaTransactions"):
            await b.run(consumer, echo)
        assert b.letters.kept == []
        assert b.committed() == {}
        async with b.consumer() as pulled:
            message = await anext(pulled)
            with pytest.raises(NoTransactionsError):
                message.send("out", b"")

    bench(test)


@pytest.mark.parametrize(
    "sent",
    [
        {"topic": ""},
        {"topic": None},
        {"value": "text"},
        {"key": 5},
        {"headers": {"a": b""}},
        {"headers": [("a", "text")]},
        {"headers": "ab"},
        {"headers": [("\ud800", b"")]},
        {"topic": "\ud800"},
    ],
)
def test_output_that_is_no_record_is_a_typed_error(sent: dict[str, Any]) -> None:
    """And its record goes to the dead letters at its first delivery."""

    async def test(b: Bench) -> None:
        prepare(b, 1)

        async def handle(message: Message) -> None:
            b.seen.append(message)
            given: dict[str, Any] = {"topic": "out", "value": b""} | sent
            message.send(given.pop("topic"), given.pop("value"), **given)

        await b.run(b.consumer(), handle, transactions=MemoryTransactions())
        assert len(b.seen) == 1
        assert "message.send(" in b.letters.kept[0].error

    bench(test)


KAFKA: dict[str, Any] = {"bootstrap_servers": "127.0.0.1:1"}


def consumers() -> dict[str, tuple[Consumer, Any, str]]:
    """What is refused → the consumer, its transactions, and what the error says."""
    broker = MemoryBroker()
    broker.create_stream("s")
    kafka = KafkaAdapter("s", group="g", **KAFKA)
    kept: Any = "transactions"
    return {
        "a store": (Consumer(kafka, store=MemoryStore()), KafkaTransactions("a"), "store=Memory"),
        "alone": (Consumer(KafkaAdapter("s", **KAFKA)), KafkaTransactions("a"), "group=…"),
        "a queue": (
            Consumer(MemoryAdapter(broker, "s", group="g", subscription="shared")),
            MemoryTransactions(),
            "a queue has no position",
        ),
        "a share group": (
            Consumer(KafkaAdapter("s", share_group="g", **KAFKA)),
            KafkaTransactions("a"),
            "a queue has no position",
        ),
        "another broker": (
            Consumer(MemoryAdapter(broker, "s", group="g")),
            KafkaTransactions("a"),
            "the adapter reads memory",
        ),
        "no transactions": (Consumer(kafka), kept, "KafkaTransactions"),
    }


@pytest.mark.parametrize("case", consumers())
async def test_transactions_that_cannot_work_are_refused_before_anything_is_opened(
    case: str,
) -> None:
    """Nothing is fetched or connected to."""
    consumer, transactions, says = consumers()[case]
    with pytest.raises(ConfigurationError, match=says):
        await consumer.run(echo, transactions=transactions)
    assert consumer.state == "new"


@pytest.mark.parametrize(
    "options",
    [
        {"transactional_id": " "},
        {"timeout": 0},
        {"topics": "invoices"},
        {"max_output_bytes": 0},
        {"compression": "brotli"},
    ],
)
def test_options_of_transactions_are_checked(options: dict[str, Any]) -> None:
    """Each says what it takes."""
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        KafkaTransactions(**({"transactional_id": "a"} | options))


def test_output_beyond_the_limit_or_to_another_topic_is_refused_where_it_is_sent() -> None:
    """Before it is kept."""
    from consumer_sdk.records.outputs import Output

    transactions: Transactions = KafkaTransactions("a", topics=["out"], max_output_bytes=100)
    transactions.check_output(Output.make("out", b"small"))
    with pytest.raises(OutputError, match="max_output_bytes allows 100"):
        transactions.check_output(Output.make("out", bytes(100)))
    with pytest.raises(OutputError, match="names other topics: out"):
        transactions.check_output(Output.make("in", b""))
