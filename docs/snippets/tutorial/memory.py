"""A consumer of a broker in memory. It runs until Ctrl-C."""

import asyncio
import json

from consumer_sdk import Consumer, Message, Reject
from consumer_sdk.testing.memory import MemoryAdapter, MemoryBroker, MemoryDeadLetters

broker = MemoryBroker()
broker.create_stream("orders")
for number, amount in enumerate([5, 0, 7]):
    broker.append("orders", json.dumps({"order": number, "amount": amount}).encode())


async def handle(message: Message) -> None:
    """Returning acks the record. An exception has it delivered again, later."""
    order = json.loads(message.value or b"")
    if order["amount"] <= 0:
        raise Reject("the amount must be above 0")  # to the dead letters, at once
    if order["order"] == 2 and message.attempt == 1:
        raise TimeoutError("the card company did not answer")
    print(f"charged order {order['order']}, attempt {message.attempt}", flush=True)


letters = MemoryDeadLetters()
consumer = Consumer(MemoryAdapter(broker, "orders", group="billing"), dead_letters=letters)
asyncio.run(consumer.run(handle))

for letter in letters.letters:
    print("dead letter:", letter.value, letter.error)
