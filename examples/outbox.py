"""Effects in PostgreSQL that happen once, and an outbox: a redelivered order changes nothing.

python examples/outbox.py --database postgresql://127.0.0.1/shop --kafka 127.0.0.1:9092 --topic orders --to receipts

One transaction writes the position of an order, its effect, and its receipt. If an order is delivered
again, after a ``kill -9`` or a rebalance, the handler finds its position there and does nothing. A task
sends receipts from the table, and deletes each when the broker has it. So receipts are sent at least
once, and a reader recognises a second one by its ``id``.

It needs the extra ``kafka`` and the package ``asyncpg``. It runs until SIGTERM or Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
from functools import partial
from typing import TypeAlias

import asyncpg
from aiokafka import AIOKafkaProducer

from consumer_sdk import Consumer, Message, Ordering, Reject, RetryPolicy
from consumer_sdk.adapters import KafkaAdapter

Pool: TypeAlias = asyncpg.Pool

log = logging.getLogger(__name__)

GROUP = "accounts"
TABLES = """
SELECT pg_advisory_xact_lock(1);  -- processes that start at once would both make what is not there
CREATE TABLE IF NOT EXISTS handled (
    consumers text, topic text, partition text, position bigint, sent bigint,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumers, topic, partition, position, sent));
CREATE TABLE IF NOT EXISTS accounts (customer text PRIMARY KEY, total bigint NOT NULL);
CREATE TABLE IF NOT EXISTS outbox (id bigserial PRIMARY KEY, key bytea, value bytea NOT NULL);
"""
REMEMBER = """
INSERT INTO handled (consumers, topic, partition, position, sent) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING
"""
CHARGE = """
INSERT INTO accounts VALUES ($1, $2)
ON CONFLICT (customer) DO UPDATE SET total = accounts.total + excluded.total RETURNING total
"""
TAKE = """
DELETE FROM outbox WHERE id IN (SELECT id FROM outbox ORDER BY id LIMIT 500) RETURNING *
"""
CONNECTIONS = 10
PAUSE = 0.1
"""Seconds between looks into an empty outbox."""
PATIENCE = 60.0
"""Seconds that a transaction may stand still: a process that hangs must not hold up the others."""

AWAY = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""The last one is what asyncpg raises if the server says goodbye just as a query begins."""


def connect(url: str, patience: float = PATIENCE) -> Pool:
    """Opens a connection for each handler, and one for the outbox."""
    return asyncpg.create_pool(
        url,
        min_size=1,
        max_size=CONNECTIONS + 1,
        command_timeout=patience,
        server_settings={"idle_in_transaction_session_timeout": f"{patience * 1000:.0f}"},
    )


async def handle(pool: Pool, message: Message) -> None:
    """Returns, which acks, after the database has committed. An error rolls back, and retries."""
    customer, amount = read(message)
    try:
        await charge(pool, message, customer, amount)
    except asyncpg.DataError as error:  # no use in trying again: a total that bigint cannot hold
        raise Reject("the database does not take this order") from error


async def charge(pool: Pool, message: Message, customer: str, amount: int) -> None:
    """Charges an order, unless this was done before."""
    async with pool.acquire() as database, database.transaction():
        # If another transaction has the position and is not over, this waits for its end.
        if await database.execute(REMEMBER, *identity(message)) == "INSERT 0 0":
            return
        total = await database.fetchval(CHARGE, customer, amount)
        receipt = json.dumps({"customer": customer, "total": total}).encode()
        await database.execute(
            "INSERT INTO outbox (key, value) VALUES ($1, $2)", message.key, receipt
        )
    print(f"charged {customer} {amount}", flush=True)


def identity(message: Message) -> tuple[str, str, str, int, int]:
    """The identity of a record for this group; no other record has it.

    A topic that is deleted and created again has the same positions, at other times.
    """
    where = message.partition
    return GROUP, where.stream, where.id, message.position, message.timestamp or 0


def read(message: Message) -> tuple[str, int]:
    """The customer and the amount of an order. Raises `Reject` for an order that no retry can fix."""
    try:
        order = json.loads(message.value or b"")
        return str(order["customer"]), int(order["amount"])
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise Reject("an order needs a customer and an amount") from error


async def publish(pool: Pool, producer: AIOKafkaProducer, topic: str) -> None:
    """Empties the outbox, for ever. Receipts are sent again if the database did not commit."""
    while True:
        count, pause = 0, PAUSE
        try:
            count = await publish_some(pool, producer, topic)
        except AWAY as error:
            log.warning("the outbox has to wait: %s: %s", type(error).__name__, error)
            pause = 10 * PAUSE
        if not count:
            await asyncio.sleep(pause)


async def publish_some(pool: Pool, producer: AIOKafkaProducer, topic: str) -> int:
    """Sends the oldest receipts, then commits their deletion; returns how many it sent."""
    async with pool.acquire() as database, database.transaction():
        # One process at a time, until its transaction ends: else a customer's receipts change places.
        if not await database.fetchval("SELECT pg_try_advisory_xact_lock('outbox'::regclass::int)"):
            return 0
        rows = sorted(await database.fetch(TAKE), key=lambda row: int(row["id"]))
        sent = [
            await producer.send(
                topic, row["value"], key=row["key"], headers=[("id", str(row["id"]).encode())]
            )
            for row in rows
        ]
        await asyncio.gather(*sent)
    return len(rows)


async def serve(consumer: Consumer, pool: Pool, producer: AIOKafkaProducer, topic: str) -> None:
    """Consumes and publishes; if one of the two fails, the other one ends too."""
    async with asyncio.TaskGroup() as group:
        publishing = group.create_task(publish(pool, producer, topic))
        await consumer.run(partial(handle, pool), concurrency=CONNECTIONS, ordering=Ordering.KEY)
        publishing.cancel()  # what is left in the outbox is sent by whoever comes next


async def main() -> None:
    """Reads the command line and serves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", default="postgresql://127.0.0.1/shop")
    parser.add_argument("--kafka", metavar="HOST:PORT", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--to", default="receipts")
    options = parser.parse_args()
    consumer = Consumer(
        KafkaAdapter(options.topic, bootstrap_servers=options.kafka, group=GROUP),
        retry=RetryPolicy(max_attempts=None, initial=0.1),  # until the database is back
    )
    async with (
        connect(options.database) as pool,
        AIOKafkaProducer(
            bootstrap_servers=options.kafka, acks="all", enable_idempotence=True
        ) as producer,
    ):
        await pool.execute(TABLES)  # in a real service, a migration does it
        await serve(consumer, pool, producer, options.to)


if __name__ == "__main__":
    asyncio.run(main())
