"""Takes jobs from a Kafka topic as from a queue. Start it as often as you like: new jobs go to whoever asks first."""

import asyncio
import os

from consumer_sdk import Consumer, Message, Ordering, Reject, Retry, RetryPolicy
from consumer_sdk.adapters import KafkaAdapter

KAFKA = os.environ.get("KAFKA", "127.0.0.1:9092")


async def handle(message: Message) -> None:
    """One job; one that takes long, or waits, holds up no other."""
    image = (message.value or b"").decode()
    if not image.endswith(".png"):
        raise Reject(f"{image} is no image")
    if message.attempt == 1 and image.startswith("remote/"):
        raise Retry("the other server is busy", delay=2.0)
    print("resized", image, "at attempt", message.attempt, flush=True)


consumer = Consumer(
    KafkaAdapter("images", bootstrap_servers=KAFKA, share_group="resizing"),
    retry=RetryPolicy(max_attempts=5),
)
asyncio.run(consumer.run(handle, ordering=Ordering.NONE, concurrency=100))
