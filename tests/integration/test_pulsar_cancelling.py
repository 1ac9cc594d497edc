"""Receives that are cancelled on a real Pulsar: nothing is lost, nothing out of order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence

import pytest

from consumer_sdk import Consumer
from consumer_sdk.abc import AssignmentOwner
from consumer_sdk.records import Assignment, Start, StartPoint
from consumer_sdk.testing.servers import PulsarServer
from tests.integration.pulsar_field import Field, numbers

pytestmark = pytest.mark.pulsar


class Anybody(AssignmentOwner):
    """Takes every partition where the broker's cursor is."""

    async def assigned(self, assignments: Sequence[Assignment]) -> Mapping[Assignment, Start]:
        """All."""
        return dict.fromkeys(assignments, StartPoint.BROKER)

    async def revoked(self, assignments: Sequence[Assignment], *, deadline: float) -> None:
        """Nothing is in flight."""

    def lost(self, assignments: Sequence[Assignment]) -> None:
        """Nothing is held."""


CANCELS, RECORDS = 10_000, 5_000


async def test_ten_thousand_cancelled_iterations_lose_nothing_and_keep_the_order(
    pulsar_server: PulsarServer,
) -> None:
    """Pulsar trap 1, trap 2: the client's own asyncio consumer loses one message for each."""
    field = await Field(pulsar_server, "cancel").create()
    chance = random.Random(1)
    values: list[bytes | None] = []
    cancelled = 0
    async with asyncio.TaskGroup() as tasks, Consumer(field.adapter("exclusive")) as consumer:
        tasks.create_task(field.load(RECORDS))
        messages = aiter(consumer)
        while cancelled < CANCELS or len(values) < RECORDS:
            receiving = asyncio.ensure_future(anext(messages))
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)
            if cancelled < CANCELS and receiving.cancel():
                cancelled += 1
            try:
                message = await receiving
            except asyncio.CancelledError:
                continue
            values.append(message.value)
            message.ack()
        await field.until_acked()
    assert values == numbers(RECORDS)


async def test_storm_of_timeouts_loses_nothing_and_keeps_the_order(
    pulsar_server: PulsarServer,
) -> None:
    """Pulsar trap 2: ``asyncio.wait_for`` with no time to speak of, while records trickle in."""
    field = await Field(pulsar_server, "storm").create()
    values: list[bytes | None] = []
    timeouts = 0
    async with asyncio.TaskGroup() as tasks, Consumer(field.adapter("exclusive")) as consumer:
        messages = aiter(consumer)
        while len(values) < 1000:
            try:
                message = await asyncio.wait_for(anext(messages), 0.0001)
            except TimeoutError:
                timeouts += 1
                if timeouts == 100:
                    tasks.create_task(field.load(1000))
                continue
            values.append(message.value)
            message.ack()
    assert values == numbers(1000)


@pytest.mark.campaign
@pytest.mark.parametrize("kind", ["exclusive", "shared"])
async def test_ten_thousand_cancelled_fetches_lose_nothing(
    pulsar_server: PulsarServer, kind: str
) -> None:
    """Pulsar trap 1: of the adapter itself."""
    field = await Field(pulsar_server, "fetch").create()
    chance = random.Random(2)
    values: list[bytes | None] = []
    cancelled = 0
    adapter = field.adapter(kind)
    await adapter.open(Anybody())
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(field.load(RECORDS))
            while cancelled < CANCELS or len(values) < RECORDS:
                fetching = asyncio.create_task(
                    adapter.fetch(max_records=3, max_bytes=1 << 20, max_wait=0.05)
                )
                for _ in range(chance.randrange(3)):
                    await asyncio.sleep(0)
                if cancelled < CANCELS and fetching.cancel():
                    cancelled += 1
                try:
                    runs = await fetching
                except asyncio.CancelledError:
                    continue
                values += [message.value for run in runs for message in run.messages]
    finally:
        await adapter.aclose()
    assert values == numbers(RECORDS)
