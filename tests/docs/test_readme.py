"""README.md: short, and its programs run. A forge shows no included file, so each stands there whole.

`tests/spark_bridge/test_docs_programs.py` runs the one for Spark. The programs get a topic of the test's own, because all tests share the server.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from consumer_sdk.testing.servers import KafkaServer
from tests.docs.pages import Page

PAGE = Page("readme")
AMOUNTS = {"ann": [5, 7], "bob": [2]}


def test_readme_is_short() -> None:
    """Below 150 lines."""
    assert PAGE.text.count("\n") < 150


def test_programs_are_the_files_that_the_tests_run() -> None:
    """Each block of Python, without the end of the file's last line."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.text, re.MULTILINE | re.DOTALL)
    files = [path.read_text(encoding="utf-8") for path in PAGE.snippets.glob("*.py")]
    assert sorted(blocks) == sorted(files)


@pytest.mark.kafka
def test_service_charges_the_good_orders(kafka_server: KafkaServer, tmp_path: Path) -> None:
    """Of each customer."""
    asyncio.run(send_orders(kafka_server, "readme-orders"))
    programs = PAGE.copied(tmp_path, {"/orders": "/readme-orders"})
    servers = kafka_server.bootstrap_servers
    with programs.running("python charge_orders.py", KAFKA=servers) as service:
        charged = sorted(service.lines(3).splitlines())
        assert charged == ["charged ann 5", "charged ann 7", "charged bob 2"]
        assert service.until_interrupted("^C\n") == "^C\n"


async def send_orders(server: KafkaServer, topic: str) -> None:
    """Three orders, and one whose amount is 0."""
    await server.create_topic(topic, partitions=1)
    orders = [(name, each) for name, amounts in AMOUNTS.items() for each in amounts]
    async with AIOKafkaProducer(bootstrap_servers=server.bootstrap_servers) as producer:
        for customer, amount in [*orders, ("bob", 0)]:
            order = json.dumps({"customer": customer, "amount": amount}).encode()
            await producer.send_and_wait(topic, order, key=customer.encode())
