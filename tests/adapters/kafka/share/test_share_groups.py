"""Share groups under a consumer, on a real Kafka: retries, dead letters, locks, and who may join."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer

from consumer_sdk import Consumer, Message, Ordering, Reject, Retry, RetryPolicy
from consumer_sdk.adapters.kafka import KafkaAdapter
from consumer_sdk.errors import AdapterError, ConfigurationError, UnreadableRecordError
from consumer_sdk.testing.conformance.adapters import Record
from consumer_sdk.testing.conformance.adapters.harness import Journal, RecordingOwner, open_member
from consumer_sdk.testing.memory import MemoryDeadLetters
from tests.adapters.kafka.java.member import JavaShareMember
from tests.adapters.kafka.share.harness import ShareHarness, consumer_of

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import KafkaServer

pytestmark = pytest.mark.kafka

LOCK = "share.record.lock.duration.ms"
SHORTEST_LOCK = "15000"
"""Milliseconds; the broker takes no shorter one by default."""


@pytest.fixture
async def kafka(kafka_server: KafkaServer) -> AsyncIterator[ShareHarness]:
    """Topics and groups of this test's own."""
    async with ShareHarness(kafka_server.bootstrap_servers) as found:
        yield found


class Handled:
    """What a handler was given, by value; `until` waits for some of it."""

    def __init__(self) -> None:
        self.attempts: dict[bytes, list[int]] = {}
        self._news = asyncio.Event()

    async def note(self, message: Message) -> None:
        """A delivery."""
        self.attempts.setdefault(message.value or b"", []).append(message.attempt)
        self._news.set()

    async def until(self, count: int, patience: float) -> None:
        """Waits for so many values."""
        async with asyncio.timeout(patience):
            while len(self.attempts) < count:
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def running(adapter: KafkaAdapter, handle: Any, **options: Any) -> AsyncIterator[Consumer]:
    """A consumer that runs a handler."""
    async with Consumer(adapter, **options) as consumer:
        task = asyncio.create_task(consumer.run(handle, ordering=Ordering.NONE))
        try:
            yield consumer
        finally:
            consumer.stop()
            await asyncio.wait({task})


async def test_poison_reaches_the_dead_letters_before_it_is_rejected(kafka: ShareHarness) -> None:
    """What a handler rejects, and what fails too often; neither comes again."""
    topic, letters, handled = await kafka.create_stream(), MemoryDeadLetters(), Handled()

    async def handle(message: Message) -> None:
        await handled.note(message)
        if message.value == b"1":
            raise Reject("no such order")
        if message.value == b"2":
            raise ValueError("poison")

    await kafka.append(topic, [Record(b"%d" % n) for n in range(4)])
    retry = RetryPolicy(max_attempts=3, initial=0.0)
    adapter = kafka.make_adapter(topic, "poison")
    async with running(adapter, handle, dead_letters=letters, retry=retry) as consumer:
        await handled.until(4, kafka.patience)
        while consumer.stats().settled < 4:
            await asyncio.sleep(0.01)
    assert handled.attempts == {b"0": [1], b"1": [1], b"2": [1, 2, 3], b"3": [1]}
    assert {letter.value: letter.attempts for letter in letters.letters} == {b"1": 1, b"2": 3}
    again = Handled()
    async with running(kafka.make_adapter(topic, "poison"), again.note):
        await kafka.append(topic, [Record(b"next")])
        await again.until(1, kafka.patience)
    assert again.attempts == {b"next": [1]}


async def test_bytes_that_cannot_be_read_reach_the_dead_letters_and_never_come_again(
    kafka: ShareHarness,
) -> None:
    """With their second delivery; their neighbours are handled."""
    topic, letters, handled = await kafka.create_stream(), MemoryDeadLetters(), Handled()
    await kafka.append(topic, [Record(b"0")])
    await kafka.append_unreadable(topic)
    await kafka.append(topic, [Record(b"2")])
    options = {"dead_letters": letters, "unreadable": "dead_letter"}
    async with running(kafka.make_adapter(topic, "damaged"), handled.note, **options) as consumer:
        async with asyncio.timeout(kafka.patience):
            while consumer.stats().settled < 3:
                await asyncio.sleep(0.01)
    assert handled.attempts.keys() == {b"0", b"2"}
    (letter,) = letters.letters
    assert (letter.position, dict(letter.headers)["unreadable.last"]) == ("1", b"1")
    again = Handled()
    async with running(kafka.make_adapter(topic, "damaged"), again.note, **options):
        await kafka.append(topic, [Record(b"next")])
        await again.until(1, kafka.patience)
    assert again.attempts == {b"next": [1]}
    assert len(letters.letters) == 1


async def test_bytes_that_cannot_be_read_are_kept_before_the_broker_gives_them_up(
    kafka: ShareHarness,
) -> None:
    """Although the consumer is to stop there: it would release them, and nobody would have seen them."""
    topic, letters, handled = await kafka.create_stream(), MemoryDeadLetters(), Handled()
    await kafka.configure_group(f"last-{kafka.uid}", {"share.delivery.count.limit": "3"})
    await kafka.append_unreadable(topic)
    adapter = kafka.make_adapter(topic, "last")
    with pytest.raises(
        UnreadableRecordError, match="cannot be read"
    ):  # released once, and stopped at
        async with asyncio.timeout(kafka.patience):
            await Consumer(adapter, dead_letters=letters).run(
                handled.note, ordering=Ordering.NONE, handle_signals=False
            )
    assert not letters.letters
    await kafka.append(topic, [Record(b"next")])
    adapter = kafka.make_adapter(topic, "last")
    async with running(adapter, handled.note, dead_letters=letters):
        await handled.until(1, kafka.patience)
        async with asyncio.timeout(kafka.patience):
            while not letters.letters:
                await asyncio.sleep(0.01)
    (letter,) = letters.letters
    assert (letter.position, letter.attempts) == ("0", 3)


async def test_records_whose_locks_have_ended_are_handled_by_whoever_gets_them_next(
    kafka: ShareHarness,
) -> None:
    """They wait in the queue of a process that was frozen for longer than a lock: others have them by then."""
    topic, handled, begun, go_on = (
        await kafka.create_stream(),
        Handled(),
        Handled(),
        asyncio.Event(),
    )
    await kafka.append(topic, [Record(b"%d" % n) for n in range(10)])

    async def handle(message: Message) -> None:
        await begun.note(message)
        await go_on.wait()

    adapter = kafka.make_adapter(topic, "frozen")
    async with Consumer(adapter) as consumer:
        task = asyncio.create_task(consumer.run(handle, ordering=Ordering.NONE, concurrency=1))
        async with asyncio.timeout(kafka.patience):
            while consumer.stats().in_flight < 10:
                await asyncio.sleep(0.01)
            for grant in consumer_of(adapter).grants:
                grant.locks.lose(grant.locks.offsets)
            while consumer.stats().in_flight > 1:
                await asyncio.sleep(0.01)
        go_on.set()
        consumer.stop()
        await task
    assert begun.attempts == {b"0": [1]}
    async with running(kafka.make_adapter(topic, "frozen"), handled.note):
        await handled.until(10, kafka.patience)


async def test_record_that_was_delivered_before_comes_with_its_attempt(kafka: ShareHarness) -> None:
    """Whoever had it: the broker counts; the last delivery goes to the dead letters."""
    topic, letters = await kafka.create_stream(), MemoryDeadLetters()
    await kafka.configure_group(f"counted-{kafka.uid}", {"share.delivery.count.limit": "3"})
    await kafka.append(topic, [Record(b"0")])
    for attempt in (1, 2):
        async with Consumer(kafka.make_adapter(topic, "counted"), dead_letters=letters) as consumer:
            assert (await anext(consumer)).attempt == attempt
    async with Consumer(kafka.make_adapter(topic, "counted"), dead_letters=letters) as consumer:
        task = asyncio.create_task(anext(consumer))
        async with asyncio.timeout(kafka.patience):
            while not letters.letters:
                await asyncio.sleep(0.01)
        task.cancel()
    assert [(letter.value, letter.attempts) for letter in letters.letters] == [(b"0", 3)]


@pytest.mark.campaign
async def test_retry_is_held_over_renewals_of_its_lock(kafka: ShareHarness) -> None:
    """No other member gets the record meanwhile, though its lock is shorter than the delay."""
    topic, handled, others = await kafka.create_stream(), Handled(), Handled()
    await kafka.configure_group(f"held-{kafka.uid}", {LOCK: SHORTEST_LOCK})

    async def handle(message: Message) -> None:
        await handled.note(message)
        if message.attempt == 1:
            raise Retry(delay=20.0)

    await kafka.append(topic, [Record(b"0")])
    async with running(kafka.make_adapter(topic, "held"), handle) as consumer:
        await handled.until(1, kafka.patience)
        async with running(kafka.make_adapter(topic, "held"), others.note), asyncio.timeout(60):
            while consumer.stats().settled < 1:
                await asyncio.sleep(0.1)
    assert handled.attempts == {b"0": [1, 2]}
    assert not others.attempts


async def test_record_that_would_wait_too_long_is_released(kafka: ShareHarness) -> None:
    """It comes again at once, here or at another member, as the broker's next delivery."""
    topic, handled = await kafka.create_stream(), Handled()

    async def handle(message: Message) -> None:
        await handled.note(message)
        if message.attempt == 1:
            raise Retry(delay=3600.0)

    await kafka.append(topic, [Record(b"0")])
    adapter = kafka.make_adapter(topic, "released", longest_hold=60.0)
    async with running(adapter, handle) as consumer, asyncio.timeout(kafka.patience):
        while consumer.stats().settled < 2:  # once by giving it back
            await asyncio.sleep(0.01)
    assert handled.attempts == {b"0": [1, 2]}


async def test_records_of_a_member_that_is_killed_come_to_another(kafka: ShareHarness) -> None:
    """When its connection ends, or its locks do: with the next attempt."""
    topic = await kafka.create_stream()
    await kafka.configure_group(f"killed-{kafka.uid}", {LOCK: SHORTEST_LOCK})
    await kafka.append(topic, [Record(b"%d" % n) for n in range(10)])
    handled = Handled()
    dying = kafka.make_adapter(topic, "killed")
    with pytest.raises(AdapterError, match="has ended"):
        async with Consumer(dying) as consumer:
            assert (await anext(consumer)).attempt == 1
            await kafka.crash(dying)
            async with running(kafka.make_adapter(topic, "killed"), handled.note):
                await handled.until(10, kafka.patience)
    assert {tuple(found) for found in handled.attempts.values()} <= {(1,), (2,)}
    assert handled.attempts[b"0"] == [2]


async def test_new_group_begins_where_it_was_set_to_and_else_where_it_is_told(
    kafka: ShareHarness,
) -> None:
    """Nobody's setting is overwritten."""
    topic = await kafka.create_stream()
    await kafka.append(topic, [Record(b"old")])
    await kafka.configure_group(f"set-{kafka.uid}", {"share.auto.offset.reset": "latest"})
    for group, position, wanted in (
        ("new", "earliest", b"old"),
        ("late", "latest", b"new"),
        ("set", "earliest", b"new"),
    ):
        handled = Handled()
        adapter = kafka.make_adapter(topic, group, initial_position=position)
        async with running(adapter, handled.note):
            count = 0
            async with asyncio.timeout(kafka.patience):
                # The broker decides when a member first reads, of which nobody is told.
                while not handled.attempts:
                    if wanted == b"new":
                        await kafka.append(topic, [Record(b"new")])
                        count += 1
                    await asyncio.sleep(0.05)
        assert set(handled.attempts) == ({b"old"} if wanted == b"old" else {b"new"})


async def test_group_of_another_type_is_refused(kafka: ShareHarness) -> None:
    """Before the first record, saying what to do."""
    topic = await kafka.create_stream()
    group = f"typed-{kafka.uid}"
    async with AIOKafkaConsumer(topic, bootstrap_servers=kafka.servers, group_id=group) as other:
        await other.getmany(timeout_ms=200)
        with pytest.raises(ConfigurationError, match="of another type: give another share_group="):
            async with Consumer(kafka.make_adapter(topic, "typed")):
                pass


async def test_topic_that_is_not_there_is_refused(kafka: ShareHarness) -> None:
    """None is created."""
    with pytest.raises(ConfigurationError, match="there is no topic 'absent'"):
        async with Consumer(kafka.make_adapter("absent", "any")):
            pass


async def test_close_gives_back_what_was_not_settled(kafka: ShareHarness) -> None:
    """At once, not when its lock ends; and the group knows the member no more."""
    topic = await kafka.create_stream()
    await kafka.append(topic, [Record(b"%d" % n) for n in range(10)])
    async with Consumer(kafka.make_adapter(topic, "closed")) as consumer:
        first = await anext(consumer)
        first.ack()
    handled = Handled()
    async with running(kafka.make_adapter(topic, "closed"), handled.note):
        await handled.until(9, 12.0)  # a lock has 30 s
    assert first.value not in handled.attempts


@pytest.mark.campaign
async def test_java_and_this_member_share_the_records_of_a_group(kafka: ShareHarness) -> None:
    """Each record is accepted by one of them, and both get some."""
    topic, ours = await kafka.create_stream(), set[int]()

    async def handle(message: Message) -> None:
        ours.add(message.position)

    adapter = kafka.make_adapter(topic, "mixed")
    group, written = adapter.group or "", 0
    async with running(adapter, handle), JavaShareMember(kafka.servers, [topic], group) as java:
        async with asyncio.timeout(kafka.patience):
            while not (ours and java.read) or len(ours) + len(java.read) < written:
                await kafka.append(topic, [Record(b"x") for _ in range(20)])
                written += 20
                while len(ours) + len(java.read) < written:
                    await asyncio.sleep(0.01)
        await java.close()
    assert sorted([*ours, *(offset for _, offset in java.read)]) == list(range(written))
    assert set(java.read.values()) == {1}


async def test_limits_of_the_group_are_known_when_it_is_open(kafka: ShareHarness) -> None:
    """They become the adapter's capabilities."""
    topic = await kafka.create_stream()
    await kafka.configure_group(f"limits-{kafka.uid}", {"share.delivery.count.limit": "7"})
    found: int | None = None
    while found != 6:  # the last but one; a broker hears of it in its own time
        adapter = kafka.make_adapter(topic, "limits")
        async with Consumer(adapter):
            found = adapter.capabilities.max_deliveries
            assert consumer_of(adapter).limits.locks == 2000


async def test_last_deliveries_are_handed_out_before_a_partition_is_taken_away(
    kafka: ShareHarness,
) -> None:
    """Given back, they would be dropped: whoever gets them has their dead letters written first."""
    topic = await kafka.create_stream()
    await kafka.configure_group(f"drained-{kafka.uid}", {"share.delivery.count.limit": "2"})
    await kafka.append(topic, [Record(b"%d" % n) for n in range(5)])
    journal, deliveries = Journal(kafka.patience), 0
    while deliveries != 2:  # a broker hears of it in its own time
        owner = RecordingOwner("first", journal)
        async with open_member(kafka, owner, kafka.make_adapter(topic, "drained")) as first:
            deliveries = consumer_of(first.adapter).limits.deliveries
            await first.holding(1)
            if deliveries == 2:
                await first.read(5)
    async with open_member(
        kafka, RecordingOwner("second", journal), kafka.make_adapter(topic, "drained")
    ) as second:
        (assignment,) = await second.holding(1)
        consumer = consumer_of(second.adapter)
        found = [
            m for run in await second.fetch(max_records=1, max_wait=30.0) for m in run.messages
        ]
        assert len(found) == 1
        (grant,) = consumer.grants
        waiting = grant.buffered
        drained = asyncio.create_task(consumer.drain(consumer.take([tuple(grant.tp)])))
        async with asyncio.timeout(kafka.patience):
            while len(found) < 1 + waiting:
                found += [m for run in await second.fetch() for m in run.messages]
                assert assignment in second.owner.held
        await drained
        assert not second.owner.held
    assert waiting
    assert len({message.position for message in found}) == 1 + waiting
