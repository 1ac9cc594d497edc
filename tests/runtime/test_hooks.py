"""What an application is told of each message, and when."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

import pytest

from consumer_sdk import (
    Batch,
    ConfigurationError,
    Consumer,
    ConsumerClosedError,
    Hooks,
    Message,
    Ordering,
    Partition,
    Reject,
    RetryPolicy,
)
from consumer_sdk.records import Assignment
from consumer_sdk.runtime.hooks import SafeHooks
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing import MemoryAdapter, MemoryBroker
from tests.runtime.bench import Bench, Letters, bench


class Told(Hooks):
    """Keeps what it is told, as (what, value, attempt), and further words."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.last: Message | None = None

    def _add(self, what: str, message: Message, *rest: object) -> None:
        self.last = message
        self.calls.append((what, (message.value or b"").decode(), message.attempt, *rest))

    def settled(self, message: Message) -> None:
        self._add("settled", message)

    def retried(self, message: Message, error: BaseException | str, delay: float) -> None:
        self._add("retried", message, str(error), round(delay, 6))

    def expired(self, message: Message) -> None:
        self._add("expired", message)

    def dead_lettered(self, message: Message, error: BaseException | str) -> None:
        self._add("dead_lettered", message, str(error))

    def tree_failed(self, message: Message, error: BaseException | str) -> None:
        self._add("tree_failed", message, error)


class _CountsSettled(Hooks):
    """Wants to be told of one thing only."""

    def __init__(self) -> None:
        self.count = 0

    def settled(self, message: Message) -> None:
        self.count += 1


def test_each_way_to_ack_tells_every_message_once() -> None:
    """Alone, in a batch, cumulatively: never a duplicate, and never what was not settled."""

    async def test(b: Bench) -> None:
        told = Told()
        b.append(*"012345")
        async with b.consumer(hooks=told) as consumer:
            messages = [await anext(consumer) for _ in range(6)]
            assert messages[1].ack()
            assert not messages[1].ack()
            assert Batch(messages[:2]).ack() == 1
            assert messages[3].ack_cumulative()
            assert not messages[2].ack()
            assert not messages[3].ack_cumulative()
            assert Batch(messages[2:5]).ack() == 1
            asyncio.get_running_loop().call_later(1, messages[5].ack)
        # The last one during the drain of the close.
        assert told.calls == [("settled", n, 1) for n in "102345"]
        assert not messages[5].ack()
        assert len(told.calls) == 6

    bench(test)


def test_handler_that_returns_fails_and_rejects_is_told_with_the_delivery() -> None:
    """A redelivery is told with its own attempt; a dead letter when it is durable."""

    async def test(b: Bench) -> None:
        told = Told()
        b.append("good", "bad", "worse")
        error = ValueError("no")

        async def handle(message: Message) -> None:
            if message.value == b"worse":
                raise Reject("never")
            if message.value == b"bad" and message.attempt < 3:
                raise error

        await b.run(b.consumer(hooks=told), handle)
        assert told.calls == [
            ("settled", "good", 1),
            ("retried", "bad", 1, "no", 1.0),
            ("dead_lettered", "worse", 1, "never"),
            ("retried", "bad", 2, "no", 2.0),
            ("settled", "bad", 3),
        ]

    bench(test)


def test_record_at_its_limit_is_told_when_its_dead_letter_is_durable() -> None:
    """Not before: while the dead letters are down nothing has become of it."""

    async def test(b: Bench) -> None:
        told = Told()
        b.append("x")
        b.letters = Letters(failures=5)
        async with b.consumer(hooks=told, retry=RetryPolicy(max_attempts=1)) as consumer:
            (await anext(consumer)).nack(reason="no use")
            await asyncio.sleep(0.2)
            assert told.calls == []
            await asyncio.sleep(20)
            assert told.calls == [("dead_lettered", "x", 1, "no use")]

    bench(test)


def test_delivery_that_times_out_is_told_before_what_becomes_of_it() -> None:
    """A late ack tells the delivery that was handed out last."""

    async def test(b: Bench) -> None:
        told = Told()
        b.append("x")
        async with b.consumer(hooks=told, ack_timeout=5) as consumer:
            first = await anext(consumer)
            again = await anext(consumer)
            assert first.ack()
            assert told.last is again
            assert not again.ack()
        assert told.calls == [
            ("expired", "x", 1),
            ("retried", "x", 1, "the ack timeout passed", 1.0),
            ("settled", "x", 2),
        ]

    bench(test)


def test_settled_is_told_at_once_and_not_when_it_is_durable() -> None:
    """Durability has its own awaitables."""

    async def test(b: Bench) -> None:
        told = Told()
        b.append("x")
        async with b.consumer(hooks=told, flush_interval=100) as consumer:
            (await anext(consumer)).ack()
            assert told.calls == [("settled", "x", 1)]
            assert b.committed().get("0", 0) == 0

    bench(test)


def test_restored_retries_are_told_like_any_other() -> None:
    """Held, due at once, at the limit, or settled before the restart: the last is not told."""

    async def test(b: Bench) -> None:
        told, store = Told(), MemoryStore()
        b.append("held", "due", "settled", "spare")
        async with b.consumer(store=store, drain_timeout=0.1) as consumer:
            messages = [await anext(consumer) for _ in range(4)]
            messages[0].nack(30.0)
            messages[1].nack(0.0)
            messages[2].ack()
        async with b.consumer(hooks=told, store=store) as consumer:
            due, spare = await anext(consumer), await anext(consumer)
            assert (due.value, due.attempt) == (b"due", 2)
            assert spare.ack_cumulative()  # spares what waits for its retry, unseen
            held = await anext(consumer)
            assert held.ack()
        assert told.calls == [
            ("settled", "due", 2),
            ("settled", "spare", 1),
            ("settled", "held", 2),
        ]

    bench(test)


@pytest.mark.parametrize("ordering", list(Ordering))
def test_retry_from_before_a_restart_is_told_with_its_attempt(ordering: Ordering) -> None:
    """In `run()` too, whether it is due at once or later."""

    async def test(b: Bench) -> None:
        told, store = Told(), MemoryStore()
        b.append("k=due", "k=later")
        async with b.consumer(store=store, drain_timeout=0.1) as consumer:
            (await anext(consumer)).nack(0.0)
            (await anext(consumer)).nack(30.0)
        await b.run(b.consumer(hooks=told, store=store), ordering=ordering)
        assert told.calls == [("settled", "due", 2), ("settled", "later", 2)]

    bench(test)


def test_record_at_its_limit_before_a_restart_is_told_once_it_is_buried() -> None:
    """A lower limit after the restart: nobody is handed the record, and yet it has an end."""

    async def test(b: Bench) -> None:
        told, store = Told(), MemoryStore()
        b.append("x")
        async with b.consumer(store=store, drain_timeout=0.1) as consumer:
            (await anext(consumer)).nack(0.0)
        limited = b.consumer(store=store, hooks=told, retry=RetryPolicy(max_attempts=1))
        await b.run(limited, seconds=5)
        assert b.seen == []
        assert [call[:2] for call in told.calls] == [("dead_lettered", "x")]

    bench(test)


def test_hook_that_raises_is_logged_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Not even by a cancellation of its own."""

    class _Broken(Told):
        def settled(self, message: Message) -> None:
            super().settled(message)
            raise asyncio.CancelledError

        def retried(self, message: Message, error: BaseException | str, delay: float) -> None:
            raise OSError("no queue")

    async def test(b: Bench) -> None:
        told = _Broken()
        b.append(*"012")
        async with b.consumer(hooks=told) as consumer:
            messages = [await anext(consumer) for _ in range(3)]
            assert messages[0].nack(1.0)
            assert messages[2].ack_cumulative()
            assert len(told.calls) == 3
        assert b.committed() == {"0": 3}

    with caplog.at_level(logging.ERROR):
        bench(test)
    found = [record.getMessage() for record in caplog.records]
    assert len(found) == 4
    assert "a hook failed: " in found[0]
    assert "_Broken.retried(<Message s/0@0 attempt=1 bytes=1>, 'nacked', 1.0)" in found[0]


def test_hook_that_settles_other_messages_is_told_of_them_too() -> None:
    """A hook may call back: everything is in order before it is called."""

    async def test(b: Bench) -> None:
        class _Acks(Told):
            def settled(self, message: Message) -> None:
                super().settled(message)
                messages[0].ack_cumulative()
                message.nack()

        told = _Acks()
        b.append(*"012")
        async with b.consumer(hooks=told) as consumer:
            messages = [await anext(consumer) for _ in range(3)]
            messages[2].ack()
            messages[1].ack()
        assert [call[1] for call in told.calls] == ["2", "0", "1"]

    bench(test)


def test_closed_assignment_tells_nothing_and_holds_no_message() -> None:
    """What was not settled is delivered again, perhaps elsewhere."""

    async def test(b: Bench) -> None:
        told = Told()
        b.append(*"01")
        async with b.consumer(hooks=told, drain_timeout=0.1) as consumer:
            messages = [await anext(consumer) for _ in range(2)]
            (holding,) = consumer._engine.holdings.values()
            assert holding.messages is not None
            assert holding.messages.get(0) is messages[0]
        assert holding.messages.get(0) is None
        assert Batch(messages).ack() == 0
        assert not messages[1].ack_cumulative()
        assert told.calls == []

    bench(test)


def test_memory_of_messages_follows_what_is_unsettled() -> None:
    """A million settled messages leave nothing behind; one that is given up, neither."""

    async def test(b: Bench) -> None:
        b.append(*"0123")
        hooks = _CountsSettled()
        async with b.consumer(hooks=hooks) as consumer:
            messages = [await anext(consumer) for _ in range(4)]
            (holding,) = consumer._engine.holdings.values()
            assert holding.messages is not None
            messages[0].ack()
            messages[1].reject()
            messages[3].ack_cumulative()
            assert [holding.messages.get(index) for index in range(4)] == [None] * 4
            assert hooks.count == 3

    bench(test)


async def test_without_hooks_an_ack_is_the_trackers_own() -> None:
    """Nothing is paid for what nobody asked for; the first after a fetch notes its partition."""
    broker = MemoryBroker()
    broker.create_stream("s")
    broker.append_all("s", [b"x", b"y"])
    async with Consumer(MemoryAdapter(broker, "s", group="g")) as consumer:
        first, second = await anext(consumer), await anext(consumer)
        (holding,) = consumer._engine.holdings.values()
        assert first.ack()
        assert holding.ack == holding.tracker.ack
        assert second.ack()


async def test_forked_child_is_refused_with_hooks_too() -> None:
    """The parent's hooks would be told of what the parent never settled."""
    broker, told = MemoryBroker(), Told()
    broker.create_stream("s")
    broker.append("s", b"x")
    async with Consumer(MemoryAdapter(broker, "s", group="g"), hooks=told) as consumer:
        message = await anext(consumer)
        child = os.fork()
        if not child:
            refused = 0
            for settle in (message.ack, Batch([message]).ack, message.ack_cumulative):
                try:
                    settle()
                except ConsumerClosedError:
                    refused += 1
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        assert message.ack()


def test_hooks_that_cannot_work_are_refused_when_the_consumer_is_built() -> None:
    """A missing method, or one that nobody awaits, is named."""

    class _Async(Told):
        async def settled(self, message: Message) -> None:  # type: ignore[override]  # on purpose
            """Nobody awaits it."""

    broker = MemoryBroker()
    broker.create_stream("s")
    adapter = MemoryAdapter(broker, "s", group="g")
    with pytest.raises(ConfigurationError, match=r"no method settled\(\).*inherit from"):
        Consumer(adapter, hooks=object())  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ConfigurationError, match=r"settled\(\) is 'async def'"):
        Consumer(adapter, hooks=_Async())
    with pytest.raises(ConfigurationError, match="hooks=Told is the class itself"):
        Consumer(adapter, hooks=Told)  # type: ignore[arg-type]  # on purpose


def test_each_hook_is_called_with_what_it_was_told() -> None:
    """By way of what catches its errors."""
    told: list[tuple[object, ...]] = []

    class Recorded:
        def __getattr__(self, name: str) -> Any:
            return lambda *given: told.append((name, *given))

    recorded: Any = Recorded()
    hooks, error = SafeHooks(recorded), OSError()
    message = Message.make(Assignment(Partition("s", "0"), 1), 0, b"")
    hooks.settled(message)
    hooks.retried(message, error, 1.0)
    hooks.expired(message)
    hooks.dead_lettered(message, error)
    hooks.tree_failed(message, error)
    hooks.partitions_assigned([message.partition])
    hooks.partitions_revoked([message.partition])
    assert told == [
        ("settled", message),
        ("retried", message, error, 1.0),
        ("expired", message),
        ("dead_lettered", message, error),
        ("tree_failed", message, error),
        ("partitions_assigned", [message.partition]),
        ("partitions_revoked", [message.partition]),
    ]


@pytest.mark.parametrize("ordering", list(Ordering))
def test_every_record_of_a_run_ends_once(ordering: Ordering) -> None:
    """Whatever fails on the way: settled or dead-lettered, and with batches too."""

    async def test(b: Bench) -> None:
        told = Told()
        b.append(*(f"k{n % 7}={n}" for n in range(200)))

        async def handle(batch: Batch) -> None:
            await asyncio.sleep(b.simulation.random.random())
            for message in batch:
                chance = b.simulation.random.random()
                if chance < 0.2:
                    message.ack()
                elif chance < 0.4:
                    message.nack()
                elif chance < 0.5:
                    message.reject()
            if b.simulation.random.random() < 0.3:
                raise ValueError

        consumer = b.consumer(hooks=told)
        await b.run(consumer, handle, seconds=300, batch_size=5, ordering=ordering)  # type: ignore[arg-type]  # of batches
        ends = [str(call[1]) for call in told.calls if call[0] != "retried"]
        assert sorted(ends) == sorted(str(n) for n in range(200))
        stats = consumer.stats()
        assert stats.settled == 200
        assert stats.dead_lettered == [call[0] for call in told.calls].count("dead_lettered") > 0

    bench(test, partitions=2)
