"""Dead letters while their Pulsar is killed, or frozen, and comes again."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from consumer_sdk.dead_letters import PulsarDeadLetters
from consumer_sdk.records import OutcomeKind
from tests.adapters.pulsar.dead_letters.test_destination import read
from tests.adapters.pulsar.dead_letters.test_form import letter_of

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import PulsarServer

pytestmark = pytest.mark.pulsar

TOPIC = "persistent://public/default/orders"


async def send_until_down(letters: PulsarDeadLetters, written: list[str]) -> None:
    """Sends ten at a time, and notes those that are said to be durable."""
    number = 0
    while True:
        names = [f"{number + n}:0:0" for n in range(10)]
        number += 10
        outcomes = await letters.send([letter_of(TOPIC, position=name) for name in names])
        pairs = zip(names, outcomes, strict=True)
        written += [name for name, outcome in pairs if outcome.kind is OutcomeKind.DURABLE]
        if any(outcome.kind is OutcomeKind.RETRY for outcome in outcomes):
            return


@pytest.mark.campaign
async def test_letters_that_are_durable_are_there_after_the_broker_was_killed(
    own_pulsar_server: PulsarServer,
) -> None:
    """The others are a RETRY within the timeout; the same destination writes again afterwards."""
    server = own_pulsar_server
    letters = PulsarDeadLetters(
        service_url=server.service_url, operation_timeout=3, connect_timeout=2
    )
    written: list[str] = []
    sending = asyncio.create_task(send_until_down(letters, written))
    while len(written) < 200:
        await asyncio.sleep(0.01)
    await server.kill()
    began = time.monotonic()
    await sending
    assert time.monotonic() - began < 20
    await server.restart()
    async with asyncio.timeout(300):
        while (await letters.send([letter_of(TOPIC)]))[0].kind is not OutcomeKind.DURABLE:
            await asyncio.sleep(0.1)
    count = await server.backlog(f"{TOPIC}-billing-DLQ", "dead-letters")
    found = await asyncio.to_thread(read, server, f"{TOPIC}-billing-DLQ", count)
    kept = {message.properties()["dlq.position"] for message in found}
    assert set(written) <= kept
    server.pause()
    try:
        began = time.monotonic()
        (outcome,) = await letters.send([letter_of(TOPIC)])
        await letters.aclose()
        assert outcome.kind is OutcomeKind.RETRY
        assert time.monotonic() - began < 20
    finally:
        server.resume()
