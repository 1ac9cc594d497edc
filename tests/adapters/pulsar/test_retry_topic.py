"""``reconsume later`` through the retry topic, on a real Pulsar."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import _pulsar
import pulsar
import pytest
from pulsar.schema import AvroSchema, BytesSchema, JsonSchema, Record, String, StringSchema

from consumer_sdk import Consumer, Message, Ordering, Reject
from consumer_sdk.adapters.pulsar import PulsarAdapter
from consumer_sdk.dead_letters import MemoryDeadLetters, PulsarDeadLetters
from consumer_sdk.errors import ConfigurationError, ConsumerClosedError, ConsumerSdkError
from tests.adapters.pulsar.producing import producing

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import PulsarServer

pytestmark = pytest.mark.pulsar


class Order(Record):  # type: ignore[misc]  # the client has no types
    """A record with a schema."""

    customer = String()


ORDER = Order(customer="ann")


@pytest.fixture
async def topic(pulsar_server: PulsarServer) -> str:
    """The full name of a topic of this test's own, with the subscription ``billing``."""
    name = f"persistent://public/default/later-{uuid.uuid4().hex[:8]}"
    await pulsar_server.create_topic(name, partitions=2)
    await pulsar_server.create_subscription(name, "billing")
    return name


def adapter_of(server: PulsarServer, *topics: str, **options: Any) -> PulsarAdapter:
    """One that reads its retry topics too."""
    given: dict[str, Any] = {"type": "shared", "retry_topic": True, "admin_url": server.admin_url}
    return PulsarAdapter(
        *topics, service_url=server.service_url, subscription="billing", **given | options
    )


@asynccontextmanager
async def running(consumer: Consumer, handle: Any) -> AsyncIterator[Callable[..., Any]]:
    """A consumer at work; gives what waits until a condition holds."""
    work = asyncio.create_task(consumer.run(handle, concurrency=10, ordering=Ordering.NONE))

    async def until(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(300):
            while not condition():
                assert not work.done(), work
                await asyncio.sleep(0.02)

    try:
        yield until
    finally:
        await consumer.aclose()
        await asyncio.gather(work, return_exceptions=True)


async def test_record_comes_again_after_the_delay_with_its_count_and_origin(
    pulsar_server: PulsarServer, topic: str
) -> None:
    """Key, value and headers are the record's; the original is acked."""
    await pulsar_server.produce(f"{topic}-partition-1", [b"order"], key="ann")
    adapter = adapter_of(pulsar_server, topic)
    seen: list[tuple[float, Message]] = []

    async def handle(message: Message) -> None:
        seen.append((time.monotonic(), message))
        if len(seen) < 3:
            await adapter.reconsume_later(message, 1.5)

    async with running(Consumer(adapter), handle) as until:
        await until(lambda: len(seen) == 3)
    (at, first), (then, second), (_, third) = seen
    assert then - at >= 1.4
    assert {(m.key, m.value) for _, m in seen} == {(b"ann", b"order")}
    assert first.partition.stream == topic
    assert second.partition.stream == third.partition.stream == f"{topic}-billing-RETRY"
    ledger, entry, _ = first.position
    for count, message in ((b"1", second), (b"2", third)):
        assert dict(message.headers) == {
            "RECONSUMETIMES": count,
            "DELAY_TIME": b"1500",
            "REAL_TOPIC": topic.encode(),
            "REAL_SUBSCRIPTION": b"billing",
            "ORIGIN_MESSAGE_ID": f"{ledger}:{entry}:1".encode(),
        }
    assert await pulsar_server.backlog(topic, "billing") == 0
    assert await pulsar_server.backlog(f"{topic}-billing-RETRY", "billing") == 0


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(None, marks=pytest.mark.campaign),
        AvroSchema(Order),
        pytest.param(JsonSchema(Order), marks=pytest.mark.campaign),
        pytest.param(StringSchema(), marks=pytest.mark.campaign),
    ],
)
async def test_copies_are_the_record_as_it_was(
    pulsar_server: PulsarServer, topic: str, schema: Any
) -> None:
    """Of a retry and of a dead letter: a consumer with the schema may subscribe to their topics."""
    value = {None: b"order", "StringSchema": "order"}.get(schema and type(schema).__name__, ORDER)
    with producing(pulsar_server, topic, schema=schema or BytesSchema()) as producer:
        builder = _pulsar.MessageBuilder()  # the client itself takes no bytes as keys
        builder.content(value if schema is None else schema.encode(value))
        builder.partition_key(b"\xff\x00").ordering_key(b"\xfe")
        producer._producer.send(builder.build())  # without an event time
    adapter = adapter_of(pulsar_server, topic)
    seen: list[Message] = []

    async def handle(message: Message) -> None:
        seen.append(message)
        if len(seen) == 2:
            raise Reject("no")
        await adapter.reconsume_later(message, 0)

    consumer = Consumer(adapter)
    async with running(consumer, handle) as until:
        await until(lambda: consumer.stats().dead_lettered == 1)
    letters = adapter_of(pulsar_server, f"{topic}-billing-DLQ", retry_topic=False)
    async with Consumer(letters) as given_up, asyncio.timeout(300):
        seen.append(await anext(aiter(given_up)))
    assert {(m.key, m.ordering_key, m.value) for m in seen} == {
        (b"\xff\x00", b"\xfe", b"order" if schema is None else schema.encode(value))
    }
    assert {m.details.event_time for m in seen} == {None}
    assert {m.details.schema_version for m in seen} == {None if schema is None else 0}
    if schema is not None:
        for kind in ("RETRY", "DLQ"):
            assert _first_of(pulsar_server, f"{topic}-billing-{kind}", schema) == value


def _first_of(server: PulsarServer, topic: str, schema: Any) -> Any:
    """What a consumer with the schema reads."""
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(server.service_url, logger=logger)
    try:
        reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=schema)
        return reader.read_next(300_000).value()
    finally:
        client.close()


async def test_letters_of_two_schemas_go_to_one_topic(
    pulsar_server: PulsarServer, topic: str
) -> None:
    """The second is written without: a schema must not hold a letter up."""
    other = f"{topic}-other"
    await pulsar_server.create_topic(other)
    for name, schema in ((topic, AvroSchema(Order)), (other, StringSchema())):
        with producing(pulsar_server, name, schema=schema) as producer:
            producer.send("order" if name == other else ORDER)
    graves = PulsarDeadLetters(f"{topic}-graves", service_url=pulsar_server.service_url)
    consumer = Consumer(adapter_of(pulsar_server, topic, other), dead_letters=graves)

    async def reject(_: Message) -> None:
        raise Reject("no")

    async with running(consumer, reject) as until:
        await until(lambda: consumer.stats().dead_lettered == 2)


async def test_record_waits_at_the_broker_when_the_consumer_is_gone(
    pulsar_server: PulsarServer, topic: str
) -> None:
    """Another process, later, gets it: nothing is in memory."""
    await pulsar_server.produce(topic, [b"order"])
    first = adapter_of(pulsar_server, topic)
    done = asyncio.Event()

    async def postpone(message: Message) -> None:
        await first.reconsume_later(message, 2)
        done.set()

    async with running(Consumer(first), postpone) as until:
        await until(done.is_set)
    assert await pulsar_server.backlog(topic, "billing") == 0
    async with Consumer(adapter_of(pulsar_server, topic)) as consumer, asyncio.timeout(300):
        message = await anext(aiter(consumer))
        assert (message.value, dict(message.headers)["RECONSUMETIMES"]) == (b"order", b"1")
        message.ack()
        await consumer.flush()


async def test_record_at_the_limit_goes_to_the_dead_letters_with_its_first_origin(
    pulsar_server: PulsarServer, topic: str
) -> None:
    """To those of its topic, not of the retry topic, whichever destination the consumer has."""
    await pulsar_server.produce(topic, [b"order"])
    adapter = adapter_of(pulsar_server, topic, retry_limit=2)
    letters = MemoryDeadLetters()
    tries: list[bytes | None] = []

    async def handle(message: Message) -> None:
        tries.append(dict(message.headers).get("RECONSUMETIMES", b"0"))
        await adapter.reconsume_later(message, 0)

    async with running(Consumer(adapter, dead_letters=letters), handle) as until:
        await until(lambda: bool(letters.letters))
    assert tries == [b"0", b"1", b"2"]
    (letter,) = letters.letters
    assert letter.error == "it was to be consumed later 2 times before"
    assert dict(letter.headers)["REAL_TOPIC"] == topic.encode()


async def test_pattern_reads_the_retry_topic_once_and_never_its_dead_letters(
    pulsar_server: PulsarServer,
) -> None:
    """The pattern matches all three; what is given up would go round for ever."""
    name = f"persistent://public/default/round-{uuid.uuid4().hex[:8]}"
    await pulsar_server.create_topic(name)
    await pulsar_server.create_subscription(name, "billing")
    await pulsar_server.produce(name, [b"order"])
    for kind in ("RETRY", "DLQ"):
        await pulsar_server.create_topic(f"{name}-billing-{kind}")
    await pulsar_server.produce(f"{name}-billing-DLQ", [b"dead"])
    pattern: dict[str, Any] = {"pattern": f"{name.rpartition('/')[2]}.*", "discovery_interval": 0.2}
    adapter = adapter_of(pulsar_server, **pattern)
    seen: list[tuple[str, bytes | None]] = []

    async def handle(message: Message) -> None:
        seen.append((message.partition.stream, message.value))
        if len(seen) == 1:
            await adapter.reconsume_later(message, 0)

    async with running(Consumer(adapter), handle) as until:
        await until(lambda: len(seen) == 2)
        await asyncio.sleep(1)  # five looks at the topics
    assert seen == [(name, b"order"), (f"{name}-billing-RETRY", b"order")]
    assert await pulsar_server.subscriptions(f"{name}-billing-DLQ") == []


async def test_copy_that_cannot_be_written_leaves_the_record_unsettled(
    pulsar_server: PulsarServer, topic: str
) -> None:
    """The handler fails, and the retry policy has the record again."""
    await pulsar_server.produce(topic, [b"order"])
    adapter = adapter_of(pulsar_server, topic, operation_timeout=5)
    attempts: list[int] = []

    async def handle(message: Message) -> None:
        attempts.append(message.attempt)
        if message.attempt == 1:
            await pulsar_server.terminate(f"{topic}-billing-RETRY")
            with pytest.raises(ConsumerSdkError):
                await adapter.reconsume_later(message, 1)
            raise ValueError("later, then")

    async with running(Consumer(adapter), handle) as until:
        await until(lambda: len(attempts) == 2)
    assert attempts == [1, 2]
    assert await pulsar_server.backlog(topic, "billing") == 0


async def test_adapter_without_a_retry_topic_says_so() -> None:
    """Not after the first record was written nowhere."""
    adapter = PulsarAdapter("t", service_url="pulsar://h:1", subscription="s", type="shared")
    with pytest.raises(ConfigurationError, match="retry_topic=True"):
        await adapter.reconsume_later(Message(), 1)


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf")])
async def test_delay_that_is_none_is_an_error(pulsar_server: PulsarServer, delay: float) -> None:
    """Seconds from 0 on."""
    with pytest.raises(ConfigurationError, match="delay="):
        await adapter_of(pulsar_server, "t").reconsume_later(Message(), delay)


async def test_adapter_that_is_closed_writes_no_copy(
    pulsar_server: PulsarServer, topic: str
) -> None:
    """Neither is a client left open, nor is somebody cancelled who was not."""
    await pulsar_server.produce(topic, [b"order"])
    adapter = adapter_of(pulsar_server, topic)
    async with Consumer(adapter, drain_timeout=0.1) as consumer:
        message = await anext(aiter(consumer))
        writing = asyncio.create_task(adapter.reconsume_later(message, 1))
    ended = await asyncio.gather(writing, return_exceptions=True)
    assert not isinstance(ended[0], asyncio.CancelledError)
    with pytest.raises(ConsumerClosedError):
        await adapter.reconsume_later(message, 1)


async def test_copies_of_many_records_at_once_are_all_written(
    pulsar_server: PulsarServer, topic: str
) -> None:
    """Handlers share the producer; each record comes once more."""
    values = [b"%d" % number for number in range(300)]
    await pulsar_server.produce(topic, values, batch=True)
    adapter = adapter_of(pulsar_server, topic)
    again: list[bytes | None] = []

    async def handle(message: Message) -> None:
        if "RECONSUMETIMES" in dict(message.headers):
            again.append(message.value)
        else:
            await adapter.reconsume_later(message, 0)

    async with running(Consumer(adapter), handle) as until:
        await until(lambda: len(again) >= 300)
    assert sorted(again, key=repr) == sorted(values, key=repr)
    assert await pulsar_server.backlog(topic, "billing") == 0
