"""Schemas, chunks and encryption, on a real Pulsar: values are bytes, and whole."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pulsar
import pytest
from pulsar.schema import Integer, JsonSchema, Record, String

from consumer_sdk import Consumer, Message
from consumer_sdk.adapters.pulsar import PulsarAdapter
from consumer_sdk.errors import HandlerError

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import PulsarServer

pytestmark = pytest.mark.pulsar

LARGE = 12 << 20
"""Bytes: three chunks."""


class Order(Record):  # type: ignore[misc]  # the client has no types
    """A record with a schema."""

    customer = String()
    amount = Integer()


@pytest.fixture
async def topic(pulsar_server: PulsarServer) -> str:
    """The full name of a topic of this test's own, with the subscription ``billing``."""
    name = f"persistent://public/default/contents-{uuid.uuid4().hex[:8]}"
    await pulsar_server.create_topic(name)
    await pulsar_server.create_subscription(name, "billing")
    return name


@contextmanager
def producing(server: PulsarServer, topic: str, **options: Any) -> Iterator[Any]:
    """A producer of Pulsar's own client."""
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(server.service_url, logger=logger)
    try:
        yield client.create_producer(topic, **options)
    finally:
        client.close()


def consumer_of(server: PulsarServer, topic: str, **options: Any) -> Consumer:
    """A consumer that knows the admin interface."""
    return Consumer(
        PulsarAdapter(
            topic,
            service_url=server.service_url,
            admin_url=server.admin_url,
            subscription="billing",
            **options,
        ),
        drain_timeout=0.2,  # some are left unsettled on purpose
    )


async def take(consumer: Consumer, count: int) -> list[Message]:
    """The next messages."""
    messages = aiter(consumer)
    async with asyncio.timeout(30):
        return [await anext(messages) for _ in range(count)]


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
async def test_topic_with_a_schema_is_read_as_bytes(
    pulsar_server: PulsarServer, topic: str, kind: Any
) -> None:
    """The broker does not call a consumer of bytes incompatible; decoding is the handler's."""

    def send() -> None:
        with producing(pulsar_server, topic, schema=JsonSchema(Order)) as producer:
            producer.send(Order(customer="ann", amount=5))

    await asyncio.to_thread(send)
    async with consumer_of(pulsar_server, topic, type=kind) as consumer:
        (message,) = await take(consumer, 1)
        assert json.loads(message.value or b"") == {"customer": "ann", "amount": 5}


async def test_dead_letter_of_a_record_with_a_schema_is_its_bytes(
    pulsar_server: PulsarServer, topic: str
) -> None:
    """Also where the dead-letter topic has the schema, as Java's consumers leave it."""
    name = f"{topic}-billing-DLQ"

    def send() -> None:
        for each in (topic, name):
            with producing(pulsar_server, each, schema=JsonSchema(Order)) as producer:
                producer.send(Order(customer="ann", amount=5))

    await asyncio.to_thread(send)
    async with consumer_of(pulsar_server, topic) as consumer:
        (message,) = await take(consumer, 1)
        message.reject("no")
        await consumer.flush()
    async with consumer_of(pulsar_server, name, initial_position="earliest") as consumer:
        (message,) = await take(consumer, 1)
        assert json.loads(message.value or b"") == {"customer": "ann", "amount": 5}


@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared", "key_shared"])
async def test_chunked_record_is_whole_and_acked_by_itself(
    pulsar_server: PulsarServer, topic: str, kind: Any
) -> None:
    """Pulsar trap 15: of large, small, large, small the middle two stay, and only they come again."""
    values = [b"a" * LARGE, b"small", b"b" * LARGE, b"last"]

    def send() -> None:
        options = {"chunking_enabled": True, "batching_enabled": False}
        with producing(pulsar_server, topic, **options) as producer:
            for value in values:
                producer.send(value, partition_key="k")

    await asyncio.to_thread(send)
    async with consumer_of(pulsar_server, topic, type=kind) as consumer:
        messages = await take(consumer, 4)
        assert [message.value for message in messages] == values
        messages[0].ack()
        messages[3].ack()
        await consumer.flush()
    await pulsar_server.unload(topic)
    async with consumer_of(pulsar_server, topic, type=kind) as consumer:
        again = await take(consumer, 2)
        assert [message.value for message in again] == values[1:3]
        for message in again:
            message.ack()
        await consumer.flush()
    assert await pulsar_server.backlog(topic, "billing") == 0


def _send_at_once(server: PulsarServer, topic: str) -> bool:
    """Four large records, by four producers at the same time; whether chunks of them mixed."""
    options = {"chunking_enabled": True, "batching_enabled": False}
    ends: list[list[int]] = []
    together = threading.Barrier(4)

    def send(value: bytes) -> None:
        with producing(server, topic, **options) as producer:
            together.wait()
            shown = str(producer.send(value * LARGE))  # (ledger,entry,…);(ledger,entry,…)
            ends.append([int(part.split(",")[1]) for part in shown.split(";")])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(send, (b"a", b"b", b"c", b"d")))
    ends.sort()
    return any(end > begin for (_, end), (begin, _) in pairwise(ends))


async def test_chunks_of_producers_that_mix_are_whole_records(
    pulsar_server: PulsarServer, topic: str
) -> None:
    """Pulsar trap 15: acking the one that ends first leaves the others, some chunks of which come before."""
    for tries in range(10):  # the broker may take producers one after another, even each time
        if await asyncio.to_thread(_send_at_once, pulsar_server, topic) or tries == 9:
            break
        await pulsar_server.reset_cursor(topic, "billing", "latest")
    async with consumer_of(pulsar_server, topic) as consumer:
        first, *others = await take(consumer, 4)
        first.ack()
        await consumer.flush()
    async with consumer_of(pulsar_server, topic) as consumer:
        again = await take(consumer, 3)
        for message in again:
            message.ack()
        await consumer.flush()
    assert {m.value for m in again} == {m.value for m in others}
    assert {m.value for m in (first, *again)} == {v * LARGE for v in (b"a", b"b", b"c", b"d")}
    assert await pulsar_server.backlog(topic, "billing") == 0


@pytest.fixture
def reader(tmp_path: Path) -> Any:
    """A key pair of this test's own."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl to make keys")
    public, private = tmp_path / "public.pem", tmp_path / "private.pem"
    for command in (
        f"genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out {private}",
        f"pkey -in {private} -pubout -out {public}",
    ):
        subprocess.run([openssl, *command.split()], check=True, capture_output=True)
    return pulsar.CryptoKeyReader(str(public), str(private))


async def test_encrypted_record_is_read_retried_and_dead_lettered_encrypted(
    pulsar_server: PulsarServer, topic: str, reader: Any
) -> None:
    """Plain text is in the handler, and nowhere at the broker."""
    keys = {"encryption_key": "mine", "crypto_key_reader": reader}

    def send() -> None:
        with producing(pulsar_server, topic, **keys) as producer:
            producer.send(b"later")
            producer.send(b"poison")

    await asyncio.to_thread(send)
    options: dict[str, Any] = {"crypto_key_reader": reader, "encryption_keys": ["mine"]}
    adapter = PulsarAdapter(
        topic,
        service_url=pulsar_server.service_url,
        subscription="billing",
        type="shared",
        retry_topic=True,
        **options,
    )
    async with Consumer(adapter) as consumer:
        later, poison = await take(consumer, 2)
        assert (later.value, poison.value) == (b"later", b"poison")
        await adapter.reconsume_later(later, 0)
        later.ack()
        poison.reject("no")
        (again,) = await take(consumer, 1)
        assert again.value == b"later"
        await consumer.flush()
    for beside in ("RETRY", "DLQ"):
        found = await asyncio.to_thread(_raw, pulsar_server, f"{topic}-billing-{beside}")
        assert found not in (b"later", b"poison")


def _raw(server: PulsarServer, topic: str) -> bytes:
    """The first record of a topic as the broker has it."""
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(server.service_url, logger=logger)
    try:
        consumer = client.subscribe(
            topic,
            "spy",
            initial_position=pulsar.InitialPosition.Earliest,
            crypto_failure_action=pulsar.ConsumerCryptoFailureAction.CONSUME,
        )
        data: bytes = consumer.receive(10_000).data()
        return data
    finally:
        client.close()


async def test_encrypted_record_without_keys_to_write_stops_at_its_dead_letter(
    pulsar_server: PulsarServer, topic: str, reader: Any
) -> None:
    """Rather than writing it in plain text, or losing it."""

    def send() -> None:
        with producing(
            pulsar_server, topic, encryption_key="mine", crypto_key_reader=reader
        ) as producer:
            producer.send(b"poison")

    await asyncio.to_thread(send)
    with pytest.raises(HandlerError, match="dead_letters="):
        async with consumer_of(pulsar_server, topic, crypto_key_reader=reader) as consumer:
            (message,) = await take(consumer, 1)
            message.reject("no")
            await take(consumer, 1)
    assert await pulsar_server.backlog(topic, "billing") == 1
