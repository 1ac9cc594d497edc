"""The example with effects in PostgreSQL, killed where it hurts; real Kafka and real PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import signal
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, OffsetAndMetadata, TopicPartition

from consumer_sdk.testing.servers import JarResolutionError, JavaNotFoundError, KafkaServer
from consumer_sdk.testing.servers.shared import complete
from examples import outbox
from tests.adapters.kafka.harness import KafkaHarness
from tests.examples.postgresql import PostgresqlServer, PostgresqlUnavailableError, fetched
from tests.examples.running import example, lines

pytestmark = pytest.mark.kafka

CUSTOMERS = 5
ORDERS = 60
WAITING = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PostgresqlServer]:
    """One for this file's tests; where none can be had they are skipped, or fail if servers are required."""
    server = PostgresqlServer()
    try:
        try:
            complete(server.start())
        except (JarResolutionError, JavaNotFoundError, PostgresqlUnavailableError) as error:
            pytest.skip(f"no PostgreSQL: {error}")
        yield server
    finally:
        complete(server.aclose())


@dataclass(frozen=True, slots=True)
class Shop:
    """Topics and a database that one test has for itself."""

    kafka: KafkaServer
    database: Any
    url: str
    orders: str
    receipts: str

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.subprocess.Process]:
        """The example; when it has ended, the group forgets its member, if it was killed."""
        arguments = ["--database", self.url, "--kafka", self.kafka.bootstrap_servers]
        arguments += ["--topic", self.orders, "--to", self.receipts]
        async with example("outbox.py", *arguments) as process:
            yield process
        async with KafkaHarness(self.kafka.bootstrap_servers) as kafka:
            await kafka.end_sessions("accounts")

    async def order(self, count: int) -> None:
        """Each of the customers orders for 1, 2, 3, … in turn."""
        async with AIOKafkaProducer(bootstrap_servers=self.kafka.bootstrap_servers) as producer:
            for number in range(count):
                customer = f"customer-{number % CUSTOMERS}"
                order = {"customer": customer, "amount": number // CUSTOMERS + 1}
                await producer.send(self.orders, json.dumps(order).encode(), customer.encode())

    async def rewind(self) -> None:
        """The group begins anew: whatever was settled is delivered again."""
        start = {TopicPartition(self.orders, n): OffsetAndMetadata(0, "") for n in range(2)}
        servers = self.kafka.bootstrap_servers
        async with AIOKafkaConsumer(
            bootstrap_servers=servers, group_id="accounts", enable_auto_commit=False
        ) as tool:
            tool.assign(list(start))
            await tool.commit(start)

    async def until(self, query: str, expected: object) -> None:
        """Asks until the database says so."""
        while await self.database.fetchval(query) != expected:
            await asyncio.sleep(0.02)

    @asynccontextmanager
    async def holding(self, statement: str) -> AsyncIterator[None]:
        """What the statement locks is locked in the block, and nothing of it stays."""
        holder = await asyncpg.connect(self.url)
        try:
            await holder.execute("BEGIN")
            await holder.execute(statement)
            yield
        finally:
            await holder.close()

    async def sent(self) -> list[tuple[str, dict[str, Any]]]:
        """All receipts in the topic, with their ids."""
        place = TopicPartition(self.receipts, 0)
        async with AIOKafkaConsumer(bootstrap_servers=self.kafka.bootstrap_servers) as reader:
            reader.assign([place])
            await reader.seek_to_beginning(place)
            end = (await reader.end_offsets([place]))[place]
            records = [await anext(reader) for _ in range(end)]
        return [(dict(each.headers)["id"].decode(), json.loads(each.value)) for each in records]


@pytest.fixture
async def shop(kafka_server: KafkaServer, postgresql: PostgresqlServer) -> AsyncIterator[Shop]:
    """A shop of its own for each test."""
    name = f"shop_{uuid.uuid4().hex[:8]}"
    await kafka_server.create_topic(f"{name}-orders", partitions=2)
    await kafka_server.create_topic(f"{name}-receipts", partitions=1)
    url = await postgresql.create_database(name)
    async with asyncpg.create_pool(url, min_size=0) as database:
        await database.execute(outbox.TABLES)
        yield Shop(kafka_server, database, url, f"{name}-orders", f"{name}-receipts")


async def test_killed_in_a_transaction_and_behind_it_each_order_is_charged_once(shop: Shop) -> None:
    """Also when the whole topic comes again; and each charge has its receipt, in order."""
    await shop.order(ORDERS)
    hindrance = shop.holding("INSERT INTO accounts VALUES ('customer-0', 0)")
    async with shop.running() as process, hindrance:
        await shop.until(WAITING, 1)  # in a transaction that has noted the order's position
        process.kill()
        await process.wait()
    async with shop.running() as process:
        await lines(process, 10)  # committed; what was acked in the last tenth of a second is not
        process.kill()
        await process.wait()
    await shop.rewind()
    async with shop.running() as process:
        await shop.until("SELECT count(*) FROM handled", ORDERS)
        await shop.until("SELECT count(*) FROM outbox", 0)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    totals = await shop.database.fetch("SELECT customer, total FROM accounts")
    each = ORDERS // CUSTOMERS
    expected = {f"customer-{n}": sum(range(1, each + 1)) for n in range(CUSTOMERS)}
    assert dict(totals) == expected
    receipts = dict(await shop.sent())
    assert len(receipts) == ORDERS
    for customer in expected:
        seen = [
            receipt["total"] for receipt in receipts.values() if receipt["customer"] == customer
        ]
        assert seen == [sum(range(1, n + 1)) for n in range(1, each + 1)]


async def test_killed_between_send_and_delete_a_receipt_is_sent_again_with_its_id(
    shop: Shop,
) -> None:
    """At least once: the row stays until the broker's answer is committed."""
    await shop.database.execute("INSERT INTO outbox (value) VALUES ('{}')")
    async with shop.running() as process, shop.holding("SELECT * FROM outbox FOR UPDATE"):
        await shop.until(WAITING, 1)  # with its DELETE: the broker has the receipt
        process.kill()
        await process.wait()
    async with shop.running() as process:
        await shop.until("SELECT count(*) FROM outbox", 0)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    assert await shop.sent() == [("1", {}), ("1", {})]


async def test_database_that_was_away_costs_no_order(
    shop: Shop, postgresql: PostgresqlServer
) -> None:
    """Orders are retried, and receipts are sent, when it is back."""
    async with shop.running() as process:
        await shop.order(CUSTOMERS)
        await lines(process, CUSTOMERS)
        await postgresql.stop()
        await shop.order(CUSTOMERS)
        await postgresql.start()
        await lines(process, CUSTOMERS)
        await shop.until("SELECT count(*) FROM outbox", 0)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    assert await shop.database.fetchval("SELECT sum(total) FROM accounts") == 2 * CUSTOMERS
    assert len({id_ for id_, _ in await shop.sent()}) == 2 * CUSTOMERS


@pytest.mark.campaign
async def test_fetched_postgresql_serves() -> None:
    """Where Debian's is installed, no other test starts this one."""
    async with PostgresqlServer(programs=await asyncio.to_thread(fetched)) as server:
        client = await asyncpg.connect(await server.create_database("shop"))
        assert await client.fetchval("SELECT 1") == 1
        await client.close()
