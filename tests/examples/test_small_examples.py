"""The short examples, run as a reader would run them."""

from __future__ import annotations

import json
import signal
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, OffsetAndMetadata, TopicPartition

from consumer_sdk.testing.servers import KafkaServer
from tests.adapters.kafka.harness import KafkaHarness
from tests.admin.asking import ask, watching
from tests.examples.running import example, held_port, lines

pytestmark = pytest.mark.kafka


async def send(kafka: KafkaServer, topic: str, *values: bytes) -> None:
    """Produces values with one key."""
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for value in values:
            await producer.send_and_wait(topic, value, key=b"ann")


async def test_service_with_a_bad_order_goes_on_and_stops_on_sigterm(
    kafka_server: KafkaServer,
) -> None:
    """Good orders are handled in order, a rejected one stops nobody, SIGTERM ends with 0."""
    amounts = (5, 0, 7)
    orders = [json.dumps({"customer": "ann", "amount": amount}).encode() for amount in amounts]
    await kafka_server.create_topic("service-orders", partitions=1)
    await send(kafka_server, "service-orders", *orders)
    options = ("--kafka", kafka_server.bootstrap_servers, "--topic", "service-orders")
    async with example("service.py", *options) as process:
        assert await lines(process, 2) == ["charged ann 5", "charged ann 7"]
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_observed_service_answers_traces_and_stops_on_sigterm(
    kafka_server: KafkaServer,
) -> None:
    """Its own route, the probe and the metrics; a span on the console; SIGTERM ends it."""
    await kafka_server.create_topic("observed-orders", partitions=1)
    await send(kafka_server, "observed-orders", b'{"customer": "ann", "amount": 5}')
    options = ("--kafka", kafka_server.bootstrap_servers, "--topic", "observed-orders")
    with held_port() as port:
        await _see_observed(port, *options)


async def _see_observed(port: str, *options: str) -> None:
    async with example("observed.py", *options, "--port", port) as process:
        (line,) = await lines(process, 1)
        span = json.loads(line)
        assert (span["name"], span["kind"]) == ("process observed-orders", "SpanKind.CONSUMER")
        at = f"http://127.0.0.1:{port}/"
        assert (await ask(at, "/totals")).json == {"ann": 5}
        assert (await ask(at, "/consumer/readyz")).status == 200
        assert b"consumer_sdk_settled_total{" in (await ask(at, "/consumer/metrics")).body
        assert b"page.js" in (await ask(at, "/consumer/")).body
        async with watching(at, "/consumer") as frames:
            assert (await anext(frames))["consumers"][0]["state"] == "running"
            process.send_signal(signal.SIGTERM)
            states = [frame["consumers"][0]["state"] async for frame in frames]
            assert states[-1] == "closed"
            assert await process.wait() == -signal.SIGTERM  # uvicorn raises it again in the end


@pytest.mark.parametrize("style", [pytest.param([], marks=pytest.mark.campaign), ["--batches"]])
async def test_pull_run_twice_goes_on_where_it_was(
    kafka_server: KafkaServer, style: list[str]
) -> None:
    """What one run acked and flushed, the next one does not see."""
    topic = f"pull-orders{''.join(style)}"
    await kafka_server.create_topic(topic, partitions=1)
    await send(kafka_server, topic, b"one", b"two")
    options = ("--kafka", kafka_server.bootstrap_servers, "--topic", topic, "--count", "2")
    async with example("pull.py", *options, *style) as process:
        first = await lines(process, 1)
        assert await process.wait() == 0
    assert first == (["2 messages"] if style else ["0 b'one'"])
    await send(kafka_server, topic, b"three", b"four")
    async with example("pull.py", *options) as process:
        assert await lines(process, 2) == ["2 b'three'", "3 b'four'"]
        assert await process.wait() == 0  # it has left the group, which the next test joins


async def test_fan_out_settles_a_record_with_its_last_line(kafka_server: KafkaServer) -> None:
    """Lines are handled by tasks; what one run has settled, the next one does not see."""
    await kafka_server.create_topic("carts", partitions=1)
    cart = b"\n".join(json.dumps({"item": item}).encode() for item in ("apple", "pear"))
    await send(kafka_server, "carts", cart, b'{"item": "fig"}\nno item', b'{"item": "plum"}')
    options = ("--kafka", kafka_server.bootstrap_servers, "--topic", "carts")
    async with example("fan_out.py", *options) as process:
        packed = await lines(process, 4)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    assert sorted(packed) == [f"packed {item}" for item in ("apple", "fig", "pear", "plum")]
    await send(kafka_server, "carts", b'{"item": "kiwi"}')
    async with example("fan_out.py", *options) as process:
        assert await lines(process, 1) == ["packed kiwi"]


@dataclass(frozen=True, slots=True)
class Pricing:
    """Orders, and the prices that the example makes of them."""

    kafka: KafkaServer
    prices: AIOKafkaConsumer
    orders: str
    options: tuple[str, ...]

    async def order(self, *amounts: int, key: bytes | None = b"ann") -> None:
        """Sends orders."""
        async with AIOKafkaProducer(bootstrap_servers=self.kafka.bootstrap_servers) as producer:
            for amount in amounts:
                await producer.send_and_wait(self.orders, b'{"amount": %d}' % amount, key=key)

    async def published(self, count: int) -> list[tuple[str, int]]:
        """The next prices, with the names of their orders."""
        found = [json.loads((await anext(self.prices)).value) for _ in range(count)]
        return [(each["order"], each["cents"]) for each in found]

    async def count(self) -> int:
        """How many prices there are."""
        return sum((await self.prices.end_offsets(self.prices.assignment())).values())


@pytest.fixture
async def pricing(kafka_server: KafkaServer) -> AsyncIterator[Pricing]:
    """Topics that a test has for itself; prices need a key, or the broker refuses them."""
    servers, name = kafka_server.bootstrap_servers, f"publish-{uuid.uuid4().hex[:8]}"
    orders, to = f"{name}-orders", f"{name}-prices"
    await kafka_server.create_topic(orders, partitions=1)
    async with KafkaHarness(servers) as kafka:
        await kafka.create_topic(to, cleanup_policy="compact")
    options = ("--kafka", servers, "--topic", orders, "--to", to)
    async with AIOKafkaConsumer(
        to, bootstrap_servers=servers, auto_offset_reset="earliest"
    ) as prices:
        yield Pricing(kafka_server, prices, orders, options)


async def test_publish_has_each_price_in_its_topic_and_names_the_order(pricing: Pricing) -> None:
    """Prices in the order of orders, none of a bad one; what was published is settled."""
    await pricing.order(2, 0, 3)
    async with example("publish.py", *pricing.options) as process:
        names = [f"{pricing.orders}/0/{n}" for n in range(4)]
        assert await pricing.published(2) == [(names[0], 500), (names[2], 750)]
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    await pricing.order(4)
    async with example("publish.py", *pricing.options) as process:
        assert await pricing.published(1) == [(names[3], 1000)]
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    assert await pricing.count() == 3


async def test_publish_repeated_has_the_same_names(pricing: Pricing) -> None:
    """Killed and sent back to the beginning, it prices each order again; none is missing."""
    await pricing.order(1, 2, 3)
    async with KafkaHarness(pricing.kafka.bootstrap_servers) as kafka:
        async with example("publish.py", *pricing.options) as process:
            first = await pricing.published(3)
            process.kill()
            await process.wait()
        await kafka.end_sessions("pricing")
        place = {TopicPartition(pricing.orders, 0): OffsetAndMetadata(0, "")}
        async with AIOKafkaConsumer(
            bootstrap_servers=kafka.servers, group_id="pricing", enable_auto_commit=False
        ) as tool:
            tool.assign(list(place))
            await tool.commit(place)
    await pricing.order(4)
    async with example("publish.py", *pricing.options) as process:
        assert await pricing.published(4) == [*first, (f"{pricing.orders}/0/3", 1000)]
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    assert await pricing.count() == 7


async def test_publish_with_a_price_that_the_broker_refuses_goes_on(pricing: Pricing) -> None:
    """That order goes to the dead letters, and no other one."""
    await pricing.order(1, key=None)
    await pricing.order(2)
    servers, letters = pricing.kafka.bootstrap_servers, f"{pricing.orders}-pricing-DLQ"
    await pricing.kafka.create_topic(letters, partitions=1)
    dead = AIOKafkaConsumer(letters, bootstrap_servers=servers, auto_offset_reset="earliest")
    async with example("publish.py", *pricing.options) as process, dead:
        assert await pricing.published(1) == [(f"{pricing.orders}/0/1", 500)]
        assert (await anext(dead)).value == b'{"amount": 1}'
        await pricing.order(3)
        assert await pricing.published(1) == [(f"{pricing.orders}/0/2", 750)]
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    assert await pricing.count() == 2
