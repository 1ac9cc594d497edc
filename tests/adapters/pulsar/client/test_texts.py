"""Keys and properties that are no UTF-8 are records all the same."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import _pulsar
import pulsar
import pytest

from consumer_sdk import Consumer
from consumer_sdk.adapters.pulsar import PulsarAdapter
from consumer_sdk.adapters.pulsar.client.texts import _parse, headers_of, key_of, ordering_key_of
from consumer_sdk.adapters.pulsar.consumer.messages import Unpacker
from consumer_sdk.records import Headers

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import PulsarServer

BAD = b"\xff\xfe"


def raw(key: bytes = b"", **properties: bytes) -> Any:
    """A native message."""
    builder = _pulsar.MessageBuilder()
    builder.content(b"v")
    if key:
        builder.partition_key(key)
    for name, value in properties.items():
        builder.property(name, value)
    return builder.build()


def test_messages_beside_a_bad_one_are_delivered_with_it() -> None:
    """One batch: neither the record nor its neighbours are lost."""
    batch = [raw(b"a", n=b"1"), raw(BAD), raw(b"b", n=BAD), raw(b"c")]
    messages = [
        message for part in Unpacker().messages_of(batch[0], batch[1:]) for message in part.messages
    ]
    assert [message.key for message in messages] == [b"a", BAD, b"b", b"c"]
    assert [message.headers for message in messages] == [(("n", b"1"),), (), (("n", BAD),), ()]


@pytest.mark.parametrize(
    "properties, headers",
    [
        ({}, ()),
        ({"n": b"1"}, (("n", b"1"),)),
        ({"n": BAD}, (("n", BAD),)),
        ({"a": b"1, 2", "b": BAD, "c": b""}, (("a", b"1, 2"), ("b", BAD), ("c", b""))),
        ({"a": b"x\n})", "b": BAD}, (("a", b"x\n})"), ("b", BAD))),
        ({"a": b"it's", "b": BAD}, ()),
    ],
)
def test_properties_that_are_no_text_keep_their_bytes(
    properties: dict[str, bytes], headers: Headers
) -> None:
    """Unless it is unclear where one ends."""
    found = headers_of(raw(**properties))
    assert tuple(sorted(found)) == headers


def test_properties_that_are_left_out_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """Their record is delivered without them; what cannot be told apart is no property."""
    assert headers_of(raw(a=b"it's", b=BAD)) == ()
    assert "its properties are no UTF-8, and are left out" in caplog.text
    assert _parse(b"another form of the client's text") is None


def test_name_that_is_no_text_is_escaped() -> None:
    """A header's name is text."""
    builder = _pulsar.MessageBuilder()
    builder.content(b"v")
    builder.property(BAD, b"1")
    assert headers_of(builder.build()) == (("\\xff\\xfe", b"1"),)


@pytest.mark.parametrize("key", [None, b"k", BAD])
def test_key_keeps_its_bytes(key: bytes | None) -> None:
    """Whatever they are."""
    assert key_of(raw(key or b"")) == key
    builder = _pulsar.MessageBuilder()
    builder.content(b"v")
    builder.ordering_key(key or b"")
    assert ordering_key_of(builder.build()) == key


@pytest.mark.pulsar
async def test_records_that_are_no_text_are_delivered_by_a_broker(
    pulsar_server: PulsarServer,
) -> None:
    """As other languages' clients may send them; those behind them come too."""
    topic = f"persistent://public/default/texts-{uuid.uuid4().hex[:8]}"
    await pulsar_server.create_topic(topic)
    await asyncio.to_thread(_send, pulsar_server.service_url, topic)
    adapter = PulsarAdapter(topic, service_url=pulsar_server.service_url, subscription="s")
    found = []
    async with Consumer(adapter) as consumer, asyncio.timeout(300):
        async for message in consumer:
            message.ack()
            found.append((message.key, message.headers))
            if len(found) == 3:
                break
    assert found == [(BAD, ()), (None, (("p", BAD), ("q", b"ok"))), (b"k", ())]


def _send(service_url: str, topic: str) -> None:
    client = pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client._client.create_producer(topic, _pulsar.ProducerConfiguration())
    for message in (raw(BAD), raw(p=BAD, q=b"ok"), raw(b"k")):
        producer.send(message)
    client.close()
