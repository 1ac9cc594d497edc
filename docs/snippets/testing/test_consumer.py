"""A whole consumer, on a broker in memory and on virtual time."""

from consumer_sdk import Consumer, Message, Retry
from consumer_sdk.testing import MemoryAdapter, MemoryBroker, Simulation, simulate


def test_customers_orders_stay_in_order() -> None:
    """Ann's second order waits an hour for her first one; Bob's does not."""
    charged: list[bytes | None] = []

    async def main(simulation: Simulation) -> None:
        broker = MemoryBroker(wall=simulation.clock.wall)
        broker.create_stream("orders")
        broker.append_all("orders", [(b"ann", b"1"), (b"ann", b"2"), (b"bob", b"3")])

        async def handle(message: Message) -> None:
            if message.value == b"1" and message.attempt == 1:
                raise Retry(delay=3600)
            charged.append(message.value)
            if len(charged) == 3:
                consumer.stop()

        adapter = MemoryAdapter(broker, "orders", group="billing")
        consumer = Consumer(adapter, clock=simulation.clock)
        await consumer.run(handle)

    simulate(main)
    assert charged == [b"3", b"1", b"2"]
