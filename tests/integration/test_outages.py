"""A broker that goes away and comes back: what is logged meanwhile, and what waits for it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from textwrap import dedent

import pytest

from consumer_sdk import Consumer, Message
from consumer_sdk.testing.servers import KafkaServer, PulsarServer

GUARD = 300
OUTAGE = 5.0
FEW = 20
"""Lines that an outage of five seconds may have; without limits there were 250."""


async def until_held(consumer: Consumer, count: int) -> None:
    """So many partitions are assigned."""
    async with asyncio.timeout(GUARD):
        while len(consumer.stats().partitions) < count:
            await asyncio.sleep(0.05)


@pytest.mark.campaign
@pytest.mark.kafka
async def test_consumer_opens_on_a_kafka_that_is_being_restarted(
    own_kafka_server: KafkaServer,
) -> None:
    """It tries until connect_timeout, however soon a connection is refused."""
    server = own_kafka_server
    await server.create_topic("orders")
    await server.kill()
    starting = asyncio.create_task(server.start())
    url = f"kafka://{server.bootstrap_servers}/orders?group=g&connect_timeout={GUARD}"
    async with asyncio.timeout(GUARD), Consumer(url) as consumer:
        await until_held(consumer, 1)
    await starting


@pytest.mark.kafka
async def test_outage_of_kafka_is_a_few_lines(
    own_kafka_server: KafkaServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Each place where it failed is still there to be read."""
    await own_kafka_server.create_topic("outage", partitions=4)

    async def handle(_message: Message) -> None:
        """Nothing comes."""

    consumer = Consumer(f"kafka://{own_kafka_server.bootstrap_servers}/outage?group=outage")
    running = asyncio.create_task(consumer.run(handle))
    await until_held(consumer, 4)
    with caplog.at_level(logging.INFO):
        await own_kafka_server.kill()
        await asyncio.sleep(OUTAGE)  # real time: the client's
        said = list(caplog.records)
    consumer.stop()
    await running
    assert 0 < len(said) < FEW
    places = {record.name.removeprefix("consumer_sdk.adapters.kafka.") for record in said}
    assert places >= {"client.connections", "fetch.fetcher", "groups.runner"}
    assert not any(logger.filters for logger in map(logging.getLogger, ("aiokafka", "kazoo")))


PROGRAM = dedent("""
    import asyncio, logging, sys
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    from consumer_sdk import Consumer, Ordering

    async def handle(message):
        pass

    consumer = Consumer(sys.argv[1])
    asyncio.run(consumer.run(handle, ordering=Ordering.NONE))
""")


@pytest.mark.campaign
@pytest.mark.pulsar
async def test_outage_of_pulsar_is_a_few_lines_and_none_of_them_on_stdout(
    own_pulsar_server: PulsarServer,
) -> None:
    """In a process of its own: what the native client logs to is the whole process's."""
    server = own_pulsar_server
    host = server.service_url.removeprefix("pulsar://")
    url = f"pulsar://{host}/orders?subscription=s&operation_timeout=3"
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, url),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert program.stderr is not None
    assert program.stdout is not None
    async with asyncio.timeout(GUARD):
        while b" assigned " not in await program.stderr.readline():
            pass
        await server.kill()
        await asyncio.sleep(OUTAGE)
        program.send_signal(signal.SIGTERM)
        said = (await program.stderr.read()).decode().splitlines()
        assert await program.stdout.read() == b""
        await program.wait()
    assert any(line.startswith("pulsar ") for line in said), said
    assert len(said) < FEW, said
