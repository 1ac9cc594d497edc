"""Dead letters in Pulsar topics, on a real Pulsar."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pulsar
import pytest

from consumer_sdk import Consumer, Message, Ordering, Reject, RetryPolicy
from consumer_sdk.adapters.pulsar import PulsarAdapter
from consumer_sdk.adapters.pulsar.client.ids import place_of
from consumer_sdk.adapters.pulsar.client.producers import MOST
from consumer_sdk.dead_letters import PulsarDeadLetters
from consumer_sdk.errors import AdapterError, ConfigurationError, TransientAdapterError
from consumer_sdk.records import OutcomeKind
from consumer_sdk.testing.servers.ports import HOST, free_ports
from tests.adapters.pulsar.dead_letters.test_form import letter_of

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import PulsarServer

pytestmark = pytest.mark.pulsar


@pytest.fixture
def topic() -> str:
    """The full name of a topic of this test's own."""
    return f"persistent://public/default/orders-{uuid.uuid4().hex[:8]}"


@pytest.fixture
async def letters(pulsar_server: PulsarServer) -> AsyncIterator[PulsarDeadLetters]:
    """A destination with all the defaults."""
    letters = PulsarDeadLetters(service_url=pulsar_server.service_url)
    await letters.open()
    yield letters
    await letters.aclose()


def read(server: PulsarServer, topic: str, count: int, name: str = "dead-letters") -> list[Any]:
    """So many messages of a subscription, with nothing behind them."""
    client = pulsar.Client(
        server.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    try:
        consumer = client.subscribe(topic, name, pulsar.ConsumerType.Shared)
        found = [consumer.receive(300_000) for _ in range(count)]
        with pytest.raises(pulsar.Timeout):
            consumer.receive(300)
        for message in found:
            consumer.acknowledge(message)
        return found
    finally:
        client.close()


async def test_letter_is_the_record_as_it_was_with_why_and_where(
    pulsar_server: PulsarServer, letters: PulsarDeadLetters, topic: str
) -> None:
    """Key, value, event time and properties are untouched; the rest is beside them."""
    (outcome,) = await letters.send([letter_of(topic)])
    assert outcome.kind is OutcomeKind.DURABLE
    (found,) = await asyncio.to_thread(read, pulsar_server, f"{topic}-billing-DLQ", 1)
    assert (found.partition_key(), found.data()) == ("k", b"\xff not json")
    assert found.event_timestamp() == 1_600_000_000_000
    properties = found.properties()
    assert (properties["trace"], properties["dlq.error"]) == ("1", "ValueError: no")
    assert properties["REAL_TOPIC"] == topic


async def test_letters_without_key_value_or_time_and_of_other_brokers_are_written(
    pulsar_server: PulsarServer, letters: PulsarDeadLetters, topic: str
) -> None:
    """Whatever a broker can store can be given up; what is too large for an entry goes in chunks."""
    rows: list[dict[str, Any]] = [
        {"key": None, "timestamp": None},
        {"value": None},
        {"value": b""},
        {"key": b"\xff", "headers": (("a", b"\xfe"), ("a", None))},
        {"value": b"x" * (11 << 20)},
    ]
    outcomes = await letters.send([letter_of(topic, **row) for row in rows])
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.DURABLE] * 5
    found = await asyncio.to_thread(read, pulsar_server, f"{topic}-billing-DLQ", 5)
    assert sorted(len(message.data()) for message in found) == [0, 0, 10, 10, 11 << 20]
    assert [message._message.has_null_value() for message in found].count(True) == 1


async def test_letters_are_kept_without_a_reader_when_their_topic_is_unloaded(
    pulsar_server: PulsarServer, topic: str
) -> None:
    """A topic without a subscription would be deleted; the first letter makes one."""
    letters = PulsarDeadLetters(service_url=pulsar_server.service_url)
    await letters.send([letter_of(topic)])
    await letters.aclose()
    name = f"{topic}-billing-DLQ"
    assert await pulsar_server.subscriptions(name) == ["dead-letters"]
    await pulsar_server.unload(name)
    assert await pulsar_server.backlog(name, "dead-letters") == 1


async def test_letters_of_a_key_are_in_the_partition_where_javas_would_be(
    pulsar_server: PulsarServer, letters: PulsarDeadLetters, topic: str
) -> None:
    """The native client's own hash is another one; of a topic with both, a key would be in two partitions."""
    name = f"{topic}-billing-DLQ"
    await pulsar_server.create_topic(name, partitions=7)
    keys = ["a", "orders-17", "polygenelubricants", "é", "😀"]
    await letters.send([letter_of(topic, key=key.encode()) for key in keys])
    await letters.send([letter_of(topic, key=None)])
    found = await asyncio.to_thread(read, pulsar_server, name, len(keys) + 1)
    places = {m.partition_key(): int(m.topic_name().rpartition("-")[2]) for m in found}
    del places[""]
    # As Java's String.hashCode has them, without their sign.
    hashes = [97, 1_756_767_758, 0, 233, 1_772_899]
    assert places == {key: each % 7 for key, each in zip(keys, hashes, strict=True)}


async def test_reader_of_another_type_does_not_keep_letters_out(
    pulsar_server: PulsarServer, letters: PulsarDeadLetters, topic: str
) -> None:
    """Somebody looks through the dead letters with an exclusive consumer meanwhile."""
    name = f"{topic}-billing-DLQ"
    client = pulsar.Client(
        pulsar_server.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    try:
        reader = await asyncio.to_thread(client.subscribe, name, "dead-letters")
        (outcome,) = await letters.send([letter_of(topic)])
        assert outcome.kind is OutcomeKind.DURABLE
        found = await asyncio.to_thread(reader.receive, 300_000)
        assert found.data() == b"\xff not json"
    finally:
        await asyncio.to_thread(client.close)


async def test_given_topic_without_subscription_takes_the_letters_of_all_topics(
    pulsar_server: PulsarServer, topic: str
) -> None:
    """One place for everything, for which its owner has seen to retention."""
    await pulsar_server.create_topic(topic, partitions=2)
    await pulsar_server.create_subscription(topic, "mine")
    letters = PulsarDeadLetters(
        topic, service_url=pulsar_server.service_url, initial_subscription=None
    )
    outcomes = await letters.send([letter_of("a"), letter_of("b")])
    await letters.aclose()
    await letters.aclose()
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.DURABLE] * 2
    assert await pulsar_server.subscriptions(f"{topic}-partition-0") == ["mine"]
    found = await asyncio.to_thread(read, pulsar_server, topic, 2, "mine")
    assert {message.properties()["REAL_TOPIC"] for message in found} == {"a", "b"}


async def test_letter_that_is_refused_is_named_and_holds_up_no_other(
    letters: PulsarDeadLetters, topic: str
) -> None:
    """Properties cannot be sent in chunks: six megabytes of them are no letter."""
    large = letter_of(topic, headers=(("h", b"x" * (6 << 20)),), position="17:5:0")
    for _ in range(2):  # and the producer is still good
        good, bad, other = await letters.send([letter_of(topic), large, letter_of(topic)])
        assert (good.kind, other.kind) == (OutcomeKind.DURABLE,) * 2
        assert bad.kind is OutcomeKind.RETRY
        assert "17:5:0, 6,291,4" in str(bad.error)
        assert "MessageTooBig" in str(bad.error)


async def test_topic_that_takes_nothing_is_a_retry_and_the_others_are_written(
    pulsar_server: PulsarServer, letters: PulsarDeadLetters, topic: str
) -> None:
    """One outcome for each letter."""
    await pulsar_server.create_topic(f"{topic}-billing-DLQ")
    await pulsar_server.terminate(f"{topic}-billing-DLQ")
    refused, written = await letters.send([letter_of(topic), letter_of(f"{topic}-2")])
    assert refused.kind is OutcomeKind.RETRY
    assert isinstance(refused.error, AdapterError)
    assert written.kind is OutcomeKind.DURABLE


async def test_broker_that_is_away_is_a_retry_within_the_timeout(topic: str) -> None:
    """Nobody waits for ever, and closing is quick."""
    (port,) = free_ports(1)
    letters = PulsarDeadLetters(
        service_url=f"pulsar://{HOST}:{port}", operation_timeout=1, connect_timeout=1
    )
    await letters.open()
    began = time.monotonic()
    (outcome,) = await letters.send([letter_of(topic)])
    await letters.aclose()
    assert outcome.kind is OutcomeKind.RETRY
    assert isinstance(outcome.error, TransientAdapterError)
    assert time.monotonic() - began < 25


async def test_unloaded_topic_takes_the_next_letter(
    pulsar_server: PulsarServer, letters: PulsarDeadLetters, topic: str
) -> None:
    """The producer connects again."""
    await letters.send([letter_of(topic)])
    await pulsar_server.unload(f"{topic}-billing-DLQ")
    (outcome,) = await letters.send([letter_of(topic)])
    assert outcome.kind is OutcomeKind.DURABLE


async def test_producers_of_many_topics_are_closed_again(
    pulsar_server: PulsarServer, topic: str
) -> None:
    """A consumer of a pattern has as many dead-letter topics as topics."""
    letters = PulsarDeadLetters(service_url=pulsar_server.service_url, initial_subscription=None)
    outcomes = await letters.send([letter_of(f"{topic}-{n}") for n in range(MOST + 3)])
    assert {outcome.kind for outcome in outcomes} == {OutcomeKind.DURABLE}
    open_ones = MOST + 3
    async with asyncio.timeout(300):
        while open_ones != MOST:
            names = [f"{topic}-{n}-billing-DLQ" for n in range(MOST + 3)]
            stats = await asyncio.gather(*map(pulsar_server.stats, names))
            open_ones = sum(len(each[0]["publishers"]) for each in stats)
    await letters.aclose()


async def test_letter_that_is_written_twice_has_the_same_origin(
    pulsar_server: PulsarServer, letters: PulsarDeadLetters, topic: str
) -> None:
    """Pulsar trap 23: its record's ack was lost, and it was given up again."""
    for attempts in (5, 6):
        await letters.send([letter_of(topic, attempts=attempts)])
    found = await asyncio.to_thread(read, pulsar_server, f"{topic}-billing-DLQ", 2)
    assert {message.properties()["ORIGIN_MESSAGE_ID"] for message in found} == {"17:4:2:3"}


async def test_closed_destination_takes_nothing_and_connects_no_more(
    letters: PulsarDeadLetters, topic: str
) -> None:
    """A letter that comes late is no reason to leave a client open."""
    sending = asyncio.create_task(letters.send([letter_of(topic)]))
    await asyncio.sleep(0)
    await letters.aclose()
    (first,), (second,) = await sending, await letters.send([letter_of(topic)])
    assert first.kind is OutcomeKind.DURABLE
    assert second.kind is OutcomeKind.RETRY
    assert "closed" in str(second.error)


async def test_record_whose_dead_letter_is_refused_stays_open(
    pulsar_server: PulsarServer, topic: str
) -> None:
    """Pulsar trap 23: it is neither acked nor lost, and its neighbours are settled."""
    await pulsar_server.create_topic(topic)
    await pulsar_server.create_subscription(topic, "billing")
    await pulsar_server.create_topic(f"{topic}-billing-DLQ")
    await pulsar_server.terminate(f"{topic}-billing-DLQ")
    await pulsar_server.produce(topic, [b"bad", b"good"])
    async with Consumer(shared_of(pulsar_server, topic), drain_timeout=0.2) as consumer:
        messages = aiter(consumer)
        for _ in range(2):
            message = await anext(messages)
            if message.value == b"bad":
                message.reject("no")
            else:
                message.ack()
        async with asyncio.timeout(300):
            while await pulsar_server.backlog(topic, "billing") != 1:
                await asyncio.sleep(0.05)
    async with Consumer(shared_of(pulsar_server, topic), drain_timeout=0.2) as consumer:
        assert (await anext(aiter(consumer))).value == b"bad"


def shared_of(server: PulsarServer, topic: str) -> PulsarAdapter:
    """A consumer's adapter; with what a restart begins."""
    return PulsarAdapter(
        topic, service_url=server.service_url, subscription="billing", type="shared"
    )


async def test_cancelled_sends_leave_a_destination_that_works_and_closes(
    letters: PulsarDeadLetters, topic: str
) -> None:
    """Cancelled while the producer is made, or while a letter is under way."""
    for _ in range(20):
        sending = asyncio.create_task(letters.send([letter_of(topic)]))
        await asyncio.sleep(0)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    (outcome,) = await letters.send([letter_of(topic)])
    assert outcome.kind is OutcomeKind.DURABLE


@pytest.mark.parametrize(
    "options, message",
    [
        ({"topic": " "}, "give a name"),
        ({"initial_subscription": ""}, "give a name, or None"),
        ({"encryption_keys": ["k"]}, "give both"),
        ({"service_ur": "x"}, "did you mean service_url="),
        ({"service_url": "http://h:1"}, "pulsar://host:port"),
        ({"tokn": "t"}, "did you mean token="),
    ],
)
def test_option_that_cannot_work_is_an_error(options: dict[str, Any], message: str) -> None:
    """When it is built."""
    with pytest.raises(ConfigurationError, match=message):
        PulsarDeadLetters(**{"service_url": "pulsar://h:6650"} | options)


@pytest.mark.parametrize("kind", ["exclusive", "shared", "key_shared"])
async def test_poison_in_a_batch_goes_to_the_adapters_dead_letters_alone(
    pulsar_server: PulsarServer, topic: str, kind: Any
) -> None:
    """Pulsar trap 11: Pulsar's own dead letters take the whole entry; here one of five is one letter."""
    await pulsar_server.create_topic(topic)
    await pulsar_server.create_subscription(topic, "billing")
    ids = await pulsar_server.produce(topic, [b"%d" % n for n in range(5)], batch=True)
    adapter = PulsarAdapter(
        topic,
        service_url=pulsar_server.service_url,
        admin_url=pulsar_server.admin_url,
        subscription="billing",
        type=kind,
    )
    seen: list[tuple[bytes | None, int]] = []

    async def handle(message: Message) -> None:
        seen.append((message.value, message.attempt))
        if message.value == b"2":
            raise ValueError("poison")
        if message.value == b"3":
            raise Reject("bad")

    consumer = Consumer(adapter, retry=RetryPolicy(max_attempts=3, initial=0.01))
    running = asyncio.create_task(consumer.run(handle, concurrency=10, ordering=Ordering.NONE))
    name = f"{topic}-billing-DLQ"
    async with asyncio.timeout(300):
        while consumer.stats().dead_lettered < 2:
            await asyncio.sleep(0.05)
    await consumer.aclose()
    await asyncio.gather(running, return_exceptions=True)
    found = await asyncio.to_thread(read, pulsar_server, name, 2)
    by_value = {message.data(): message.properties() for message in found}
    assert [pair for pair in seen if pair[0] == b"2"] == [(b"2", 1), (b"2", 2), (b"2", 3)]
    assert by_value[b"2"]["dlq.attempts"] == "3"
    assert by_value[b"2"]["RECONSUMETIMES"] == "2"
    assert by_value[b"3"]["dlq.error"] == "bad"
    ledger, entry, index = place_of(ids[2])
    assert by_value[b"2"]["ORIGIN_MESSAGE_ID"] == f"{ledger}:{entry}:-1:{index}"
    assert await pulsar_server.backlog(topic, "billing") == 0
