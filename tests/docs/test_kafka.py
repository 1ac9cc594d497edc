"""docs/transactions.md: an invoice is written for each order, also after a kill. docs/share-groups.md: jobs are done once."""

from __future__ import annotations

import asyncio
import json

import pytest

from consumer_sdk.testing.servers import KafkaServer
from tests.adapters.kafka.harness import KafkaHarness
from tests.adapters.kafka.transactions.ledger import outputs_of
from tests.docs.pages import Page

pytestmark = pytest.mark.kafka

TRANSACTIONS = Page("transactions")
SHARE_GROUPS = Page("share-groups")
ORDERS = 20


async def test_each_order_has_one_invoice_after_a_kill(kafka_server: KafkaServer) -> None:
    """invoices.py is killed when it has written some, and started again."""
    servers = kafka_server.bootstrap_servers
    async with KafkaHarness(servers) as kafka:
        for topic in ("orders", "invoices"):
            await kafka.create_topic(topic)
        for orders in (range(ORDERS), range(ORDERS, 2 * ORDERS)):
            for number in orders:
                order = json.dumps({"order": number, "amount": 10}).encode()
                await kafka.producer.send_and_wait("orders", order, key=b"%d" % number)
            with TRANSACTIONS.running("python invoices.py billing-1", KAFKA=servers) as invoices:
                while len(found := await outputs_of(servers, "invoices")) < orders.stop:
                    await asyncio.sleep(0.1)
                invoices.kill()
            await kafka.end_sessions("billing")
    values = [json.loads(record.value) for record in found]
    assert [value["order"] for value in values] == list(range(2 * ORDERS))
    assert values[0] == {"order": 0, "total": 12.0}


async def test_jobs_of_a_share_group_are_done_once(kafka_server: KafkaServer) -> None:
    """What waits for its retry holds up no other, what is no job is a dead letter, and what is done stays so."""
    servers = kafka_server.bootstrap_servers
    async with KafkaHarness(servers) as kafka:
        await kafka.create_topic("images")
        for name in ("remote/1.png", "notes.txt", *(f"{n}.png" for n in range(ORDERS))):
            await kafka.producer.send_and_wait("images", name.encode())
        with SHARE_GROUPS.running("python resize.py", KAFKA=servers) as worker:
            shown = "\n" * (ORDERS + 1) + "^C\n"
            lines = await asyncio.to_thread(worker.until_interrupted, shown)
        with SHARE_GROUPS.running("python resize.py", KAFKA=servers) as worker:
            await kafka.producer.send_and_wait("images", b"last.png")
            last = await asyncio.to_thread(worker.lines, 1)
    assert sorted(lines.splitlines()) == sorted(
        [
            "^C",
            *(f"resized {n}.png at attempt 1" for n in range(ORDERS)),
            "resized remote/1.png at attempt 2",
        ]
    )
    assert last == "resized last.png at attempt 1\n"
