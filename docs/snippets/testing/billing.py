"""A handler to test: it charges orders."""

import json
from typing import Protocol

from consumer_sdk import Message, Reject


class Cards(Protocol):
    """The card company."""

    async def charge(self, customer: str, amount: int) -> None:
        """Raises `TimeoutError` if the company does not answer."""


class Billing:
    """Charges orders, each customer's through the card company."""

    def __init__(self, cards: Cards) -> None:
        self._cards = cards

    async def handle(self, message: Message) -> None:
        """Rejects what can never be charged, and leaves the rest to be tried again."""
        order = json.loads(message.value or b"")
        if order["amount"] <= 0:
            raise Reject("the amount must be above 0")
        await self._cards.charge(order["customer"], order["amount"])
