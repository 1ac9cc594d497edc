"""The subscription of range reads, with a native client that is scripted."""

from __future__ import annotations

from typing import Any

import pytest

from consumer_sdk.adapters.pulsar import PulsarAdapter
from consumer_sdk.adapters.pulsar.client import calls
from consumer_sdk.adapters.pulsar.client.topics import partition_of
from consumer_sdk.adapters.pulsar.ranges.cursors import Cursors
from consumer_sdk.records import OutcomeKind
from tests.adapters.pulsar.scripted import DISCONNECTED, Client, Result

TOPIC = "persistent://public/default/t"


def cursors_of(client: Client, **options: Any) -> Cursors:
    """Of one subscription, without the REST API."""
    adapter = PulsarAdapter(TOPIC, service_url="pulsar://h:6650", subscription="s", **options)
    return Cursors(client, None, adapter._options)


@pytest.mark.parametrize("closing", [DISCONNECTED, Result.TopicNotFound, None])
async def test_subscription_whose_consumer_cannot_be_closed_is_kept(
    closing: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """(1) The broker has it; (2) the connection is lost, and with it the consumer."""
    monkeypatch.setattr(calls, "CLOSE", 0.01)
    client = Client()
    client.closing = closing
    cursors = cursors_of(client)
    for _ in range(2):
        await cursors.keep([partition_of(TOPIC)], are_new=False)
    assert len(client.made[TOPIC]) == 1
    assert f"closing the consumer of {TOPIC}: " in caplog.text


async def test_commit_whose_consumer_cannot_be_closed_is_tried_again() -> None:
    """The broker's answer to the close is all that tells of the ack before it."""
    client = Client()
    client.closing = DISCONNECTED
    cursors, partition = cursors_of(client), partition_of(TOPIC)
    found = await cursors.commit({partition: (7, 3, 0)})
    assert found[partition].kind is OutcomeKind.RETRY
    client.closing = Result.Ok
    found = await cursors.commit({partition: (7, 3, 0)})
    assert found[partition].kind is OutcomeKind.SENT
