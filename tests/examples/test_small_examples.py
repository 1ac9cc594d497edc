"""The short examples, run as a reader would run them."""

from __future__ import annotations

import json
import signal

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from consumer_sdk.testing.servers import KafkaServer
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


@pytest.mark.parametrize("style", [[], ["--batches"]])
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


async def test_publish_has_each_price_in_its_topic_and_names_the_order(
    kafka_server: KafkaServer,
) -> None:
    """Prices in the order of orders, none of a bad one; what was published is settled."""
    for topic in ("publish-orders", "publish-prices"):
        await kafka_server.create_topic(topic, partitions=1)
    options = ["--kafka", kafka_server.bootstrap_servers]
    options += ["--topic", "publish-orders", "--to", "publish-prices"]
    prices = AIOKafkaConsumer(
        "publish-prices",
        bootstrap_servers=kafka_server.bootstrap_servers,
        auto_offset_reset="earliest",
    )
    async with prices:
        for amounts in ((2, 0, 3), (4,)):
            await send(kafka_server, "publish-orders", *(b'{"amount": %d}' % n for n in amounts))
            async with example("publish.py", *options) as process:
                found = [await anext(prices) for amount in amounts if amount]
                process.send_signal(signal.SIGTERM)
                assert await process.wait() == 0
            assert [record.key for record in found] == [b"ann"] * len(found)
        last = await prices.end_offsets(prices.assignment())
    assert json.loads(found[0].value) == {"order": "publish-orders/0/3", "cents": 1000}
    assert [*last.values()] == [3]
