"""What a consumer takes in several forms, and how it shows itself."""

from __future__ import annotations

import asyncio
import pickle
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Literal

import pytest

from consumer_sdk import AtPosition, AtTime, ConfigurationError, Consumer, Message, Ordering, Reject
from consumer_sdk.adapters import KafkaAdapter, KinesisAdapter, MemoryAdapter, PulsarAdapter
from consumer_sdk.dead_letters import LocalDeadLetters
from consumer_sdk.records import Partition, Start, StartPoint
from consumer_sdk.runtime.options import LoopClock, parse_ordering, parse_start
from consumer_sdk.stores import LocalStore
from consumer_sdk.testing.memory import MemoryBroker
from tests.runtime.consumer_options import options_of


def test_store_and_dead_letters_given_as_urls_are_opened_and_written(tmp_path: Path) -> None:
    """A consumer that is all URLs keeps its checkpoint and its dead letters in those files."""
    broker = MemoryBroker("urls")
    broker.create_stream("orders")
    state, letters = tmp_path / "state.db", tmp_path / "letters.db"

    async def main() -> None:
        broker.append("orders", b"bad")
        consumer = Consumer(
            "memory://urls/orders?group=billing",
            store=f"sqlite://{state}",
            dead_letters=f"sqlite://{letters}",
        )

        async def handle(_message: Message) -> None:
            consumer.stop()
            raise Reject("no")

        await consumer.run(handle)
        store, kept = LocalStore(state), LocalDeadLetters(letters)
        await store.open()
        await kept.open()
        assert await store.list("billing") == [Partition("orders", "0")]
        assert [stored.letter.value for stored in await kept.read()] == [b"bad"]
        await store.aclose()
        await kept.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("name", ["none", "key", "partition"])
def test_ordering_may_be_given_by_its_name(name: Literal["none", "key", "partition"]) -> None:
    """The name says what the member of the enumeration says; the run goes on as with that."""
    assert Ordering(name).value == name
    broker = MemoryBroker()
    broker.create_stream("orders")
    broker.append("orders", b"1")
    consumer = Consumer(MemoryAdapter(broker, "orders", group="billing"))
    seen = []

    async def handle(message: Message) -> int:
        seen.append(message.value)
        consumer.stop()
        return 1  # what a handler returns is not looked at

    asyncio.run(consumer.run(handle, ordering=name))
    assert seen == [b"1"]


def test_time_may_be_a_datetime_of_any_zone() -> None:
    """It is the moment that counts; processes can hand it on."""
    at = AtTime(datetime(2026, 1, 1, tzinfo=UTC))
    assert at == AtTime(1767225600.0)
    assert at == AtTime(datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))))
    assert pickle.loads(pickle.dumps(at)) == at  # noqa: S301 - our own bytes


@pytest.mark.parametrize("topics", [("a", "b"), (["a", "b"],), (("a", "b"),)])
def test_topics_may_come_in_a_list(topics: tuple[str | list[str], ...]) -> None:
    """As they come out of a configuration file."""
    broker = MemoryBroker()
    kafka = KafkaAdapter(*topics, bootstrap_servers="h:9092", group="g")
    pulsar = PulsarAdapter(*topics, service_url="pulsar://h:6650", subscription="g")
    memory = MemoryAdapter(broker, *topics, group="g")
    assert kafka._options.topics == pulsar._options.topics == ("a", "b")
    assert memory._options.streams == ("a", "b")


def test_consumers_and_adapters_show_what_they_read_and_no_secret() -> None:
    """Logs and warnings name them."""
    secret = "hidden"  # noqa: S105 - of nobody
    kafka = KafkaAdapter(
        "orders",
        bootstrap_servers=["k1:9092", "k2:9092"],
        group="billing",
        security_protocol="SASL_SSL",
        sasl_plain_username="me",
        sasl_plain_password=secret,
    )
    pulsar = PulsarAdapter(
        "orders", service_url="pulsar://h:6650", subscription="billing", token=secret
    )
    kinesis = KinesisAdapter(
        "orders", group="billing", aws_access_key_id="me", aws_secret_access_key=secret
    )
    assert repr(kafka) == (
        "KafkaAdapter('orders', bootstrap_servers='k1:9092,k2:9092', group='billing')"
    )
    assert repr(pulsar) == (
        "PulsarAdapter('orders', service_url='pulsar://h:6650', subscription='billing', "
        "type='exclusive')"
    )
    assert repr(kinesis) == "KinesisAdapter('orders', group='billing')"
    assert repr(Consumer(kafka)) == f"Consumer({kafka!r}, store=None)"
    shown = [repr(each._options) for each in (kafka, pulsar, kinesis)]
    assert secret not in "".join([*shown, repr(kafka.dead_letters()), repr(pulsar.dead_letters())])


@pytest.mark.parametrize(
    "start, expected",
    [
        ("earliest", StartPoint.EARLIEST),
        ("latest", StartPoint.LATEST),
        (StartPoint.EARLIEST, StartPoint.EARLIEST),
        (StartPoint.LATEST, StartPoint.LATEST),
        (AtTime(5.0), AtTime(5.0)),
        (AtPosition(7), AtPosition(7)),
    ],
)
def test_start_is_taken_by_its_name_and_as_it_is(start: Any, expected: Start) -> None:
    """All that the docstring names."""
    assert parse_start(start) == expected
    assert options_of(start=start).start == expected


@pytest.mark.parametrize(
    "options, mistake",
    [
        ({"start": "soon"}, r"start='soon'.*'earliest', 'latest'"),
        ({"start": None}, r"start=None.*'earliest', 'latest'"),
        ({"start": 7}, r"start=7.*'earliest', 'latest'"),
        ({"application_id": ""}, "a text of 1 to 100 characters"),
        ({"application_id": "a" * 101}, "a text of 1 to 100 characters"),
        ({"application_id": 7}, "a text of 1 to 100 characters"),
        ({"application_id": [1]}, "a text of 1 to 100 characters"),
        ({"out_of_range": "none"}, "out_of_range='none'"),
        ({"out_of_range": AtPosition(7)}, "out_of_range=AtPosition"),
        ({"restart": "from_start"}, "give it an application_id="),
        ({"restart": "from_start", "application_id": None}, "give it an application_id="),
        ({"restart": "again"}, "restart='again'"),
        ({"clock": object()}, r"monotonic\(\) and wall\(\)"),
    ],
)
def test_option_that_cannot_work_is_refused_by_its_name(
    options: dict[str, Any], mistake: str
) -> None:
    """When the consumer is made."""
    with pytest.raises(ConfigurationError, match=mistake):
        options_of(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"application_id": "a"},
        {"application_id": "a" * 100},
        {"out_of_range": "fail"},
        {"out_of_range": "earliest"},
        {"out_of_range": "latest"},
        {"out_of_range": AtTime(5.0)},
        {"restart": "from_start", "application_id": "a"},
        {"restart": "resume", "application_id": "a"},
    ],
)
def test_option_that_can_work_is_kept(options: dict[str, Any]) -> None:
    """At the bounds, too."""
    made = options_of(**options)
    assert {name: getattr(made, name) for name in options} == options


def test_ordering_that_there_is_not_is_refused() -> None:
    """With those that there are."""
    assert [parse_ordering(each) for each in ("key", Ordering.NONE)] == [
        Ordering.KEY,
        Ordering.NONE,
    ]
    with pytest.raises(ConfigurationError, match=r"run\(ordering='keys'\): give .*'partition'"):
        parse_ordering("keys")


async def test_clock_of_a_consumer_is_the_loops_and_the_systems() -> None:
    """Positions in time are seconds since the epoch."""
    clock, loop = LoopClock(), asyncio.get_running_loop()
    before = loop.time(), time.time()
    now = clock.monotonic(), clock.wall()
    assert before <= now
    assert now[0] <= loop.time()
    assert before[1] <= now[1] <= time.time()
