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


async def make_later(config: str | None = None) -> Consumer:
    """A factory that is a coroutine, with an argument that may be left out."""
    return make_with(config or "billing")


async def wrapped(*args: Message) -> None:
    """A handler within a wrapper that takes anything."""
    await handle(*args)


class Handler:
    """Whose instances are handlers."""

    async def __call__(self, message: Message) -> None:
        """One."""


consumer = make()
group = Group({make(): handle})
partial = functools.partial(other, more=1)
instance = Handler()
