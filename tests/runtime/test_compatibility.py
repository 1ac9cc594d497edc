"""Subscriptions that redeliver: queues, and logs whose broker hears of each settled record."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from consumer_sdk import AtPosition, ConfigurationError, Consumer, Message, Ordering
from consumer_sdk.abc import CheckpointStore
from consumer_sdk.records import Assignment, Capabilities, Kind, Partition
from consumer_sdk.runtime.compatibility import check, check_ordering, check_start
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing import Faults, MemoryAdapter, MemoryBroker
from consumer_sdk.testing.memory.options import ConsumerKind
from tests.runtime.bench import QUICK, Bench, bench
from tests.runtime.consumer_options import options_of


def subscriber(
    b: Bench,
    kind: ConsumerKind = "shared",
    *,
    adapter: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[Consumer, MemoryAdapter]:
    """A consumer of the stream, and its adapter."""
    made = MemoryAdapter(b.broker, "s", group="g", subscription=kind, **adapter or {})
    options = {
        "retry": QUICK,
        "dead_letters": b.letters,
        "clock": b.simulation.clock,
        "drain_timeout": 0.5,
        **options,
    }
    return Consumer(made, **options), made


async def take(consumer: Consumer, count: int) -> list[Message]:
    """The next messages."""
    return [await anext(consumer) for _ in range(count)]


async def quiet(consumer: Consumer) -> None:
    """Nothing more is handed out."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2):
            await anext(consumer)


def values(messages: list[Message]) -> list[str]:
    """Their values as text."""
    return [(message.value or b"").decode() for message in messages]


def test_consumers_of_a_queue_share_its_records() -> None:
    """Each record is handled once, by one of them; the broker's backlog is empty afterwards."""

    async def test(b: Bench) -> None:
        (first, _), (second, _) = subscriber(b), subscriber(b)
        seen: dict[str, list[Message]] = {"first": [], "second": []}

        async def run(name: str, consumer: Consumer) -> None:
            async def handle(message: Message) -> None:
                seen[name].append(message)

            await b.run(consumer, handle, seconds=5, ordering=Ordering.NONE)

        asyncio.get_running_loop().call_later(1, b.append, *[str(n) for n in range(100)])
        await asyncio.gather(run("first", first), run("second", second))
        assert sorted(values(seen["first"] + seen["second"]), key=int) == [
            str(n) for n in range(100)
        ]
        assert min(len(messages) for messages in seen.values()) == 50
        assert b.broker.backlog("g", "s") == 0

    bench(test)


def test_keys_of_a_key_shared_queue_keep_their_order() -> None:
    """Records of a key run one after another, at one consumer."""

    async def test(b: Bench) -> None:
        (first, _), (second, _) = subscriber(b, "key_shared"), subscriber(b, "key_shared")
        seen: list[str] = []

        async def handle(message: Message) -> None:
            await asyncio.sleep(0.01)
            seen.append(f"{message.key!r} {(message.value or b'').decode()}")

        b.append(*[f"k{n % 7}={n:03}" for n in range(70)])
        runs = [b.run(each, handle, seconds=10, concurrency=20) for each in (first, second)]
        await asyncio.gather(*runs)
        assert len(seen) == 70
        for key in range(7):
            mine = [each for each in seen if f"k{key}" in each]
            assert mine == sorted(mine)

    bench(test)


@pytest.mark.parametrize(
    "kind,options,match",
    [
        ("key_shared", {"start": "latest"}, "leave start= out"),
        ("shared", {"start": AtPosition((1, 0))}, "leave start= out"),
        ("shared", {"application_id": "a"}, "application_id= and max_lag= out"),
        ("key_shared", {"max_lag": 5}, "application_id= and max_lag= out"),
        ("failover", {"max_lag": 5}, "positions that are whole numbers"),
        ("failover", {"application_id": "a", "restart": "from_start"}, "give the consumer a store"),
    ],
)
def test_option_that_a_subscription_cannot_keep_is_refused(
    kind: ConsumerKind, options: dict[str, Any], match: str
) -> None:
    """The broker's subscription keeps positions and acks: nothing else may claim to."""

    async def test(b: Bench) -> None:
        with pytest.raises(ConfigurationError, match=match):
            subscriber(b, kind, **options)

    bench(test)


@pytest.mark.parametrize(
    "kind,ordering",
    [
        ("shared", Ordering.KEY),
        ("shared", Ordering.PARTITION),
        ("key_shared", Ordering.PARTITION),
    ],
)
def test_order_that_a_queue_does_not_keep_is_refused(
    kind: ConsumerKind, ordering: Ordering
) -> None:
    """Before the consumer is opened, with what to do instead."""

    async def test(b: Bench) -> None:
        consumer, _ = subscriber(b, kind)
        with pytest.raises(ConfigurationError, match=r"Ordering\.NONE"):
            await consumer.run(b.see, ordering=ordering)

    bench(test)


def test_cumulative_ack_on_a_queue_is_a_usage_error() -> None:
    """What came before may be another consumer's."""

    async def test(b: Bench) -> None:
        b.append("1", "2")
        consumer, _ = subscriber(b)
        async with consumer:
            _, second = await take(consumer, 2)
            with pytest.raises(ConfigurationError, match="a queue has no order"):
                second.ack_cumulative()
            assert second.ack()
        assert b.broker.backlog("g", "s") == 1

    bench(test)


@pytest.mark.parametrize("kind", ["shared", "failover"])
def test_reconnect_delivers_nothing_twice_and_newest_handles_ack(kind: ConsumerKind) -> None:
    """In flight, waiting for a retry, settled but not flushed: each is recognised."""

    async def test(b: Bench) -> None:
        b.append("flying", "retrying", "settled", "queued")
        consumer, adapter = subscriber(b, kind, flush_interval=1.0)
        async with consumer:
            flying, retrying, settled = await take(consumer, 3)
            await consumer.flush()
            retrying.nack(5.0)
            settled.ack()
            adapter.disconnect()
            await asyncio.sleep(0.5)
            (queued,) = await take(consumer, 1)
            await quiet(consumer)
            assert flying.ack()
            assert queued.ack()
            (again,) = await take(consumer, 1)
            assert (again.value, again.attempt) == (b"retrying", 2)
            again.ack()
            await consumer.flush()
            assert b.broker.backlog("g", "s") == 0
            assert consumer.stats().suppressed == 4

    bench(test)


@pytest.mark.parametrize("kind", ["shared", "failover"])
def test_acks_that_were_lost_are_sent_again(kind: ConsumerKind) -> None:
    """The broker redelivers what it has not heard of: suppressed, and acked again."""

    async def test(b: Bench) -> None:
        b.append(*"abc")
        faults = Faults()
        faults.fail_next("acks", times=2)
        consumer, _ = subscriber(b, kind, adapter={"faults": faults})
        async with consumer:
            for message in await take(consumer, 3):
                message.ack()
            await consumer.flush()
            assert b.broker.backlog("g", "s") == 3
            await quiet(consumer)
            assert b.broker.backlog("g", "s") == 0

    bench(test)


@pytest.mark.parametrize("kind", ["shared", "failover"])
def test_acks_of_a_disconnected_consumer_are_kept(kind: ConsumerKind) -> None:
    """All of them are sent once it is connected again; none was ever told as flushed."""

    async def test(b: Bench) -> None:
        b.append(*"abcd")
        faults = Faults()
        faults.fail_next("commit", times=5)
        consumer, adapter = subscriber(b, kind, adapter={"faults": faults})
        async with consumer:
            first, *rest = await take(consumer, 4)
            first.ack()
            await asyncio.sleep(0.3)
            adapter.disconnect()
            for message in rest:
                message.ack()
            assert b.broker.backlog("g", "s") == 4
            await consumer.flush()
            assert b.broker.backlog("g", "s") == 0
            await quiet(consumer)

    bench(test)


def test_full_group_of_acks_is_flushed_before_its_time() -> None:
    """``flush_count`` for queues, whatever the interval."""

    async def test(b: Bench) -> None:
        b.append(*[str(n) for n in range(30)])
        consumer, _ = subscriber(b, flush_interval=60.0, flush_count=10)
        async with consumer:
            messages = await take(consumer, 30)
            messages[0].ack()
            await consumer.flush()
            for message in messages[1:10]:
                message.ack()
            await asyncio.sleep(1)
            assert b.broker.backlog("g", "s") == 29
            messages[10].ack()
            await asyncio.sleep(0.01)
            assert b.broker.backlog("g", "s") == 19

    bench(test)


@pytest.mark.parametrize("keeps", [False, True])
def test_entry_acked_in_part_comes_again_with_its_open_record_alone(*, keeps: bool) -> None:
    """T11: four of five are settled; the broker may send all five, the handler sees one."""

    async def test(b: Bench) -> None:
        b.broker.append_entry("s", [b"0", b"1", b"2", b"3", b"4"])
        consumer, adapter = subscriber(b, adapter={"batch_index_acks": keeps})
        async with consumer:
            messages = await take(consumer, 5)
            assert [message.position for message in messages] == [(0, at) for at in range(5)]
            for message in messages[:2] + messages[3:]:
                message.ack()
            await consumer.flush()
            messages[2].nack(1.0)
            adapter.disconnect()
            (again,) = await take(consumer, 1)
            assert (again.position, again.attempt) == ((0, 2), 2)
            again.ack()
            await consumer.flush()
            assert b.broker.backlog("g", "s") == 0

    bench(test)


def test_record_of_a_queue_that_keeps_failing_is_dead_lettered() -> None:
    """At the limit, and acked at the broker only when the dead letter is durable."""

    async def test(b: Bench) -> None:
        b.append("bad", "good")
        b.letters.failures = 1

        async def handle(message: Message) -> None:
            b.seen.append(message)
            if message.value == b"bad":
                raise ValueError("cannot")

        consumer, _ = subscriber(b)
        await b.run(consumer, handle, seconds=30, ordering=Ordering.NONE)
        assert b.values == ["bad", "good", "bad", "bad"]
        assert [letter.attempts for letter in b.letters.kept] == [3]
        assert b.broker.backlog("g", "s") == 0

    bench(test)


def test_what_a_killed_consumer_held_goes_to_another() -> None:
    """Also what it had never been handed; nothing that it had settled and flushed."""

    async def test(b: Bench) -> None:
        b.append(*[str(n) for n in range(6)])
        doomed, adapter = subscriber(b)
        await doomed.__aenter__()
        first, second = await take(doomed, 2)
        first.ack()
        await doomed.flush()
        second.ack()
        adapter.crash()
        other, _ = subscriber(b)
        async with other:
            assert values(await take(other, 5)) == ["1", "2", "3", "4", "5"]
        await doomed.aclose()

    bench(test)


def test_failover_consumer_without_a_store_restarts_with_its_holes() -> None:
    """The broker keeps each ack: only what was not settled comes again."""

    async def test(b: Bench) -> None:
        b.append(*[str(n) for n in range(6)])
        consumer, _ = subscriber(b, "failover")
        async with consumer:
            for message in await take(consumer, 6):
                if message.value not in (b"1", b"4"):
                    message.ack()
                    await message.durable()
        consumer, _ = subscriber(b, "failover")
        async with consumer:
            assert values(await take(consumer, 2)) == ["1", "4"]
            await quiet(consumer)

    bench(test)


@pytest.mark.parametrize("store", [None, MemoryStore()])
def test_latest_of_a_failover_subscription_is_pinned(store: MemoryStore | None) -> None:
    """A restart before the first ack leaves no gap."""

    async def test(b: Bench) -> None:
        b.append("old")
        consumer, _ = subscriber(b, "failover", store=store, start="latest")
        async with consumer:
            await quiet(consumer)
        b.append("between")
        consumer, _ = subscriber(b, "failover", store=store, start="latest")
        async with consumer:
            assert values(await take(consumer, 1)) == ["between"]

    bench(test)


def test_flush_to_a_store_is_done_when_the_broker_has_answered_too() -> None:
    """The store comes first; what the broker did not take is put back, and told with the next."""

    async def test(b: Bench) -> None:
        b.append("a", "b")
        store, faults = MemoryStore(), Faults()
        consumer, _ = subscriber(b, "failover", store=store, adapter={"faults": faults})
        async with consumer:
            first, second = await take(consumer, 2)
            faults.fail_next("commit", times=3)
            first.ack()
            durable = asyncio.ensure_future(first.durable())
            await asyncio.sleep(0.15)
            (text,) = (await store.peek("g", [Partition("s", "0")])).values()
            assert text is not None
            assert '"watermark":"0:0"' in text
            assert (b.broker.backlog("g", "s"), durable.done()) == (2, False)
            await durable
            assert b.broker.backlog("g", "s") == 1
            assert consumer.stats().flushes >= 4
            second.ack()

    bench(test)


def test_broker_is_not_told_of_what_the_store_refused() -> None:
    """A crash then would lose what the store does not know."""

    async def test(b: Bench) -> None:
        b.append("a", "b")
        faults = Faults()
        store = MemoryStore(faults=faults)
        consumer, _ = subscriber(b, "failover", store=store)
        async with consumer:
            first, _ = await take(consumer, 2)
            faults.fail_next("save", times=2)
            faults.fail_next("read_back", times=2)
            first.ack()
            await asyncio.sleep(0.12)
            assert b.broker.backlog("g", "s") == 2
            await consumer.flush()
            assert b.broker.backlog("g", "s") == 1

    bench(test)


def test_crash_between_store_and_broker_repeats_nothing() -> None:
    """The store's checkpoint suppresses what the broker redelivers, and it is acked again."""

    async def test(b: Bench) -> None:
        b.append(*[str(n) for n in range(5)])
        store, faults = MemoryStore(), Faults()
        doomed, adapter = subscriber(b, "failover", store=store, adapter={"faults": faults})
        await doomed.__aenter__()
        messages = await take(doomed, 5)
        faults.fail_next("commit", times=100)
        for message in (messages[0], messages[1], messages[3]):
            message.ack()
        await asyncio.sleep(0.15)
        adapter.crash()
        assert b.broker.backlog("g", "s") == 5
        consumer, _ = subscriber(b, "failover", store=store.handle())
        async with consumer:
            assert values(await take(consumer, 2)) == ["2", "4"]
            await quiet(consumer)
            assert b.broker.backlog("g", "s") == 2
        await doomed.aclose()

    bench(test)


@pytest.mark.parametrize("kind", ["shared", "failover"])
def test_deleted_stream_ends_the_holding(kind: ConsumerKind) -> None:
    """GONE: nobody can ack there any more, and the consumer goes on."""

    async def test(b: Bench) -> None:
        b.append("a")
        b.broker.create_stream("t")
        adapter = MemoryAdapter(b.broker, "s", "t", group="g", subscription=kind)
        consumer = Consumer(adapter, clock=b.simulation.clock, drain_timeout=0.5)
        async with consumer:
            (message,) = await take(consumer, 1)
            b.broker.delete_stream("s")
            message.ack()
            b.broker.append("t", b"b")
            assert values(await take(consumer, 1)) == ["b"]
            assert [p.stream for p in consumer.stats().partitions] == ["t"]

    bench(test)


def test_subscription_of_another_kind_is_refused_at_open() -> None:
    """As Pulsar does, and with a reason."""

    async def test(b: Bench) -> None:
        first, _ = subscriber(b, "shared")
        async with first:
            second, _ = subscriber(b, "failover")
            with pytest.raises(ConfigurationError, match="of kind 'shared'"):
                async with second:
                    pass

    bench(test)


def test_broker_hears_of_the_store_s_checkpoint_right_after_the_start() -> None:
    """A crash between save and commit left lag tools behind until the next ack."""

    async def test(b: Bench) -> None:
        b.append("a", "b")
        store, faults = MemoryStore(), Faults()
        doomed, adapter = subscriber(b, "group", store=store, adapter={"faults": faults})
        await doomed.__aenter__()
        first, _ = await take(doomed, 2)
        faults.fail_next("commit", times=100)
        first.ack()
        await doomed.flush()
        adapter.crash()
        assert b.committed() == {}
        consumer, _ = subscriber(b, "group", store=store.handle())
        async with consumer:
            await take(consumer, 1)
            await asyncio.sleep(1)
            assert b.committed() == {"0": 1}
        await doomed.aclose()

    bench(test)


def test_consumer_without_the_store_has_the_last_word() -> None:
    """What it has settled is not delivered again because a store does not know of it."""

    async def test(b: Bench) -> None:
        b.append(*"abc")
        store = MemoryStore()
        async with subscriber(b, "group", store=store)[0] as consumer:
            (await take(consumer, 1))[0].ack()
        async with subscriber(b, "group")[0] as consumer:
            for message in await take(consumer, 2):
                message.ack()
        assert b.committed() == {"0": 3}
        async with subscriber(b, "group", store=store)[0] as consumer:
            b.append("d")
            assert [message.value for message in await take(consumer, 1)] == [b"d"]

    bench(test)


def test_url_opens_a_queue() -> None:
    """``&subscription=shared``."""
    broker = MemoryBroker("queues")
    adapter = MemoryAdapter.from_url("memory://queues/s?group=g&subscription=key_shared")
    assert (adapter.memory, adapter.capabilities.kind.value) == (broker, "queue")
    assert adapter.capabilities.keeps_key_order


# -- the checks by themselves -----------------------------------------------------------------


class Able:
    """An adapter that can do what its capabilities say."""

    broker, group = "able", "g"

    def __init__(self, **capabilities: Any) -> None:
        self.capabilities = Capabilities(**capabilities)

    def gaps(self, positions: Any) -> list[int]:
        """None is missing."""
        return []

    def identity(self, assignment: Assignment) -> None:
        """Streams have none here."""


class Leaseless:
    """A store whose kind has no leases."""

    leases = CheckpointStore.leases


ANEW: dict[str, Any] = {"restart": "from_start", "application_id": "a"}


@pytest.mark.parametrize(
    "capabilities, options, words",
    [
        ({"tells_new": False}, {"start": "earliest"}, None),
        ({"tells_new": False}, {"start": "latest"}, "does not tell whether a subscription is new"),
        ({"tells_new": True}, {"start": "latest"}, None),
        ({"metadata_size": 1000}, ANEW, None),
        ({"metadata_size": 999}, ANEW, "no room for one"),
        ({"metadata_size": 1000, "commits": False}, ANEW, "no room for one"),
        ({}, {"max_lag": 5}, None),
        ({"lag_unit": None}, {"max_lag": 5}, "max_lag counts positions"),
    ],
    ids=str,
)
def test_start_is_checked_by_what_the_adapter_can_do(
    capabilities: dict[str, Any], options: dict[str, Any], words: str | None
) -> None:
    """Each refusal says what to leave out."""
    adapter: Any = Able(**capabilities)
    if words is None:
        check_start(adapter, None, options_of(**options))
    else:
        with pytest.raises(ConfigurationError, match=words):
            check_start(adapter, None, options_of(**options))


def test_store_is_refused_where_it_cannot_help() -> None:
    """The broker counts deliveries itself; or the store has no leases, which the adapter needs."""
    store: Any = Leaseless()
    counting: Any = Able(counts_deliveries=True)
    with pytest.raises(ConfigurationError, match="counts the deliveries"):
        check(counting, store, options_of())
    leasing: Any = Able(needs_leases=True)
    for given in (None, store):
        with pytest.raises(ConfigurationError, match="leases in a store do"):
            check(leasing, given, options_of())


def test_log_may_be_read_in_its_order() -> None:
    """A queue has none."""
    log: Any = Able()
    check_ordering(log, Ordering.PARTITION)
    queue: Any = Able(kind=Kind.QUEUE)
    with pytest.raises(ConfigurationError):
        check_ordering(queue, Ordering.PARTITION)
