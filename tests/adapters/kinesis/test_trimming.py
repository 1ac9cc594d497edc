"""Retention has passed what was not settled: told, and then what the user wants.

Whether the service gives what is left in silence, or refuses the number, is not documented.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from consumer_sdk import ConsumerStats, Message
from consumer_sdk.adapters.kinesis.service.service import IteratorStart, Page
from consumer_sdk.errors import PositionOutOfRangeError
from consumer_sdk.records import AtTime
from consumer_sdk.testing.kinesis import FakeService
from tests.adapters.kinesis.harness import shard_id
from tests.adapters.kinesis.stage import SHARD, Stage, play, text_of


class Trimming(FakeService):
    """Refuses a sequence number that was trimmed, instead of giving what is left."""

    async def iterator(self, shard: str, start: IteratorStart) -> str:
        """Refuses what is not stored."""
        self._refuse(shard, start)
        return await super().iterator(shard, start)

    async def subscribe(
        self, consumer: str, shard: str, start: IteratorStart
    ) -> AsyncGenerator[Page, None]:
        """Likewise."""
        self._refuse(shard, start)
        async with aclosing(super().subscribe(consumer, shard, start)) as pages:
            async for page in pages:
                yield page

    def _refuse(self, shard: str, start: IteratorStart) -> None:
        if start.sequence is None or shard not in [s.id for s in self._kinesis.shards("s")]:
            return
        stored = self._kinesis.stream("s").shard(shard).stored()
        if start.sequence not in [record.sequence for record in stored]:
            raise PositionOutOfRangeError(f"{start.sequence} is invalid")


async def settle_the_first(stage: Stage) -> None:
    """A group settles "a", and has "b" and "c" in its hands when it goes away for a while."""

    async def handle(message: Message) -> None:
        if text_of(message) != "a":
            await asyncio.sleep(1000)

    stage.put("a", "b", "c")
    async with stage.consumer(drain_timeout=1.0) as consumer:
        asyncio.get_running_loop().call_later(20, consumer.stop)
        await consumer.run(handle)
    await asyncio.sleep(100)


async def come_back(
    stage: Stage, stats: list[ConsumerStats] | None = None, **options: Any
) -> list[str]:
    """What it sees in a minute, in the middle of which "e" is put."""
    seen: list[str] = []

    async def handle(message: Message) -> None:
        seen.append(text_of(message))

    stage.kinesis.trim("s", stage.simulation.clock.wall() - 50)
    async with stage.consumer(**options) as consumer:
        loop = asyncio.get_running_loop()
        loop.call_later(30, lambda: stage.put("e"))
        loop.call_later(60, consumer.stop)
        await consumer.run(handle)
        if stats is not None:
            stats.append(consumer.stats())
    return seen


SERVICES = pytest.mark.parametrize("service", [FakeService, Trimming])
FAN_OUTS = pytest.mark.parametrize("fan_out", [None, "c"])


@SERVICES
@FAN_OUTS
def test_unsettled_records_that_expired_stop_the_consumer(service: Any, fan_out: Any) -> None:
    """Kinesis trap 20: unless it was said what else to do; the message says what can be."""

    async def test(stage: Stage) -> None:
        await settle_the_first(stage)
        stage.put("d")
        with pytest.raises(PositionOutOfRangeError):
            await come_back(stage, service=service, adapter={"fan_out": fan_out})

    play(test)


@SERVICES
@FAN_OUTS
def test_unsettled_records_that_expired_are_passed_over_on_request(
    service: Any, fan_out: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Kinesis trap 20: from what is left on; how many are lost nobody knows, and it is not 0."""

    async def test(stage: Stage) -> None:
        await settle_the_first(stage)
        stage.put("d")
        options = {"adapter": {"fan_out": fan_out}, "out_of_range": "earliest"}
        stats: list[ConsumerStats] = []
        assert await come_back(stage, stats, service=service, **options) == ["d", "e"]
        assert stats[0].lost == 1

    play(test)
    assert "an unknown number of records is lost" in caplog.text


@SERVICES
def test_unsettled_records_that_expired_are_skipped_to_what_comes_on_request(service: Any) -> None:
    """Kinesis trap 23: "latest" is a moment then, which no expiry moves."""

    async def test(stage: Stage) -> None:
        await settle_the_first(stage)
        stage.put("d")
        await asyncio.sleep(5)
        assert await come_back(stage, service=service, out_of_range="latest") == ["e"]

    play(test)


@SERVICES
@FAN_OUTS
@pytest.mark.parametrize("policy", ["fail", "earliest", "latest"])
def test_closed_shard_that_has_nothing_left_does_not_end_in_silence(
    service: Any, fan_out: Any, policy: str
) -> None:
    """Kinesis trap 20: its end alone would hide the loss; the children follow where that is said."""

    async def test(stage: Stage) -> None:
        await settle_the_first(stage)
        stage.kinesis.split("s", SHARD)
        stage.put("child")
        options: dict[str, Any] = {"adapter": {"fan_out": fan_out}, "service": service}
        if policy == "fail":
            with pytest.raises(PositionOutOfRangeError):
                await come_back(stage, **options)
        else:
            assert await come_back(stage, **options, out_of_range=policy) == ["child", "e"]

    play(test)


@SERVICES
def test_shard_that_is_no_longer_listed_does_not_end_in_silence(service: Any) -> None:
    """Kinesis trap 20: nothing of it is left, not even itself."""

    async def test(stage: Stage) -> None:
        await settle_the_first(stage)
        stage.kinesis.split("s", SHARD)
        await asyncio.sleep(100)
        stage.put("child")
        stage.kinesis.trim("s", stage.simulation.clock.wall() - 50)
        assert [each.id for each in stage.kinesis.shards("s")] == [shard_id(1), shard_id(2)]
        with pytest.raises(PositionOutOfRangeError):
            await come_back(stage, service=service)
        seen = await come_back(stage, service=service, out_of_range="earliest")
        assert seen == ["child", "e", "e"]

    play(test)


@SERVICES
@FAN_OUTS
def test_records_that_expired_after_the_last_settled_one_are_warned_of(
    service: Any, fan_out: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Kinesis trap 20: a consumer that was away for too long, with "fail" too: nobody can tell."""

    async def test(stage: Stage) -> None:
        async def handle(message: Message) -> None:
            """Settles it."""

        stage.put("a")
        async with stage.consumer(adapter={"fan_out": fan_out}) as consumer:
            asyncio.get_running_loop().call_later(20, consumer.stop)
            await consumer.run(handle)
        stage.put("b")
        await asyncio.sleep(100)
        stage.put("c")
        options: dict[str, Any] = {"adapter": {"fan_out": fan_out}, "service": service}
        assert await come_back(stage, **options) == ["c", "e"]

    play(test)
    assert caplog.text.count("is settled, and has expired") == 1


@pytest.mark.parametrize("start", ["earliest", AtTime(1.0)], ids=str)
@FAN_OUTS
@pytest.mark.parametrize("policy", ["fail", "earliest", "latest"])
def test_children_that_expire_before_they_are_read_do_not_end_in_silence(
    policy: str, fan_out: Any, start: Any
) -> None:
    """Kinesis trap 20: while a record of their parent was held back; their children follow."""

    async def test(stage: Stage) -> list[str]:
        gate, seen = asyncio.Event(), list[str]()

        async def handle(message: Message) -> None:
            if text_of(message) == "parent":
                await gate.wait()
            seen.append(text_of(message))

        def expire() -> None:
            stage.put("grandchild")
            stage.kinesis.trim("s", stage.simulation.clock.wall() - 50)
            gate.set()

        loop = asyncio.get_running_loop()
        options: dict[str, Any] = {"out_of_range": policy, "start": start}
        async with stage.consumer(adapter={"fan_out": fan_out}, **options) as consumer:
            loop.call_later(5, lambda: stage.put("parent"))
            loop.call_later(10, lambda: stage.kinesis.split("s", SHARD))
            loop.call_later(11, lambda: stage.put("child"))
            for shard in (shard_id(1), shard_id(2)):  # when the leases know of them
                loop.call_later(75, stage.kinesis.split, "s", shard)
            loop.call_later(175, expire)
            loop.call_later(300, consumer.stop)
            await consumer.run(handle)
            assert loop.time() > 299, "it was stopped early, as a signal to this process would"
            assert (seen, consumer.stats().lost) == (["parent", "grandchild"], 2)  # shards
        return seen

    if policy == "fail":
        with pytest.raises(PositionOutOfRangeError, match="nothing of this shard was read"):
            play(test)
    else:
        assert play(test) == ["parent", "grandchild"]


def test_settled_shard_that_expired_ends_and_no_error_is_raised() -> None:
    """Kinesis trap 20: whether anything is lost by it, nobody can tell."""

    async def test(stage: Stage) -> None:
        seen: list[str] = []

        async def handle(message: Message) -> None:
            seen.append(text_of(message))

        stage.put("a")
        async with stage.consumer() as consumer:
            asyncio.get_running_loop().call_later(20, consumer.stop)
            await consumer.run(handle)
        stage.kinesis.split("s", SHARD)
        await asyncio.sleep(100)
        stage.put("child")
        assert [*seen, *await come_back(stage)] == ["a", "child", "e"]

    play(test)
