"""The example with effects in PostgreSQL, killed where it hurts; real Kafka and real PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import signal
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, OffsetAndMetadata, TopicPartition

from consumer_sdk import Message, Partition, Reject
from consumer_sdk.records import Assignment
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
HELD_UP = WAITING.replace("count(*)", "count(*) > 0") + " AND query LIKE '%INTO handled%'"
END_WAITING = WAITING.replace("count(*)", "pg_terminate_backend(pid)")
HINDRANCE = "INSERT INTO accounts VALUES ('customer-0', 0)"
LATE = """
CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql
AS 'BEGIN PERFORM pg_advisory_xact_lock(2); RETURN NULL; END';
CREATE CONSTRAINT TRIGGER late AFTER DELETE ON outbox
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait();
"""
"""COMMIT waits for whoever has the lock 2."""
REFUSING = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION $$no$$; END';
CREATE TRIGGER refusing BEFORE DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION refuse();
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
        await self.forget()

    async def forget(self) -> None:
        """The group has no member, until one joins."""
        async with KafkaHarness(self.kafka.bootstrap_servers) as kafka:
            await kafka.end_sessions(outbox.GROUP)

    async def order(self, count: int, before: int = 0) -> None:
        """Each of the customers orders for 1, 2, 3, … in turn; some have done so before."""
        async with AIOKafkaProducer(bootstrap_servers=self.kafka.bootstrap_servers) as producer:
            for number in range(before, before + count):
                customer = f"customer-{number % CUSTOMERS}"
                order = {"customer": customer, "amount": number // CUSTOMERS + 1}
                await producer.send(self.orders, json.dumps(order).encode(), customer.encode())

    async def rewind(self) -> None:
        """The group begins anew: whatever was settled is delivered again."""
        start = {TopicPartition(self.orders, n): OffsetAndMetadata(0, "") for n in range(2)}
        servers = self.kafka.bootstrap_servers
        async with AIOKafkaConsumer(
            bootstrap_servers=servers, group_id=outbox.GROUP, enable_auto_commit=False
        ) as tool:
            tool.assign(list(start))
            await tool.commit(start)

    async def until(self, query: str, expected: object) -> None:
        """Asks until the database says so."""
        while await self.database.fetchval(query) != expected:
            await asyncio.sleep(0.02)

    @asynccontextmanager
    async def holding(self, statement: str) -> AsyncIterator[Any]:
        """What the statement locks is locked in the block, and nothing of it stays."""
        holder = await asyncpg.connect(self.url)
        try:
            await holder.execute("BEGIN")
            await holder.execute(statement)
            yield holder
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

    async def check_books(self, count: int) -> None:
        """Each of so many orders was charged once, and has its receipt, in order."""
        rounds = count // CUSTOMERS
        sums = [sum(range(1, n + 1)) for n in range(1, rounds + 1)]
        expected = {f"customer-{n}": sums for n in range(CUSTOMERS)}
        totals = dict(await self.database.fetch("SELECT customer, total FROM accounts"))
        assert totals == dict.fromkeys(expected, sums[-1])
        receipts = dict(await self.sent())
        assert len(receipts) == count
        for customer in expected:
            mine = [each["total"] for each in receipts.values() if each["customer"] == customer]
            assert mine == sums


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


def order(position: int = 0, value: bytes = b'{"customer": "ann", "amount": 5}') -> Message:
    """An order as the handler gets it."""
    assignment = Assignment(Partition("orders", "0"), 1)
    return Message.make(assignment, position, value, timestamp=1_800_000_000_000)


async def test_killed_in_a_transaction_and_behind_it_each_order_is_charged_once(shop: Shop) -> None:
    """Also when the whole topic comes again; and each charge has its receipt, in order."""
    await shop.order(ORDERS)
    async with shop.holding(HINDRANCE), shop.running() as process:
        await shop.until(WAITING, 1)  # in a transaction that has noted the order's position
        process.kill()
        await process.wait()
    async with shop.running() as process:
        await lines(process, 10)  # committed; what was acked in the last tenth of a second is not
        process.kill()
        await process.wait()
    await shop.rewind()
    await shop.order(CUSTOMERS, before=ORDERS)  # each customer's last: all others came before it
    async with shop.running() as process:
        await shop.until("SELECT count(*) FROM handled", ORDERS + CUSTOMERS)
        await shop.until("SELECT count(*) FROM outbox", 0)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    await shop.check_books(ORDERS + CUSTOMERS)


@pytest.mark.campaign
async def test_order_in_the_transaction_of_a_stopped_process_waits_for_it(shop: Shop) -> None:
    """The partitions move to another process meanwhile; both end well, and each order counts once."""
    await shop.order(ORDERS)
    async with shop.holding(HINDRANCE) as holder, shop.running() as stopped:
        await shop.until(WAITING, 1)
        stopped.send_signal(signal.SIGSTOP)
        await shop.forget()
        async with shop.running() as other:
            await shop.until(HELD_UP, True)
            await holder.execute("ROLLBACK")
            stopped.send_signal(signal.SIGCONT)
            await shop.until("SELECT count(*) FROM handled", ORDERS)
            await shop.until("SELECT count(*) FROM outbox", 0)
            for process in (stopped, other):
                process.send_signal(signal.SIGTERM)
                assert await process.wait() == 0
    await shop.check_books(ORDERS)


async def test_topic_made_anew_has_its_own_orders_at_the_same_positions(shop: Shop) -> None:
    """None of them is taken for one that was handled."""
    servers = shop.kafka.bootstrap_servers
    for before in (0, CUSTOMERS):
        await shop.order(CUSTOMERS, before)
        async with shop.running() as process:
            await shop.until("SELECT count(*) FROM handled", before + CUSTOMERS)
            await shop.until("SELECT count(*) FROM outbox", 0)
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
        async with KafkaHarness(servers) as kafka:
            await kafka.delete(shop.orders)
            await kafka.until_absent(shop.orders)
            await kafka.create_topic(shop.orders, 2)
    await shop.check_books(2 * CUSTOMERS)


async def test_other_consumers_of_the_topic_have_effects_of_their_own(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though they use the same database, and the same table for what was handled."""
    async with outbox.connect(shop.url) as pool:
        for group in ("accounts", "loyalty", "loyalty"):
            monkeypatch.setattr(outbox, "GROUP", group)
            await outbox.handle(pool, order())
    assert await shop.database.fetchval("SELECT total FROM accounts") == 10


@pytest.mark.parametrize(
    "value",
    [
        b'{"customer": "ann", "amount": 1%s}' % (b"0" * 30),
        b'{"customer": "ann", "amount": Infinity}',
        rb'{"customer": "a\u0000", "amount": 1}',
        rb'{"customer": "a\ud800", "amount": 1}',
        b'{"customer": "ann"}',
        b"[]",
    ],
)
async def test_order_that_no_retry_can_help_is_rejected(shop: Shop, value: bytes) -> None:
    """Tried without a limit, it would hold up all that comes behind it."""
    async with outbox.connect(shop.url) as pool:
        with pytest.raises(Reject):
            await outbox.handle(pool, order(value=value))
    assert await shop.database.fetchval("SELECT count(*) FROM handled") == 0


async def test_process_that_hangs_in_a_transaction_does_not_hold_up_another(shop: Shop) -> None:
    """The database ends its transaction, and the order is handled by whoever has it now."""
    async with (
        outbox.connect(shop.url, patience=0.2) as hanging,
        hanging.acquire() as database,
        outbox.connect(shop.url) as pool,
    ):
        await database.execute("BEGIN")
        await database.execute(outbox.REMEMBER, *outbox.identity(order()))
        await outbox.handle(pool, order())
        with suppress(asyncpg.InterfaceError):  # the server has ended it, and that was seen
            database.terminate()
    assert await shop.database.fetchval("SELECT total FROM accounts") == 5


async def test_processes_that_start_at_once_make_the_tables_once(
    postgresql: PostgresqlServer,
) -> None:
    """IF NOT EXISTS alone lets one of them fail."""
    url = await postgresql.create_database(f"shop_{uuid.uuid4().hex[:8]}")
    async with (
        asyncpg.create_pool(url, min_size=0) as pool,
        asyncio.TaskGroup() as group,
        pool.acquire() as first,
        first.transaction(),
    ):
        await first.execute(outbox.TABLES)
        group.create_task(pool.execute(outbox.TABLES))
        while await pool.fetchval(WAITING) != 1:
            await asyncio.sleep(0.02)


async def test_killed_between_send_and_commit_a_receipt_is_sent_again_with_its_id(
    shop: Shop,
) -> None:
    """At least once: the row is gone only when the broker has answered."""
    await shop.database.execute("INSERT INTO outbox (value) VALUES ('{}')")
    await shop.database.execute(LATE)
    async with shop.holding("SELECT pg_advisory_xact_lock(2)"), shop.running() as process:
        await shop.until(WAITING, 1)  # with its COMMIT: the broker has the receipt
        process.kill()
        await process.wait()
        assert await shop.database.fetchval(END_WAITING)
    async with shop.running() as process:
        await shop.until("SELECT count(*) FROM outbox", 0)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    assert await shop.sent() == [("1", {}), ("1", {})]


async def test_outbox_that_cannot_be_emptied_sends_nothing(shop: Shop) -> None:
    """Else it would send the same receipts again and again."""
    await shop.database.execute("INSERT INTO outbox (value) VALUES ('{}')")
    await shop.database.execute(REFUSING)
    servers = shop.kafka.bootstrap_servers
    async with (
        outbox.connect(shop.url) as pool,
        AIOKafkaProducer(bootstrap_servers=servers) as producer,
    ):
        with pytest.raises(asyncpg.RaiseError):
            await outbox.publish_some(pool, producer, shop.receipts)
    assert await shop.sent() == []


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
