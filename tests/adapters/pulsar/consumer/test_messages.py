"""Schemas, chunks and encryption, on a real Pulsar: values are bytes, and whole."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import _pulsar
import pulsar
import pytest
from pulsar.schema import Integer, JsonSchema, Record, String

from consumer_sdk import Consumer, Message
from consumer_sdk.adapters.pulsar import PulsarAdapter
from consumer_sdk.errors import HandlerError
from tests.adapters.pulsar.producing import producing
from tests.integration.pulsar_field import until_true

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
    async with asyncio.timeout(300):
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
        data: bytes = consumer.receive(300_000).data()
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


async def test_records_of_one_ordering_key_run_one_after_another(
    pulsar_server: PulsarServer, topic: str
) -> None:
    """Whatever their keys are; a retry holds the next one up too."""
    with producing(pulsar_server, topic, batching_enabled=True) as producer:
        for n in range(60):
            producer.send_async(b"%d" % n, None, partition_key=f"k{n}", ordering_key=f"o{n % 3}")
        producer.flush()
    running: set[bytes | None] = set()
    done: list[int] = []

    async def handle(message: Message) -> None:
        assert message.ordering_key not in running
        running.add(message.ordering_key)
        await asyncio.sleep(0.001)
        running.discard(message.ordering_key)
        if int(message.value or b"") % 20 == 7 and message.attempt == 1:
            raise ValueError
        done.append(int(message.value or b""))
        if len(done) == 60:
            consumer.stop()

    consumer = consumer_of(pulsar_server, topic, type="key_shared")
    async with asyncio.timeout(300):
        await consumer.run(handle, concurrency=30, ordering="key", handle_signals=False)
    for each in range(3):
        assert [n for n in done if n % 3 == each] == list(range(each, 60, 3))


async def test_message_has_what_the_broker_tells_of_it(
    pulsar_server: PulsarServer, topic: str
) -> None:
    """Also when it comes again, and when the client's message was let go."""
    with producing(pulsar_server, topic, producer_name="till") as producer:
        producer.send(b"x", event_timestamp=7)
        producer.send(b"y" * 2000)
    async with consumer_of(pulsar_server, topic) as consumer:
        small, large = await take(consumer, 2)
        small.nack()
        (again,) = await take(consumer, 1)
        for message, event_time in ((small, 7), (again, 7), (large, None)):
            details = message.details
            assert (details.event_time, details.producer_name) == (event_time, "till")
            assert (details.schema_version, details.redelivery_count) == (None, 0)
            assert abs(details.publish_time - large.timestamp) < 300_000


async def test_message_that_cannot_be_decrypted_is_what_was_asked_for(
    pulsar_server: PulsarServer, topic: str, reader: Any
) -> None:
    """It waits for a consumer with the key, comes as it is stored, or is discarded."""

    def send() -> None:
        keys = {"encryption_key": "mine", "crypto_key_reader": reader}
        with producing(pulsar_server, topic, batching_enabled=False, **keys) as producer:
            producer.send(b"secret")
        with producing(pulsar_server, topic) as producer:
            producer.send(b"open")

    await asyncio.to_thread(send)
    async with consumer_of(pulsar_server, topic) as consumer:
        assert [message.value for message in await take(consumer, 1)] == [b"open"]
    async with consumer_of(pulsar_server, topic, crypto_failure_action="consume") as consumer:
        secret, open_ = await take(consumer, 2)
        assert (secret.value != b"secret", secret.details.is_encrypted) == (True, True)
        assert (open_.value, open_.details.is_encrypted) == (b"open", False)
    async with consumer_of(pulsar_server, topic, crypto_key_reader=reader) as consumer:
        assert [m.value for m in await take(consumer, 2)] == [b"secret", b"open"]
    async with consumer_of(pulsar_server, topic, crypto_failure_action="discard") as consumer:
        (message,) = await take(consumer, 1)
        message.ack()
        await consumer.flush()
        assert message.value == b"open"
    assert await pulsar_server.backlog(topic, "billing") == 0


async def test_rarer_options_reach_the_broker(pulsar_server: PulsarServer, topic: str) -> None:
    """As its statistics show; one that is compacted has the latest record of a key."""
    policy = pulsar.ConsumerKeySharedPolicy(
        _pulsar.KeySharedMode.Sticky, sticky_ranges=[(0, 65535)]
    )
    async with consumer_of(
        *(pulsar_server, topic),
        type="key_shared",
        key_shared_policy=policy,
        properties={"team": "billing"},
        replicate_subscription_state_enabled=True,
    ):
        stats = await _stats(pulsar_server, topic)
        assert stats["keySharedMode"] == "STICKY"
        assert stats["consumers"][0]["metadata"] == {"team": "billing"}
    with producing(pulsar_server, topic) as producer:
        for value in (b"old", b"new"):
            producer.send(value, partition_key="k")
    path = topic.replace("persistent://", "persistent/")
    await pulsar_server._ask("PUT", f"{path}/compaction")

    async def is_compacted() -> bool:
        return bool((await pulsar_server._ask("GET", f"{path}/compaction"))["status"] == "SUCCESS")

    await until_true(is_compacted)
    async with consumer_of(pulsar_server, topic, is_read_compacted=True) as consumer:
        assert [message.value for message in await take(consumer, 1)] == [b"new"]


async def _stats(server: PulsarServer, topic: str) -> Any:
    path = topic.replace("persistent://", "persistent/")
    return (await server._ask("GET", f"{path}/stats"))["subscriptions"]["billing"]
