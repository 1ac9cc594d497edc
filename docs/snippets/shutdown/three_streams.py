"""Three consumers in one process, which end together. The broker is in memory."""

import asyncio

from consumer_sdk import Batch, Consumer, Group, Message
from consumer_sdk.testing.memory import MemoryAdapter, MemoryBroker

broker = MemoryBroker()


def consumer_of(stream: str) -> Consumer:
    """A consumer of a stream with a record."""
    broker.create_stream(stream)
    broker.append(stream, f"first of {stream}".encode())
    return Consumer(MemoryAdapter(broker, stream, group="billing"))


async def handle_order(message: Message) -> None:
    """One order."""
    print("order:", message.value, flush=True)


async def handle_payment(message: Message) -> None:
    """One payment."""
    print("payment:", message.value, flush=True)


async def handle_clicks(batch: Batch) -> None:
    """A list of clicks."""
    print("clicks:", len(batch), flush=True)


async def main() -> None:
    """Until Ctrl-C."""
    orders, payments, clicks = map(consumer_of, ("orders", "payments", "clicks"))
    # -- the group
    group = Group({orders: handle_order, payments: handle_payment})
    group.add(clicks, handle_clicks, batch_size=500)  # with options of run()
    await group.run()
    # -- the rest


asyncio.run(main())
