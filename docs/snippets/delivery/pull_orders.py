"""Takes messages itself, and settles each of them. A broker in memory has five orders."""

import asyncio

from consumer_sdk import Consumer
from consumer_sdk.testing.memory import MemoryAdapter, MemoryBroker, MemoryDeadLetters

broker, letters = MemoryBroker(), MemoryDeadLetters()
broker.create_stream("orders")
broker.append_all("orders", [(b"ann", b"order %d" % number) for number in range(5)])


async def main() -> None:
    """A message that is handed out and not settled holds its partition's position back."""
    adapter = MemoryAdapter(broker, "orders", group="billing")
    async with Consumer(adapter, dead_letters=letters) as consumer:
        async for message in consumer:  # or: async for batch in consumer.batches()
            print(message.value, "attempt", message.attempt)
            if message.value == b"order 1":
                message.reject("poison")
            elif message.value == b"order 2" and message.attempt == 1:
                message.nack(delay=0.1)
            else:
                message.ack()  # or .ack_cumulative()
            if message.attempt == 2:
                break
        await consumer.flush()  # what was acked is durable now


asyncio.run(main())
print("dead letters:", [letter.value for letter in letters.letters])
