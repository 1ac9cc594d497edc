"""What tests do with a Pulsar that was started here or elsewhere."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from consumer_sdk.testing.servers.pulsar_admin import Position, call, path_of, place_of
from consumer_sdk.testing.servers.pulsar_messages import send

__all__ = ["PulsarEndpoint"]

_AGAIN = 0.02
"""Seconds until something is looked at again."""


class PulsarEndpoint(ABC):
    """A Pulsar that tests can use, started here or elsewhere.

    A topic is named in full (``persistent://tenant/namespace/name``), or by its name alone when it
    lies in ``public/default``. What a call says of a topic holds for each of its partitions.

    Each call works in a thread and leaves no connection behind.

    Cancellation: the request that is under way is carried out all the same.
    """

    @property
    @abstractmethod
    def service_url(self) -> str:
        """``pulsar://host:port`` for clients."""

    @property
    @abstractmethod
    def admin_url(self) -> str:
        """``http://host:port`` of the admin interface."""

    async def create_topic(self, name: str, partitions: int = 0) -> None:
        """Create a topic, by default one that is not partitioned.

        Raises:
            ServerError: Pulsar refused: it exists, say.
        """
        if partitions:
            await self._ask("PUT", f"{path_of(name)}/partitions", partitions)
        else:
            await self._ask("PUT", path_of(name))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its subscriptions; who is connected is disconnected.

        Raises:
            ServerError: Pulsar refused.
        """
        partitioned = "/partitions" if await self.partitions(name) else ""
        await self._ask("DELETE", f"{path_of(name)}{partitioned}?force=true")

    async def topics(self, namespace: str = "public/default") -> list[str]:
        """Return the full names of a namespace's topics, each partition as one.

        Raises:
            ServerError: Pulsar refused.
        """
        found: list[str] = await self._ask("GET", f"persistent/{namespace}")
        return sorted(found)

    async def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has, 0 for one that is not partitioned.

        Raises:
            ServerError: Pulsar refused: there is no such topic, say.
        """
        count: int = (await self._ask("GET", f"{path_of(topic)}/partitions"))["partitions"]
        return count

    async def unload(self, topic: str) -> None:
        """Close a topic at its broker, as a move to another broker does; clients connect again.

        Redelivery counts and acks of single messages in a batch do not survive it. Neither would acks
        that come while Pulsar makes the ledger of a subscription's cursor, so this waits until it is made.

        Raises:
            ServerError: Pulsar refused.
        """
        for part in await self._parts(topic):
            while await self._makes_cursor_ledger(part):  # noqa: ASYNC110 - Pulsar tells nobody
                await asyncio.sleep(_AGAIN)
        await self._ask("PUT", f"{path_of(topic)}/unload")

    async def _makes_cursor_ledger(self, part: str) -> bool:
        found = await self._ask("GET", f"{path_of(part)}/internalStats")
        return any(each["state"] == "SwitchingLedger" for each in found["cursors"].values())

    async def terminate(self, topic: str) -> None:
        """Let a topic take no more messages, for ever.

        Raises:
            ServerError: Pulsar refused.
        """
        for part in await self._parts(topic):
            await self._ask("POST", f"{path_of(part)}/terminate")

    async def stats(self, topic: str) -> list[dict[str, Any]]:
        """Return the statistics of each partition, or the one of a topic that has none.

        Raises:
            ServerError: Pulsar refused.
        """
        return [
            await self._ask("GET", f"{path_of(part)}/stats?getPreciseBacklog=true")
            for part in await self._parts(topic)
        ]

    async def subscriptions(self, topic: str) -> list[str]:
        """Return the names of the topic's subscriptions.

        Raises:
            ServerError: Pulsar refused.
        """
        found: list[str] = await self._ask("GET", f"{path_of(topic)}/subscriptions")
        return sorted(found)

    async def create_subscription(
        self, topic: str, name: str, position: Position = "earliest"
    ) -> None:
        """Create a subscription, which keeps what is produced from then on.

        Args:
            topic: where.
            name: the subscription.
            position: the first message that it gets.

        Raises:
            ServerError: Pulsar refused: it exists, say.
        """
        await self._ask("PUT", _subscription(topic, name), place_of(position))

    async def reset_cursor(self, topic: str, subscription: str, position: Position) -> None:
        """Move a subscription to a position; its consumers are disconnected and connect again.

        Raises:
            ServerError: Pulsar refused.
        """
        for part in await self._parts(topic):
            path = f"{_subscription(part, subscription)}/resetcursor"
            await self._ask("POST", path, place_of(position))

    async def backlog(self, topic: str, subscription: str) -> int:
        """Return how many entries a subscription has not acked; a batch is one entry.

        Raises:
            ServerError: Pulsar refused.
        """
        found = [each["subscriptions"][subscription] for each in await self.stats(topic)]
        return sum(each["msgBacklog"] for each in found)

    async def produce(
        self,
        topic: str,
        values: Iterable[bytes],
        *,
        key: str | Iterable[str] | None = None,
        batch: bool = False,
    ) -> list[Any]:
        """Produce messages, and return the client's message id of each.

        Args:
            topic: where to.
            values: what they carry.
            key: the key of all of them, or one for each.
            batch: send as few entries as may be, of up to 1 000 messages (a partition); a
                key-shared subscription goes by the key of an entry's first message.

        Raises:
            ServerError: Pulsar refused, or did not take one of them.
            MissingExtraError: pulsar-client is not installed.
            ValueError: there are not as many keys as values; some may have been sent.
        """
        return await asyncio.to_thread(send, self.service_url, topic, values, key, batch=batch)

    async def _ask(self, method: str, path: str, body: object = None) -> Any:
        return await asyncio.to_thread(call, self.admin_url, method, path, body)

    async def _parts(self, topic: str) -> list[str]:
        count = await self.partitions(topic)
        return [f"{topic}-partition-{index}" for index in range(count)] or [topic]


def _subscription(topic: str, name: str) -> str:
    return f"{path_of(topic)}/subscription/{quote(name, safe='')}"
