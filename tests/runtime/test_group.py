"""`Group`: several consumers run and end together."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from consumer_sdk import Batch, ConfigurationError, Consumer, Group, HandlerError, Message
from consumer_sdk.testing import MemoryAdapter
from tests.runtime.bench import Bench, bench


def _pair(b: Bench) -> tuple[Consumer, Consumer]:
    b.append("x", "y")
    second = Consumer(MemoryAdapter(b.broker, "s", group="h"), clock=b.simulation.clock)
    return b.consumer(), second


def test_each_consumer_is_run_with_its_handler_and_options_until_stop() -> None:
    """All drain, flush and leave."""

    async def test(b: Bench) -> None:
        first, second = _pair(b)
        batches: list[int] = []

        async def handle(batch: Batch) -> None:
            batches.append(len(batch))

        group = Group({first: b.see})
        group.add(second, handle, batch_size=2)
        asyncio.get_running_loop().call_later(5, group.stop)
        await group.run()
        assert b.values == ["x", "y"]
        assert batches == [2]
        assert b.committed() == {"0": 2}
        assert {p.id: at for p, at in b.broker.committed("h", "s").items()} == {"0": 2}

    bench(test)


def test_one_consumer_fails_others_drain_and_its_error_is_raised() -> None:
    """A handler in flight elsewhere ends, and its record is committed."""

    async def test(b: Bench) -> None:
        first, second = _pair(b)

        async def slow(message: Message) -> None:
            await asyncio.sleep(2)
            b.seen.append(message)

        def broken(message: Message) -> Any:
            return message.position

        with pytest.raises(Exception, match="nothing can be awaited"):
            await Group({first: slow, second: broken}).run()
        assert sorted(b.values) == ["x", "y"]  # both wake at the same moment
        assert b.committed() == {"0": 2}

    bench(test)


def test_other_consumers_that_fail_as_they_end_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The first error is raised: it has ended the rest."""

    class FailsToClose(MemoryAdapter):
        async def aclose(self) -> None:
            await super().aclose()
            raise OSError("not closed")

    async def test(b: Bench) -> None:
        b.append("x")
        first = b.consumer(dead_letters=None)
        adapter = FailsToClose(b.broker, "s", group="h")
        second = Consumer(adapter, clock=b.simulation.clock)

        async def handle(_: Message) -> Any:
            return b.see(_)

        group = Group({first: handle, second: b.see})
        with pytest.raises(HandlerError, match="which nobody awaits"):
            await group.run()

    bench(test)
    assert "another consumer of the group failed as it ended" in caplog.text
    assert "not closed" in caplog.text


def test_one_consumer_is_stopped_the_others_go_on() -> None:
    """Its end is no failure."""

    async def test(b: Bench) -> None:
        first, second = _pair(b)

        async def handle(_: Message) -> None:
            second.stop()

        loop = asyncio.get_running_loop()
        loop.call_later(5, b.append, "z")
        loop.call_later(10, first.stop)
        await Group({first: b.see, second: handle}).run()
        assert b.values == ["x", "y", "z"]

    bench(test)


def test_cancelled_group_drains_all() -> None:
    """As `Consumer.run` does."""

    async def test(b: Bench) -> None:
        first, second = _pair(b)
        running = asyncio.create_task(Group({first: b.see, second: b.see}).run())
        await asyncio.sleep(1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert b.committed() == {"0": 2}

    bench(test)


def test_group_that_cannot_work_is_refused() -> None:
    """An empty one, and a consumer with two handlers."""

    async def test(b: Bench) -> None:
        with pytest.raises(ConfigurationError, match="no consumer"):
            await Group().run()
        consumer = b.consumer()
        group = Group({consumer: b.see})
        with pytest.raises(ConfigurationError, match="one handler"):
            group.add(consumer, b.see)

    bench(test)


def test_what_is_no_consumer_handler_or_option_is_refused_before_anything_runs() -> None:
    """When it is added, or else when all are looked at; nothing is opened."""

    async def test(b: Bench) -> None:
        wrong: Any = [b.consumer()]
        with pytest.raises(
            ConfigurationError, match=r"Group\(handlers=.*has no handler of its own"
        ):
            Group(wrong)
        group, consumer, handler = Group(), b.consumer(), b.see
        with pytest.raises(ConfigurationError, match=r"Group\.add\(consumer=.*give a Consumer"):
            group.add(wrong, handler)
        with pytest.raises(ConfigurationError, match="must be a function"):
            group.add(consumer, "see")  # type: ignore[arg-type]  # the mistake
        assert group.consumers == []
        group.add(consumer, handler, concurrency=0)
        second = b.consumer()
        group.add(second, handler)
        assert group.consumers == [consumer, second]
        with pytest.raises(ConfigurationError, match="concurrency=0"):
            group.check()
        assert consumer.state == "new"

    bench(test)
