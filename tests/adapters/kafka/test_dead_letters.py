"""Dead letters in Kafka topics, on a real Kafka."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from consumer_sdk.adapters.kafka import KafkaAdapter
from consumer_sdk.adapters.kafka.dead_letters import KafkaDeadLetters
from consumer_sdk.errors import AdapterError, ConfigurationError, TransientAdapterError
from consumer_sdk.records import DeadLetter, OutcomeKind, Partition
from consumer_sdk.testing.servers.ports import HOST, free_ports

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import KafkaServer

pytestmark = pytest.mark.kafka


@pytest.fixture
def topic() -> str:
    """The name of a stream of this test's own."""
    return f"orders-{uuid.uuid4().hex[:8]}"


@pytest.fixture
async def admin(kafka_server: KafkaServer) -> AsyncIterator[AIOKafkaAdminClient]:
    """Looks at what was made."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_server.bootstrap_servers)
    await admin.start()
    yield admin
    await admin.close()


@pytest.fixture
async def letters(kafka_server: KafkaServer) -> AsyncIterator[KafkaDeadLetters]:
    """A destination with all the defaults."""
    letters = KafkaDeadLetters(bootstrap_servers=kafka_server.bootstrap_servers)
    await letters.open()
    yield letters
    await letters.aclose()


def letter_of(topic: str, **changes: Any) -> DeadLetter:
    """A dead letter from partition 2."""
    letter = DeadLetter(
        partition=Partition(topic, "2"),
        position="41",
        key=b"k",
        value=b"\xff not json",
        headers=[("trace", b"1"), ("empty", b""), ("none", None)],
        timestamp=1_600_000_000_000,
        error="ValueError: no",
        error_type="builtins.ValueError",
        attempts=5,
        group="billing",
        failed_at=1_700_000_000.5,
    )
    return replace(letter, **changes)


async def read_all(kafka_server: KafkaServer, topic: str, count: int) -> list[Any]:
    """So many records of a topic."""
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=kafka_server.bootstrap_servers, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        return [await consumer.getone() for _ in range(count)]
    finally:
        await consumer.stop()


async def test_letter_is_the_record_as_it_was_with_why_and_where(
    kafka_server: KafkaServer, letters: KafkaDeadLetters, topic: str
) -> None:
    """Key, value and headers are untouched; everything else is in headers of text."""
    await kafka_server.create_topic(topic, partitions=4)
    (outcome,) = await letters.send([letter_of(topic)])
    assert outcome.kind is OutcomeKind.DURABLE
    (found,) = await read_all(kafka_server, f"{topic}-billing-DLQ", 1)
    assert (found.key, found.value, found.partition) == (b"k", b"\xff not json", 2)
    assert list(found.headers) == [
        ("trace", b"1"),
        ("empty", b""),
        ("none", None),
        ("dlq.stream", topic.encode()),
        ("dlq.partition", b"2"),
        ("dlq.position", b"41"),
        ("dlq.timestamp", b"1600000000000"),
        ("dlq.group", b"billing"),
        ("dlq.error", b"ValueError: no"),
        ("dlq.error-type", b"builtins.ValueError"),
        ("dlq.attempts", b"5"),
        ("dlq.failed-at", b"1700000000.5"),
    ]
    assert found.timestamp > 1_600_000_000_000  # an old one's letter would expire at once


async def test_missing_topic_is_made_like_its_origin_and_keeps_for_ever(
    kafka_server: KafkaServer,
    letters: KafkaDeadLetters,
    admin: AIOKafkaAdminClient,
    topic: str,
) -> None:
    """Nothing to set up beforehand, and nothing that retention takes away."""
    await kafka_server.create_topic(topic, partitions=4)
    await letters.send([letter_of(topic)])
    name = f"{topic}-billing-DLQ"
    (described,) = await admin.describe_topics([name])
    assert len(described["partitions"]) == 4
    (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
    settings = {entry[0]: entry[1] for entry in answer.resources[0][4]}
    assert settings["retention.ms"] == "-1"


async def test_tombstones_null_keys_and_foreign_streams_have_letters_too(
    kafka_server: KafkaServer, letters: KafkaDeadLetters, topic: str
) -> None:
    """Whatever a broker can store can be given up."""
    stream = f"persistent://public/default/{topic}"
    rows: list[dict[str, Any]] = [
        {"key": None},
        {"value": None},
        {"key": None, "value": None},
        {"partition": Partition(stream, "shardId-000000000001"), "timestamp": None},
        {"group": "", "partition": Partition(stream, "0")},
    ]
    sent = [letter_of(topic, **row) for row in rows]
    outcomes = await letters.send(sent)
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.DURABLE] * 5
    found = await read_all(kafka_server, f"{topic}-billing-DLQ", 3)
    assert {(r.key, r.value) for r in found} == {
        (None, b"\xff not json"),
        (b"k", None),
        (None, None),
    }
    legal = f"persistent___public_default_{topic}"
    assert len(await read_all(kafka_server, f"{legal}-billing-DLQ", 1)) == 1
    assert len(await read_all(kafka_server, f"{legal}-DLQ", 1)) == 1


async def test_letter_of_a_letter_has_one_set_of_headers(
    kafka_server: KafkaServer, letters: KafkaDeadLetters, topic: str
) -> None:
    """A dead letter that was sent again and failed again tells of its last failure."""
    headers = [("dlq.error", b"old"), ("trace", b"1")]
    await letters.send([letter_of(topic, headers=headers, error="new")])
    (found,) = await read_all(kafka_server, f"{topic}-billing-DLQ", 1)
    assert [value for name, value in found.headers if name == "dlq.error"] == [b"new"]
    assert ("trace", b"1") in found.headers


async def test_topic_that_may_not_be_made_is_an_error_at_open(
    kafka_server: KafkaServer, admin: AIOKafkaAdminClient, topic: str
) -> None:
    """Found before the first record fails, and not made by asking."""
    letters = KafkaDeadLetters(
        topic, bootstrap_servers=kafka_server.bootstrap_servers, creates_topics=False
    )
    with pytest.raises(ConfigurationError, match=f"{topic}.* does not exist"):
        await letters.open()
    await letters.aclose()
    assert topic not in await admin.list_topics()


async def test_letter_too_large_for_the_topic_is_retried_alone(
    kafka_server: KafkaServer, topic: str
) -> None:
    """One letter's failure is one outcome; the others are durable."""
    await kafka_server.create_topic(topic, max_message_bytes=1000)
    letters = KafkaDeadLetters(topic, bootstrap_servers=kafka_server.bootstrap_servers)
    sent = [letter_of(topic, value=b"x" * n) for n in (10, 5000, 500, 500, 20)]
    for _ in range(2):
        outcomes = await letters.send(sent)
        durable, retry = OutcomeKind.DURABLE, OutcomeKind.RETRY
        assert [o.kind for o in outcomes] == [durable, retry, durable, durable, durable]
        assert isinstance(outcomes[1].error, AdapterError)
        assert "raise max.message.bytes" in str(outcomes[1].error)
    await letters.aclose()


async def test_unreachable_servers_make_every_letter_a_retry() -> None:
    """T13: a destination that is down pins the records; it never drops them, nor raises."""
    (port,) = free_ports(1)
    letters = KafkaDeadLetters(bootstrap_servers=f"{HOST}:{port}", connect_timeout=2)
    await letters.open()
    outcomes = await letters.send([letter_of("t"), letter_of("t")])
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.RETRY] * 2
    assert all(isinstance(outcome.error, TransientAdapterError) for outcome in outcomes)
    await letters.aclose()
    await letters.aclose()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"acks": 0}, "written to all replicas"),
        ({"compresion_type": "gzip"}, "did you mean compression_type="),
        ({"topic": "a b"}, "Kafka allows letters"),
        ({"bootstrap_servers": ""}, "give 'host:port'"),
    ],
)
def test_wrong_option_is_named_with_what_to_do(options: dict[str, Any], message: str) -> None:
    """Nothing waits for the first dead letter."""
    with pytest.raises(ConfigurationError, match=message):
        KafkaDeadLetters(**({"bootstrap_servers": "a:1"} | options))


async def test_adapter_has_dead_letters_on_its_own_servers(
    kafka_server: KafkaServer, topic: str
) -> None:
    """Without any option, given-up records go to ``<topic>-<group>-DLQ``."""
    adapter = KafkaAdapter(topic, bootstrap_servers=kafka_server.bootstrap_servers, group="billing")
    letters = adapter.dead_letters()
    assert isinstance(letters, KafkaDeadLetters)
    (outcome,) = await letters.send([letter_of(topic)])
    assert outcome.kind is OutcomeKind.DURABLE
    await letters.aclose()
