"""Charges orders with aiokafka alone. It runs until Ctrl-C."""

import asyncio
import contextlib
import json
import os

from aiokafka import AIOKafkaConsumer

KAFKA = os.environ.get("KAFKA", "127.0.0.1:9092")


async def main() -> None:
    """Commits after each order. An order that fails ends the program, at each start."""
    consumer = AIOKafkaConsumer(
        "from-aiokafka",
        bootstrap_servers=KAFKA,
        group_id="from-aiokafka",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    await consumer.start()
    try:
        async for record in consumer:
            order = json.loads(record.value)
            await asyncio.sleep(0)  # stands for the call of the card company
            print(f"charged {order['customer']} {order['amount']}", flush=True)
            await consumer.commit()
    finally:
        await consumer.stop()


with contextlib.suppress(KeyboardInterrupt):
    asyncio.run(main())
