"""Programs that are right: a type checker has nothing to say about them."""

from __future__ import annotations

from datetime import UTC, datetime

from consumer_sdk import (
    AtPosition,
    AtTime,
    Batch,
    Consumer,
    Message,
    Ordering,
    RetryPolicy,
)
from consumer_sdk.adapters import KafkaAdapter, PulsarAdapter
from consumer_sdk.dead_letters import LocalDeadLetters
from consumer_sdk.stores import LocalStore

URL = "kafka://127.0.0.1:9092/orders?group=billing"


async def of_a_message(message: Message) -> None:
    """The usual handler."""
    message.ack()


async def that_returns(message: Message) -> bytes | None:
    """What a handler returns is not looked at."""
    return message.value


async def of_a_batch(batch: Batch) -> int:
    """A batch is a sequence of messages."""
    return sum(len(message.value or b"") for message in batch)


async def of_a_list(messages: list[Message]) -> None:
    """It is a list, too."""
    messages[-1].ack_cumulative()


class WithState:
    """An object and a bound method are handlers as well."""

    async def __call__(self, message: Message) -> None:
        """As a function."""

    async def handle(self, message: Message) -> bool:
        """As a method."""
        return message.ack()


async def runs(consumer: Consumer) -> None:
    """Handlers of messages, of batches, and orderings by name."""
    await consumer.run(of_a_message)
    await consumer.run(that_returns, ordering="partition", concurrency=5)
    await consumer.run(WithState(), ordering=Ordering.NONE)
    await consumer.run(WithState().handle, handle_signals=False)
    await consumer.run(of_a_batch, batch_size=100, batch_wait=0.5, ordering="key")
    await consumer.run(of_a_list, batch_size=100)


def consumers() -> list[Consumer]:
    """Objects, URLs, and each way to start."""
    kafka = KafkaAdapter(["orders", "returns"], bootstrap_servers=["h:9092"], group="billing")
    pulsar = PulsarAdapter(
        "orders", service_url="pulsar://h:6650", subscription="billing", type="shared"
    )
    return [
        Consumer(kafka, store=LocalStore("state.db"), dead_letters=LocalDeadLetters("state.db")),
        Consumer(pulsar, retry=RetryPolicy(max_attempts=3)),
        Consumer(URL, store="sqlite:state.db", dead_letters="sqlite:///var/lib/letters.db"),
        Consumer(URL, start="latest", restart="from_start", application_id="v2"),
        Consumer(URL, start=AtTime(datetime(2026, 1, 1, tzinfo=UTC)), out_of_range="earliest"),
        Consumer(URL, start=AtTime(0.0), max_lag=1000, lag_policy="skip"),
        Consumer(URL, start=AtPosition(7), hole_policy="dead_letter"),
    ]
