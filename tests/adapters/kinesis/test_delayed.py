"""What comes, or has to be released, while something else is late."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from consumer_sdk.adapters.kinesis import KinesisAdapter
from consumer_sdk.adapters.kinesis.consumer.membership import Membership
from consumer_sdk.adapters.kinesis.service.service import Shard
from consumer_sdk.errors import ConfigurationError, TransientAdapterError
from consumer_sdk.records import Message
from consumer_sdk.testing.kinesis import FakeService
from tests.adapters.kinesis.stage import SHARD, Stage, play, text_of

T = TypeVar("T")


class SlowList(FakeService):
    """The list of shards cannot be had for a while."""

    asked = 0

    async def shards(self) -> Any:
        """Fails a few times."""
        self.asked += 1
        if self.asked < 5:
            raise TransientAdapterError("throttled")
        found: list[Shard] = list(await super().shards())
        return found


@pytest.mark.parametrize("group", ["g", None])
def test_latest_is_the_moment_of_the_opening_however_late_the_first_shard(
    group: str | None,
) -> None:
    """Kinesis trap 23: what comes while the first start is delayed is not passed over."""

    async def scene(stage: Stage) -> list[str]:
        seen: list[str] = []

        async def handle(message: Message) -> None:
            seen.append(text_of(message))

        stage.put("before")
        await asyncio.sleep(5)
        async with stage.consumer(group, service=SlowList, start="latest") as consumer:
            stage.put("at the opening")
            loop = asyncio.get_running_loop()
            loop.call_later(3, stage.put, "a little later")
            loop.call_later(100, consumer.stop)
            await consumer.run(handle)
        return seen

    assert play(scene) == ["at the opening", "a little later"]


class HangsOnce:
    """A store of which one write never returns."""

    def __init__(self) -> None:
        self.is_armed = False

    async def around(self, seam: str, call: Callable[[], Awaitable[T]]) -> T:
        """Hangs at the next write of leases."""
        if seam == "lease_write" and self.is_armed:
            self.is_armed = False
            await asyncio.get_running_loop().create_future()
        return await call()


def test_end_whose_release_hangs_is_given_up_and_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kinesis trap 21: the store falls silent between a shard's last record and its end."""
    seam, end = HangsOnce(), Membership.end

    async def armed(self: Membership, grant: Any) -> None:
        seam.is_armed = True
        monkeypatch.setattr(Membership, "end", end)
        await end(self, grant)

    monkeypatch.setattr(Membership, "end", armed)

    async def scene(stage: Stage) -> list[str]:
        seen: list[str] = []

        async def handle(message: Message) -> None:
            seen.append(text_of(message))

        store = stage.store.handle(faults=seam)
        async with stage.consumer(store=store) as consumer:
            loop = asyncio.get_running_loop()
            loop.call_later(20, stage.kinesis.split, "s", SHARD)
            loop.call_later(30, stage.put, "of a child")
            loop.call_later(200, consumer.stop)
            await consumer.run(handle)
        return seen

    assert play(scene) == ["of a child"]


def test_region_of_an_arn_is_the_streams_and_that_of_its_dead_letters() -> None:
    """Another one beside it is refused, and letters named without one go there too."""
    arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/clicks"
    with pytest.raises(ConfigurationError, match="ARN names eu-west-1"):
        KinesisAdapter(arn, region_name="us-east-1")
    letters = KinesisAdapter(arn, dead_letter_stream="dead").dead_letters()
    assert letters is not None
    assert letters._connection.region_name == "eu-west-1"  # type: ignore[attr-defined]
