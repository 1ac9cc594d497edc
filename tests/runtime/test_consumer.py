"""The consumer's own checks: who may call it and where, and what it takes."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from consumer_sdk import (
    Batch,
    ConfigurationError,
    Consumer,
    ConsumerClosedError,
    Message,
    Partition,
)
from consumer_sdk.runtime.consumer import DEFAULTS, check_run
from consumer_sdk.testing import MemoryAdapter, MemoryBroker
from consumer_sdk.trackers import Receipts
from tests.runtime.bench import Bench, bench

PARTITION = Partition("s", "0")


def _consumer(**options: Any) -> Consumer:
    broker = MemoryBroker()
    broker.create_stream("s")
    return Consumer(MemoryAdapter(broker, "s", group="g"), **options)


async def _handle(_: Message) -> None:
    """Acks."""


async def _handle_batch(_: Batch) -> None:
    """Acks all."""


async def _called(call: Callable[[Consumer], Any], consumer: Consumer) -> None:
    found = call(consumer)
    if inspect.isawaitable(found):
        await found


NEEDS_OPEN: dict[str, Callable[[Consumer], Any]] = {
    "anext": lambda consumer: anext(consumer),
    "aiter": lambda consumer: aiter(consumer),
    "batches": lambda consumer: consumer.batches(),
    "flush": lambda consumer: consumer.flush(),
    "settle": lambda consumer: consumer.settle(b""),
    "lag": lambda consumer: consumer.lag(),
}
LOOKS: dict[str, Callable[[Consumer], Any]] = {
    "pause": lambda consumer: consumer.pause(PARTITION),
    "resume": lambda consumer: consumer.resume(PARTITION),
    "snapshot": lambda consumer: consumer.snapshot(),
    "snapshot in turns": lambda consumer: consumer.snapshot_in_turns(),
    "health": lambda consumer: consumer.health(),
}
OPENS: dict[str, Callable[[Consumer], Any]] = {
    "run": lambda consumer: consumer.run(_handle, handle_signals=False),
    "aclose": lambda consumer: consumer.aclose(),
}


@pytest.mark.parametrize("call", NEEDS_OPEN.values(), ids=NEEDS_OPEN)
async def test_consumer_is_not_open_what_needs_it_says_so(call: Callable[[Consumer], Any]) -> None:
    """It names the way to open one."""
    with pytest.raises(ConsumerClosedError, match="async with consumer"):
        await _called(call, _consumer())


@pytest.mark.parametrize("call", LOOKS.values(), ids=LOOKS)
async def test_consumer_is_not_open_looks_and_pauses_work(call: Callable[[Consumer], Any]) -> None:
    """Also when its program has ended, and another event loop runs."""
    consumer = _consumer()
    await _called(call, consumer)

    async def use() -> None:
        async with consumer:
            await _called(call, consumer)

    await asyncio.to_thread(asyncio.run, use())
    await _called(call, consumer)


@pytest.mark.parametrize(
    "call",
    [*NEEDS_OPEN.values(), *LOOKS.values(), *OPENS.values()],
    ids=[*NEEDS_OPEN, *LOOKS, *OPENS],
)
async def test_other_event_loop_is_refused(call: Callable[[Consumer], Any]) -> None:
    """Whatever is called, while the loop that opened it runs."""
    async with _consumer() as consumer:
        with pytest.raises(ConsumerClosedError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, _called(call, consumer))
        assert consumer.loop is asyncio.get_running_loop()


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("call", [*LOOKS.values(), *OPENS.values()], ids=[*LOOKS, *OPENS])
async def test_child_of_a_fork_is_refused(
    monkeypatch: pytest.MonkeyPatch, call: Callable[[Consumer], Any], *, is_open: bool
) -> None:
    """Also by a consumer that nobody has opened yet: its adapter belongs to the parent."""
    consumer = _consumer()
    if is_open:
        await consumer.__aenter__()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(ConsumerClosedError, match="parent process"):
            await _called(call, consumer)
    await consumer.aclose()


async def test_consumer_that_is_not_closed_warns_and_no_other_does() -> None:
    """Neither one that was never opened, nor one that was closed, nor one that could not be made."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        consumer = _consumer()
        async with consumer:
            pass
        consumer = _consumer()
        with pytest.raises(ConfigurationError):
            _consumer(start="soon")
        del consumer
        gc.collect()
    consumer = _consumer()
    await consumer.__aenter__()
    with pytest.warns(ResourceWarning, match=r"^Consumer\(.*store=None\) was not closed"):
        consumer.__del__()
    await consumer.aclose()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        consumer.__del__()


@pytest.mark.parametrize(
    "call, named",
    [
        (lambda c: c.batches(max_messages=0), "max_messages"),
        (lambda c: c.batches(max_wait=-1), "max_wait"),
        (lambda c: c.pause("s/0"), "partition"),
        (lambda c: c.pause(reason=""), "reason"),
        (lambda c: c.resume("s/0"), "partition"),
        (lambda c: c.health(stalled_after=0), "stalled_after"),
        (lambda c: c.health(needs_progress="yes"), "needs_progress"),
        (lambda _: _consumer(store=7), "store"),
        (lambda _: _consumer(dead_letters=7), "dead_letters"),
        (lambda _: Consumer(7), "adapter"),  # type: ignore[arg-type]  # on purpose
        (lambda _: Consumer("kafka://h:1/t?group=g&max_lag=7"), "Consumer[(]url, max_lag=…"),
        (lambda _: Consumer("kafka://h:1/t?group=g&concurrency=7"), "run[(]handler, concurrency=…"),
    ],
    ids=map(str, count()),
)
def test_argument_that_cannot_work_is_refused_by_its_name(
    call: Callable[[Any], object], named: str
) -> None:
    """Before anything is done."""

    async def test(b: Bench) -> None:
        async with b.consumer() as consumer:
            with pytest.raises(ConfigurationError, match=named):
                call(consumer)

    bench(test)


def test_options_of_run_are_looked_at_nothing_is_opened() -> None:
    """`check_run` refuses what `run` would, and takes its defaults for the rest."""
    broker = MemoryBroker()
    broker.create_stream("s")
    adapter: Any = MemoryAdapter(broker, "s", group="g")
    adapter.capabilities = replace(adapter.capabilities, max_unacked=20_100)
    consumer = Consumer(adapter, max_retrying=100)
    check_run(consumer, _handle)
    check_run(consumer, _handle, concurrency=20_000)
    check_run(consumer, _handle_batch, concurrency=200, batch_size=100, ordering="partition")
    for options, named in (
        ({"concurrency": 20_001}, "less concurrency"),
        ({"concurrency": 201, "batch_size": 100}, "less concurrency"),
        ({"ordering": "keys"}, "ordering"),
        ({"batch_wait": -1}, "batch_wait"),
    ):
        given: dict[str, Any] = dict(options)
        with pytest.raises(ConfigurationError, match=named):
            check_run(consumer, _handle_batch if "batch_size" in given else _handle, **given)
    assert consumer.state == "new"
    plain: Any = 7
    with pytest.raises(ConfigurationError):
        check_run(consumer, plain)


def test_defaults_are_those_of_the_documents() -> None:
    """Of a consumer and of `run`, by name; nothing but keywords."""
    assert not {"self", "adapter", "handler"} & {*DEFAULTS["Consumer"], *DEFAULTS["run()"]}
    run = {key: DEFAULTS["run()"][key] for key in ("concurrency", "batch_wait", "handle_signals")}
    assert run == {"concurrency": 100, "batch_wait": 0.2, "handle_signals": True}
    taken = DEFAULTS["Consumer"]
    numbers = {key: value for key, value in taken.items() if isinstance(value, int | float)}
    assert numbers == {
        "flush_interval": 0.1,
        "flush_count": 1000,
        "drain_timeout": 5.0,
        "max_in_flight_bytes": 64 * 1024 * 1024,
        "max_retrying": 10_000,
        "max_holes": 10_000,
        "fetch_records": 500,
        "fetch_bytes": 8 * 1024 * 1024,
        "fetch_wait": 0.5,
        "trees": True,
        "name_branches": False,
    }


def test_receipts_are_taken_as_they_are_and_as_bytes() -> None:
    """Of no tree of this consumer, they change nothing."""

    async def test(b: Bench) -> None:
        async with b.consumer() as consumer:
            assert consumer.settle(Receipts()) == 0
            assert consumer.settle(bytes(Receipts())) == 0

    bench(test)


def test_second_run_of_a_consumer_is_refused() -> None:
    """Also while nobody pulls from it; the first one goes on."""

    async def test(b: Bench) -> None:
        b.append("x")
        async with b.consumer() as consumer:
            running = asyncio.create_task(consumer.run(b.see))
            await asyncio.sleep(1)
            with pytest.raises(ConfigurationError, match="nobody pulls from or runs yet"):
                await consumer.run(b.see)
            b.append("y")
            await asyncio.sleep(1)
            consumer.stop()
            await running
        assert b.values == ["x", "y"]

    bench(test)
