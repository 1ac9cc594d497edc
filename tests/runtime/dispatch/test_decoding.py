"""``decode=``: when a body is made, and what becomes of a record that has none."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from consumer_sdk import Batch, Consumer, Message, Reject, Retry, RetryPolicy
from consumer_sdk.errors import (
    ConfigurationError,
    HandlerError,
    TransientSchemaRegistryError,
    UnknownSchemaError,
)
from consumer_sdk.runtime.dispatch.decoding import body_reader, prepared_handler
from consumer_sdk.testing import MemoryAdapter, MemoryBroker, Simulation, deliver, simulate
from tests.runtime.bench import Bench, bench

ONCE = RetryPolicy(max_attempts=2, initial=0.1)


def test_body_is_made_once_and_when_it_is_asked_for() -> None:
    """A handler that does not look costs no decoding."""
    made: list[bytes] = []

    def decode(data: bytes) -> Any:
        made.append(data)
        return json.loads(data)

    async def handle(message: Message) -> None:
        if message.value != b"1":
            assert message.body is message.body

    assert deliver(handle, [1], 1, None, decode=decode).acked == [[1], 1, None]
    assert made == [b"[1]"]


async def test_without_a_decoder_the_body_is_the_value_and_the_handler_its_own() -> None:
    """So nothing is paid for what is not used."""

    async def handle(message: Message) -> None:
        assert message.body is message.value

    assert prepared_handler(handle, None, takes_batch=False) is handle
    assert prepared_handler(handle, json.loads, takes_batch=False) is handle
    assert prepared_handler(handle, None, takes_batch=True) is handle
    delivered = await asyncio.to_thread(deliver, handle, 1)
    assert delivered.acked == [1]


def test_value_that_cannot_be_decoded_is_rejected_as_it_is() -> None:
    """At its first delivery, with the decoder's error, and its raw bytes kept."""

    async def handle(message: Message) -> None:
        assert message.body == 1

    delivered = deliver(handle, 1, b"{", decode=json.loads)
    (letter,) = delivered.dead
    assert (delivered.acked, delivered.retried) == ([1], [])
    assert (letter.value, letter.attempts) == (b"{", 1)
    assert letter.error.startswith("the value cannot be decoded: JSONDecodeError: ")
    assert letter.error_type == "json.decoder.JSONDecodeError"


def test_each_delivery_has_a_body_of_its_own() -> None:
    """A handler may change what it was given, and fail then."""

    async def handle(message: Message) -> None:
        message.body.append(2)
        if message.attempt == 1:
            raise ValueError("again")
        assert message.body == [1, 2]

    assert deliver(handle, [1], decode=json.loads).retried == [[1]]


def test_message_with_an_open_tree_has_its_body() -> None:
    """Whoever holds it."""

    async def handle(message: Message) -> None:
        with message.tree():
            assert message.body == {"amount": 1}

    assert deliver(handle, {"amount": 1}, decode=json.loads).acked == [{"amount": 1}]


def test_batch_gets_what_could_be_decoded() -> None:
    """One bad record takes no other with it; one that has nothing else calls nobody."""
    batches: list[list[Any]] = []

    async def handle(batch: Batch) -> None:
        batches.append([message.body for message in batch])

    delivered = deliver(handle, 1, b"{", 2, decode=json.loads, batch_size=3)
    assert (batches, delivered.acked) == ([[1, 2]], [1, 2])
    assert [letter.value for letter in delivered.dead] == [b"{"]
    assert len(deliver(handle, b"{", decode=json.loads, batch_size=3).dead) == 1
    assert len(batches) == 1


def test_outage_for_one_record_of_a_batch_leaves_its_neighbours_alone() -> None:
    """They are handled at once; the record alone is retried, and given up in the end."""

    def decode(data: bytes) -> Any:
        if data == b"9":
            raise OSError("away")
        return json.loads(data)

    async def handle(batch: Batch) -> None:
        assert [message.attempt for message in batch] == [1] * len(batch)

    retry = RetryPolicy(jitter=0)
    delivered = deliver(handle, 9, 1, 2, 3, decode=decode, batch_size=4, retry=retry)
    assert delivered.acked == [1, 2, 3]
    assert [letter.value for letter in delivered.dead] == [b"9"]
    assert set(delivered.retried) == {9}


def ordered(
    *values: bytes, lasts: float, limit: int | None = None
) -> tuple[list[list[tuple[int, int]]], float, int]:
    """Batches of a partition whose value ``2`` cannot be decoded in its first delivery.

    Args:
        lasts: seconds of each call of the handler.
        limit: of records, after which the consumer is stopped.

    Returns:
        each batch's values and attempts; the seconds that it took; and how many records it settled.
    """
    batches: list[list[tuple[int, int]]] = []
    failures = [OSError("away")]

    def decode(data: bytes) -> Any:
        if data == b"2" and failures:
            raise failures.pop()
        return json.loads(data)

    async def main(simulation: Simulation) -> tuple[float, int]:
        broker = MemoryBroker()
        broker.create_stream("orders")
        broker.append_all("orders", values)
        adapter = MemoryAdapter(broker, "orders", group="g")
        consumer = Consumer(
            adapter, decode=decode, clock=simulation.clock, drain_timeout=5.0, retry=ONCE
        )

        async def handle(batch: Batch) -> None:
            batches.append([(message.body, message.attempt) for message in batch])
            if sum(map(len, batches)) >= (limit or len(values)):
                consumer.stop()
            await asyncio.sleep(lasts)

        began = simulation.clock.monotonic()
        await consumer.run(handle, batch_size=4, ordering="partition")
        return simulation.clock.monotonic() - began, consumer.stats().settled

    return batches, *simulate(main)


@pytest.mark.parametrize("lasts", [0.0, 1.0])
def test_records_behind_one_that_is_retried_wait_for_it_uncounted(lasts: float) -> None:
    """In their order, and with their first delivery still to come."""
    batches, _took, settled = ordered(b"1", b"2", b"3", b"4", b"5", lasts=lasts)
    assert [each for batch in batches for each in batch] == [(1, 1), (2, 2), (3, 1), (4, 1), (5, 1)]
    assert batches[0] == [(1, 1)]
    assert settled == 5


@pytest.mark.parametrize("lasts", [0.0, 1.0])
def test_records_that_went_back_keep_no_drain_waiting(lasts: float) -> None:
    """Nobody was handed them: the consumer ends with its handler, and they are delivered again."""
    batches, took, settled = ordered(b"1", b"2", b"3", lasts=lasts, limit=1)
    assert batches == [[(1, 1)]]
    assert took < 4
    assert settled == 1


@pytest.mark.parametrize("error", [OSError("away"), TransientSchemaRegistryError("away")])
def test_outage_is_no_bad_record(error: Exception) -> None:
    """The delivery has failed, and is made again."""
    errors = [error]

    def decode(data: bytes) -> Any:
        if errors:
            raise errors.pop()
        return json.loads(data)

    async def handle(message: Message) -> None:
        assert message.body == 1

    delivered = deliver(handle, 1, decode=decode)
    assert (delivered.acked, delivered.retried, delivered.dead) == ([1], [1], [])


@pytest.mark.parametrize(
    "error, retried, dead",
    [(Retry("later"), [1], 1), (Reject("no"), [], 1), (UnknownSchemaError("7"), [], 1)],
)
def test_decoder_may_choose(error: Exception, retried: list[Any], dead: int) -> None:
    """By the errors of a handler; a schema that nobody knows will not be known."""

    def decode(_data: bytes) -> Any:
        raise error

    async def handle(message: Message) -> None:
        _ = message.body

    delivered = deliver(handle, 1, decode=decode, retry=ONCE)
    assert (delivered.retried, len(delivered.dead)) == (retried, dead)


class Asking:
    """A decoder that has to ask before its first value, and fails to at first."""

    def __init__(self) -> None:
        self.errors = [OSError("away")]
        self.asked: list[bytes] = []
        self.is_known = False

    def __call__(self, data: bytes) -> Any:
        assert self.is_known
        return json.loads(data)

    def prepare(self, data: bytes) -> Awaitable[None] | None:
        return None if self.is_known else self._ask(data)

    async def _ask(self, data: bytes) -> None:
        await asyncio.sleep(1)
        self.asked.append(data)
        if self.errors:
            raise self.errors.pop()
        self.is_known = True


@pytest.mark.parametrize("batch_size", [None, 5])
def test_decoder_is_prepared_before_the_handler(batch_size: int | None) -> None:
    """Awaited in the delivery; what it raises fails that. A tombstone asks for nothing."""

    async def handle(given: Message | Batch) -> None:
        bodies = [each.body for each in (given if isinstance(given, Batch) else [given])]
        assert set(bodies) <= {None, 1, 2}

    decode = Asking()
    delivered = deliver(handle, None, 1, 2, decode=decode, batch_size=batch_size)
    assert len(delivered.acked) == 3
    assert delivered.retried == [1]
    assert decode.asked[0] == b"1"
    assert delivered.dead == []


def test_pulled_message_has_a_body_too() -> None:
    """Whoever pulls catches the error."""

    async def main(simulation: Simulation) -> list[Any]:
        broker = MemoryBroker()
        broker.create_stream("orders")
        broker.append_all("orders", [b"1", b"{"])
        bodies: list[Any] = []
        consumer = Consumer(
            MemoryAdapter(broker, "orders", group="g"), decode=json.loads, clock=simulation.clock
        )
        async with consumer:
            async for message in consumer:
                try:
                    bodies.append(message.body)
                except Reject as error:
                    bodies.append(str(error))
                message.ack()
                if len(bodies) == 2:
                    break
        return bodies

    assert simulate(main) == [1, "the value cannot be decoded"]


async def decode_later(data: bytes) -> Any:
    """No decoder: nobody would await it."""
    return json.loads(data)


class Later:
    """Another one."""

    async def __call__(self, data: bytes) -> Any:
        """Of the same kind."""


@pytest.mark.parametrize("decode", ["json", 3, decode_later, Later()])
def test_what_is_no_function_of_bytes_is_refused(decode: Any) -> None:
    """When the consumer is made."""
    with pytest.raises(ConfigurationError, match=r"decode=.*give a function of bytes, not async"):
        Consumer(MemoryAdapter(MemoryBroker(), "orders", group="g"), decode=decode)


@pytest.mark.parametrize("batch_size", [None, 2])
def test_decoder_that_returns_a_coroutine_ends_the_run(batch_size: int | None) -> None:
    """Nobody would await it: no record is to go to the dead letters for that."""

    async def handle(given: Message | Batch) -> None:
        _ = [each.body for each in (given if isinstance(given, Batch) else [given])]

    with pytest.raises(HandlerError, match="returned a coroutine"):
        deliver(handle, 1, 2, decode=lambda data: decode_later(data), batch_size=batch_size)


async def test_coroutine_of_a_decoder_is_closed() -> None:
    """Else Python warns of it, at whatever moment it is freed."""
    made = decode_later(b"1")
    with pytest.raises(HandlerError, match="returned a coroutine"):
        body_reader(lambda _: made)(b"1")
    assert inspect.getcoroutinestate(made) == "CORO_CLOSED"


@pytest.mark.parametrize("batch_size", [None, 2])
def test_coroutine_that_a_handler_returns_behind_a_prepared_decoder_ends_the_run(
    batch_size: int | None,
) -> None:
    """As without one: its work was not done."""

    async def handle(_given: Message | Batch) -> Any:
        return decode_later(b"1")

    decode = AsksEach(lambda _: asyncio.sleep(0))
    with pytest.raises(HandlerError, match="which nobody awaits"):
        deliver(handle, 1, 2, decode=decode, batch_size=batch_size)


class AsksEach:
    """A decoder that asks before each value is decoded.

    Args:
        answer: called with the value; what it raises is raised.
    """

    def __init__(self, answer: Callable[[bytes], Awaitable[None]]) -> None:
        self.prepare = answer

    def __call__(self, data: bytes) -> Any:
        """The value, as JSON."""
        return json.loads(data)


def test_what_is_lost_while_a_batch_is_prepared_is_not_handled() -> None:
    """Another consumer processes it; what else the batch holds is handled."""
    seen: list[tuple[bytes | None, bool]] = []

    async def test(b: Bench) -> None:
        b.broker.append("s", b"1", partition=0)
        b.broker.append("s", b"2", partition=1)
        consumer = b.consumer(decode=AsksEach(lambda _: asyncio.sleep(5)))

        async def handle(batch: Batch) -> None:
            seen.extend((m.value, m.holder.is_closed) for m in batch)  # type: ignore[attr-defined]
            consumer.stop()

        def lose() -> None:
            engine: Any = consumer._engine
            (lost,) = [h for h in engine.holdings.values() if h.assignment.partition.id == "0"]
            engine._assignments.fenced(lost, None)

        asyncio.get_running_loop().call_later(2, lose)
        await consumer.run(handle, batch_size=10, batch_wait=0.5, handle_signals=False)

    bench(test, partitions=2)
    assert (b"1", True) not in seen
    assert (b"2", False) in seen


def test_cancelled_question_of_a_decoder_is_a_failure_of_that_record_alone() -> None:
    """As where several share one question: no lane stands still, and none is handled twice."""
    failures = [(b"9", asyncio.CancelledError), (b"1", OSError)]

    async def answer(data: bytes) -> None:
        if failures and failures[-1][0] == data:
            raise failures.pop()[1]

    seen: list[int] = []

    async def test(b: Bench) -> None:
        for value in (b"1", b"2", b"3"):
            b.broker.append("s", value, key=b"k", partition=0)
        b.broker.append("s", b"9", key=b"z", partition=0)
        consumer = b.consumer(decode=AsksEach(answer))

        async def handle(batch: Batch) -> None:
            seen.extend(message.body for message in batch)
            if len(seen) == 4:
                consumer.stop()

        await consumer.run(handle, batch_size=4, batch_wait=0.5, handle_signals=False)

    bench(test)
    assert sorted(seen) == [1, 2, 3, 9]
    assert [each for each in seen if each < 9] == [1, 2, 3]


@pytest.mark.parametrize("batch_size", [None, 2])
def test_question_of_a_decoder_that_a_drain_ends_is_no_failed_delivery(
    batch_size: int | None,
) -> None:
    """The record stays as it is, and is delivered again: it had one attempt, and no dead letter."""

    async def test(b: Bench) -> None:
        b.append("1")
        retry = RetryPolicy(max_attempts=1)
        decode = AsksEach(lambda _: asyncio.sleep(1000))
        consumer = b.consumer(decode=decode, retry=retry, drain_timeout=1.0)

        async def handle(given: Message | Batch) -> None:
            raise AssertionError(given)

        await b.run(consumer, handle, seconds=5, batch_size=batch_size)
        assert (consumer.stats().failed, b.letters.kept) == (0, [])
        assert b.committed() in ({}, {"0": 0})

    bench(test)
