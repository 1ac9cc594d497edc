"""Decodes orders into objects. ``pytest decode_orders.py`` runs the test."""

import asyncio

import msgspec

from consumer_sdk import Consumer, Message
from consumer_sdk.decoders import msgspec_decoder
from consumer_sdk.testing import deliver


class Order(msgspec.Struct):
    """What the topic has."""

    customer: str
    amount: int


async def handle(message: Message) -> None:
    """Gets only what could be decoded."""
    order: Order = message.body
    print(f"charged {order.customer} {order.amount}")


async def main(url: str) -> None:
    """Reads from a broker."""
    await Consumer(url, decode=msgspec_decoder(Order)).run(handle)


def test_order_without_an_amount_is_given_up() -> None:
    """Without a broker, and without waiting for retries."""
    delivered = deliver(
        handle, {"customer": "a", "amount": 3}, b"{}", decode=msgspec_decoder(Order)
    )
    assert len(delivered.acked) == 1
    assert [letter.value for letter in delivered.dead] == [b"{}"]


if __name__ == "__main__":
    asyncio.run(main("kafka://127.0.0.1:9092/orders?group=billing"))
