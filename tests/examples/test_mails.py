"""The example that reads Pulsar, run as a reader would run it."""

from __future__ import annotations

import json
import signal
import time
import uuid
from functools import partial
from urllib.parse import urlencode

import pytest

from consumer_sdk import Consumer
from consumer_sdk.adapters import PulsarAdapter
from consumer_sdk.testing.servers import PulsarServer
from tests.examples.running import example, lines
from tests.integration.pulsar_field import until_true

pytestmark = pytest.mark.pulsar


async def test_mails_are_sent_once_by_two_workers_late_ones_later_and_bad_ones_dead_lettered(
    pulsar_server: PulsarServer,
) -> None:
    """What is settled is not seen again, by whomever."""
    topic = f"mails-{uuid.uuid4().hex[:8]}"
    await pulsar_server.create_topic(topic, partitions=2)
    await pulsar_server.create_subscription(topic, "sending")
    query = urlencode({"subscription": "sending", "type": "shared", "retry_topic": "yes"})
    url = f"{pulsar_server.service_url}/{topic}?{query}"
    async with example("mails.py", url) as one:
        await until_true(partial(_is_read, pulsar_server, topic))
        later = time.time() + 5  # by when the first worker has it, and hands it on
        mails = [{"to": f"ann{n}"} for n in range(20)] + [{"to": "bob", "not_before": later}, {}]
        await pulsar_server.produce(topic, [json.dumps(mail).encode() for mail in mails])
        sent = await lines(one, 20)
        async with example("mails.py", url) as other:
            one.send_signal(signal.SIGTERM)
            rest, _ = await one.communicate()
            assert one.returncode == 0
            sent += rest.decode().splitlines()
            if len(sent) == 20:  # else the first one was still there when the late mail was due
                sent += await lines(other, 1)
                other.send_signal(signal.SIGTERM)
                assert await other.wait() == 0
            assert time.time() >= later
    *sent, last = sorted(sent)
    assert sent == sorted(f"sent to ann{n}, postponed 0 times" for n in range(20))
    assert last.startswith("sent to bob, postponed ")
    assert await pulsar_server.backlog(topic, "sending") == 0
    letters = PulsarAdapter(
        f"{topic}-sending-DLQ", service_url=pulsar_server.service_url, subscription="dead-letters"
    )
    async with Consumer(letters) as consumer:
        letter = await anext(aiter(consumer))
        letter.ack()
    assert (letter.value, dict(letter.headers)["dlq.error"]) == (b"{}", b"a mail to nobody")


async def _is_read(server: PulsarServer, topic: str) -> bool:
    """A worker reads each partition."""
    parts = await server.stats(topic)
    return all(part["subscriptions"]["sending"]["consumers"] for part in parts)
