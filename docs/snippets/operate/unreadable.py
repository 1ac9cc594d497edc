"""Meets a record that cannot be read. ``python unreadable.py dead_letter``: it goes to the dead letters."""

import asyncio
import sys

from consumer_sdk import Consumer, Message, UnreadableRecordError
from consumer_sdk.testing.memory import MemoryAdapter, MemoryBroker, MemoryDeadLetters

broker, letters = MemoryBroker(), MemoryDeadLetters()
broker.create_stream("orders")
for number in range(4):
    broker.append("orders", b"order %d" % number)
broker.damage("orders", 0, [2])  # as a bit does that flips on a disk


async def handle(message: Message) -> None:
    """Its record could be read."""
    print(message.value)
    if message.value == b"order 3":
        consumer.stop()


adapter = MemoryAdapter(broker, "orders", group="billing")
consumer = Consumer(
    adapter,
    dead_letters=letters,
    unreadable="dead_letter" if "dead_letter" in sys.argv else "fail",
)
try:
    asyncio.run(consumer.run(handle))
except UnreadableRecordError as error:
    print("stopped:", error)
for letter in letters.letters:
    print("dead letter:", letter.position, letter.error)
