"""The examples whose web framework runs the consumer, served by uvicorn as a reader would."""

from __future__ import annotations

import asyncio
import json
import signal
import sys

import pytest
from aiokafka import AIOKafkaProducer

from consumer_sdk.testing.servers import KafkaServer
from tests.admin.asking import ask
from tests.examples.running import EXAMPLES, example, held_port, lines, program

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize(
    "framework", ["fastapi", pytest.param("litestar", marks=pytest.mark.campaign)]
)
async def test_lifespan_answers_probes_and_finishes_what_it_has_in_hand_at_sigterm(
    kafka_server: KafkaServer, framework: str
) -> None:
    """What was in a handler at SIGTERM is finished and durable: the next run does not see it."""
    topic = f"lifespan-{framework}"
    await kafka_server.create_topic(topic, partitions=1)
    options = ("--kafka", kafka_server.bootstrap_servers, "--topic", topic)
    await _order(kafka_server, topic, "ann", seconds=0)
    with held_port() as port:
        at = f"http://127.0.0.1:{port}/"
        async with example(f"with_{framework}.py", *options, "--port", port) as process:
            assert await lines(process, 2) == ["begins ann", "ends ann"]
            assert (await ask(at, "/totals")).json == {"ann": 5}
            for probe in ("/healthz", "/readyz"):
                assert (await ask(at, probe)).status == 200
            assert (await ask(at, "/nothing")).status == 404
            await _order(kafka_server, topic, "bob", seconds=1)
            assert await lines(process, 1) == ["begins bob"]
            process.send_signal(signal.SIGTERM)
            rest, _ = await process.communicate()
            assert rest.decode().splitlines() == ["ends bob"]
            assert process.returncode == -signal.SIGTERM  # uvicorn raises it again in the end
        await _order(kafka_server, topic, "cid", seconds=0)
        async with example(f"with_{framework}.py", *options, "--port", port) as process:
            assert await lines(process, 2) == ["begins cid", "ends cid"]
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == -signal.SIGTERM


@pytest.mark.parametrize(
    "framework", [pytest.param("fastapi", marks=pytest.mark.campaign), "litestar"]
)
async def test_lifespan_whose_consumer_fails_says_so_at_once(
    kafka_server: KafkaServer, framework: str
) -> None:
    """In the log and by the probes; the server serves on, until it is ended."""
    options = ("--kafka", kafka_server.bootstrap_servers, "--topic", f"absent-{framework}")
    with held_port() as port:
        at = f"http://127.0.0.1:{port}/"
        command = (sys.executable, str(EXAMPLES / f"with_{framework}.py"), *options, "--port", port)
        async with program(*command, stderr=asyncio.subprocess.STDOUT) as process:
            while not (await lines(process, 1))[0].endswith("check the name, or create it first"):
                assert process.returncode is None
            while (await _status(at, "/totals")) != 200:
                await asyncio.sleep(
                    0.02
                )  # it listens when its lifespan has begun, which may be later
            for probe in ("/healthz", "/readyz"):
                assert (await ask(at, probe)).status == 503
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == -signal.SIGTERM


async def _status(at: str, path: str) -> int | None:
    try:
        return (await ask(at, path)).status
    except OSError:
        return None


async def _order(kafka: KafkaServer, topic: str, customer: str, *, seconds: int) -> None:
    order = {"customer": customer, "amount": 5, "seconds": seconds}
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        await producer.send_and_wait(topic, json.dumps(order).encode())
