"""The runtime on the event loops that users run."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from consumer_sdk import Batch, Consumer, Message, Reject, RetryPolicy
from consumer_sdk.runtime.dispatch import loop_watch
from consumer_sdk.testing import MemoryAdapter, MemoryBroker, SimulationLoop
from consumer_sdk.testing import simulation as simulations
from tests.runtime import test_close, test_leases, test_pull, test_run
from tests.runtime.bench import Letters
from tests.runtime.event_loops import LOOPS, begin_eagerly, run_on

RECORDS, CONCURRENCY = 600, 5

QUICK = RetryPolicy(max_attempts=3, initial=0.001, jitter=0.0)


class Ledger:
    """What handlers saw of a stream of numbers: every seventh fails once, some are rejected."""

    def __init__(self, keys: int) -> None:
        self.broker = MemoryBroker()
        self.broker.create_stream("s", 2)
        for n in range(RECORDS):
            self.broker.append("s", b"%d" % n, key=b"%d" % (n % keys) if keys else None)
        self.letters = Letters()
        self.consumer = Consumer(
            MemoryAdapter(self.broker, "s", group="g"), retry=QUICK, dead_letters=self.letters
        )
        self.done: list[int] = []
        self.running = self.most = 0

    def work(self, message: Message) -> None:
        """Handles one."""
        number = int(message.value or b"")
        if number % 7 == 0 and message.attempt == 1:
            raise ValueError
        self.done.append(number)
        if len(self.done) == RECORDS:
            self.consumer.stop()
        if number % 100 == 99:
            raise Reject("no")

    def begin(self) -> None:
        """A handler begins."""
        self.running += 1
        self.most = max(self.most, self.running)

    def check(self) -> None:
        """All were handled once, and settled; the dead letters are there."""
        assert sorted(self.done) == list(range(RECORDS))
        assert sorted(letter.value or b"" for letter in self.letters.kept) == sorted(
            b"%d" % n for n in range(99, RECORDS, 100)
        )
        assert sum(at for at in self.broker.committed("g", "s").values()) == RECORDS
        assert self.most <= CONCURRENCY


@pytest.mark.parametrize("kind", LOOPS)
@pytest.mark.parametrize("keys", [0, 20], ids=["no keys", "keys"])
@pytest.mark.parametrize("every", [0, 1, 3], ids=["never suspends", "suspends", "at times"])
def test_run_on_this_loop_handles_and_settles_all(kind: str, keys: int, every: int) -> None:
    """No record hangs, no more handlers run than asked for, and a key keeps its order."""

    async def main() -> None:
        ledger = Ledger(keys)

        async def handle(message: Message) -> None:
            ledger.begin()
            try:
                if every and int(message.value or b"") % every == 0:
                    await asyncio.sleep(0)
                ledger.work(message)
            finally:
                ledger.running -= 1

        await ledger.consumer.run(handle, concurrency=CONCURRENCY)
        ledger.check()
        for key in range(keys):
            of_key = [n for n in ledger.done if n % keys == key]
            assert of_key == sorted(of_key)

    run_on(kind, main)


@pytest.mark.parametrize("kind", LOOPS)
def test_pulled_batches_on_this_loop_are_settled_and_end(kind: str) -> None:
    """The same when the user pulls, and leaves in the middle of a fetch."""

    async def main() -> None:
        ledger = Ledger(keys=20)
        async with ledger.consumer as consumer:
            async for batch in consumer.batches(max_messages=50):
                _settle(ledger, batch)
            while consumer.stats().dead_lettered < len(range(99, RECORDS, 100)):
                await asyncio.sleep(0)
            await consumer.flush()
        ledger.check()

    run_on(kind, main)


def _settle(ledger: Ledger, batch: Batch) -> None:
    for message in batch:
        try:
            ledger.work(message)
        except Reject as error:
            message.reject(str(error))
        except ValueError:
            message.nack()
        else:
            message.ack()


def _plain_tests(*modules: ModuleType) -> list[Callable[[], None]]:
    """Those without arguments; virtual time makes them quick."""
    found = (test for module in modules for test in vars(module).values())
    return [
        test
        for test in found
        if inspect.isfunction(test)
        and test.__name__.startswith("test_")
        and not inspect.iscoroutinefunction(test)
        and not inspect.signature(test).parameters
    ]


@pytest.mark.parametrize("test", _plain_tests(test_run, test_pull, test_close, test_leases))
def test_claim_holds_with_eager_tasks(
    test: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What those files claim, where every task begins before ``create_task`` returns."""
    make = simulations._make_task

    def make_eagerly(loop: SimulationLoop, coro: Any, **options: Any) -> Any:
        return begin_eagerly(loop, make, loop, coro, **options)

    monkeypatch.setattr(simulations, "_make_task", make_eagerly)
    test()


@pytest.mark.parametrize("kind", LOOPS)
def test_step_of_a_pull_ends_before_anything_else_runs(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What blocks in other tasks is not counted for the record in hand, on any loop."""
    monkeypatch.setattr(loop_watch, "GAP", -1.0)

    async def main() -> None:
        events: list[str] = []

        async def neighbour() -> None:
            for _ in range(10):
                events.append("other")
                await asyncio.sleep(0)

        step = loop_watch.Step(lambda _messages, _seconds: events.append("ended"))
        others = [asyncio.create_task(neighbour()) for _ in range(3)]
        await step.begin()
        step.took([])
        events.append("body")
        asyncio.get_running_loop().call_soon(events.append, "other")
        await asyncio.gather(*others)
        assert events[events.index("body") + 1] == "ended"
        assert events.count("other") == 31

    run_on(kind, main)
