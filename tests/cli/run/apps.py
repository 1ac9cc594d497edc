"""Applications as a module's name names them."""

from __future__ import annotations

import functools

from consumer_sdk import Consumer, Group, Message
from consumer_sdk.testing import MemoryAdapter, MemoryBroker

broker = MemoryBroker()
broker.create_stream("orders", 2)


async def handle(message: Message) -> None:
    """A handler."""


async def other(message: Message, more: int = 0) -> None:
    """Another one."""


def make() -> Consumer:
    """A factory."""
    return Consumer(MemoryAdapter(broker, "orders", group="billing"))


async def make_group() -> Group:
    """A factory that is a coroutine."""
    return Group({make(): handle})


def make_with(group: str = "billing") -> Consumer:
    """A factory whose argument may be left out."""
    return Consumer(MemoryAdapter(broker, "orders", group=group))


def make_nothing() -> int:
    """No factory."""
    return 3


class Handler:
    """Whose instances are handlers."""

    async def __call__(self, message: Message) -> None:
        """One."""


consumer = make()
group = Group({make(): handle})
partial = functools.partial(other, more=1)
instance = Handler()
