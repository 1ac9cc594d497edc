"""The example with two consumers in one process, of two brokers."""

from __future__ import annotations

import signal
from pathlib import Path
from urllib.parse import urlencode

import pytest
from aiokafka import AIOKafkaProducer

from consumer_sdk.testing.servers import KafkaServer, KinesisServer
from tests.examples.running import example, lines

pytestmark = [pytest.mark.kafka, pytest.mark.kinesis]


async def test_both_consumers_of_the_process_go_on_where_they_were(
    kafka_server: KafkaServer, kinesis_server: KinesisServer, tmp_path: Path
) -> None:
    """One SIGTERM ends both; what they had settled they do not see again. A bad click costs no good one."""
    await kafka_server.create_topic("several-orders", partitions=1)
    for stream in ("several-clicks", "several-dead"):
        await kinesis_server.create_stream(stream)
    options = {"group": "several", "endpoint_url": kinesis_server.endpoint_url}
    options["dead_letter_stream"] = "several-dead"
    query = urlencode({**options, **kinesis_server.credentials})
    urls = [f"kafka://{kafka_server.bootstrap_servers}/several-orders?group=several"]
    urls += [f"kinesis://{kinesis_server.region}/several-clicks?{query}"]
    for number in (1, 2):
        order = b'{"customer": "ann", "amount": %d}' % number
        async with AIOKafkaProducer(bootstrap_servers=kafka_server.bootstrap_servers) as producer:
            await producer.send_and_wait("several-orders", order)
        clicks = [("ann", b"[]"), ("ann", b'{"page": "/%d"}' % number), ("ann", b"{}")]
        await kinesis_server.put("several-clicks", clicks)
        async with example("several.py", *urls, "--store", str(tmp_path / "clicks.db")) as process:
            assert sorted(await lines(process, 2)) == [f"charged ann {number}", f"seen /{number}"]
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
