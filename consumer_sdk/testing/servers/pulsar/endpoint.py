"""What tests do with a Pulsar that was started here or elsewhere.

Its admin interface is asked over HTTP; messages are sent by a client that is closed when they are.
"""

import asyncio
import json
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from http.client import HTTPException
from itertools import repeat
from typing import Any, Literal
from urllib.parse import quote

from consumer_sdk.errors import MissingExtraError
from consumer_sdk.testing.servers.errors import ServerError

__all__ = ["Position", "PulsarEndpoint", "call", "path_of"]

Position = Literal["earliest", "latest"] | tuple[int, int]
"""The begin or end of a topic, or ledger id and entry id of a message."""

_PATIENCE = 120.0  # seconds; an unload on a busy machine takes some
_LAST = (1 << 63) - 1

# The proxies of the environment are not for this machine.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def call(admin_url: str, method: str, path: str, body: object = None) -> Any:
    """Send one request and return the answer's JSON, None when it is empty; blocks.

    Follows no redirects, so it is for a Pulsar of one broker.

    Args:
        admin_url: ``http://host:port``.
        method: ``GET``, ``PUT``, ``POST`` or ``DELETE``.
        path: what follows ``/admin/v2/``.
        body: what is sent as JSON; None sends nothing.

    Raises:
        ServerError: Pulsar refused, with its own words, or did not answer.
    """
    request = urllib.request.Request(  # noqa: S310  the address of a server that the tests chose
        f"{admin_url}/admin/v2/{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with _OPENER.open(request, timeout=_PATIENCE) as answer:
            text = answer.read()
    except (OSError, HTTPException) as error:
        raise ServerError(f"Pulsar at {admin_url}: {method} {path}: {_words_of(error)}") from error
    return json.loads(text) if text else None


def path_of(topic: str) -> str:
    """Return a topic as the path that names it.

    Args:
        topic: its name in ``public/default``, or its full one (``persistent://tenant/namespace/name``).
    """
    domain, found, rest = topic.partition("://")
    parts = [domain, *rest.split("/", 2)] if found else ["persistent", "public", "default", topic]
    return "/".join(quote(part, safe="") for part in parts)


def _place_of(position: Position) -> dict[str, int]:
    """Return a position as Pulsar's JSON has it."""
    edges = {"earliest": (-1, -1), "latest": (_LAST, _LAST)}
    ledger, entry = edges[position] if isinstance(position, str) else position
    return {"ledgerId": ledger, "entryId": entry, "partitionIndex": -1}


def _words_of(error: Exception) -> str:
    if not isinstance(error, urllib.error.HTTPError):
        return str(error)
    with error:
        said = error.read().decode(errors="replace")
    try:
        reason = json.loads(said)["reason"]
    except (ValueError, KeyError, TypeError):
        reason = said
    return f"{error.code} {reason or error.reason}"


_BATCH_BYTES = 4 << 20  # a message may have 5 MiB, and a batch is one
_NEVER = 600_000  # milliseconds; the flush at the end sends what is left


def _send(
    service_url: str,
    topic: str,
    values: Iterable[bytes],
    keys: str | Iterable[str] | None,
    *,
    batch: bool,
) -> list[Any]:
    """Send messages and return the id of each; blocks until Pulsar has them.

    Raises:
        ServerError: Pulsar refused, or did not take one of them.
        MissingExtraError: pulsar-client is not installed.
        ValueError: there are not as many keys as values; some may have been sent.
    """
    with _producer(service_url, topic, batch=batch) as producer:
        sent = [_begin(producer, value, key) for value, key in _keyed(values, keys)]
        producer.flush()
        return [each.result() for each in sent]


def _keyed(
    values: Iterable[bytes], keys: str | Iterable[str] | None
) -> Iterable[tuple[bytes, str | None]]:
    if keys is None or isinstance(keys, str):
        return zip(values, repeat(keys), strict=False)  # ends with the values
    return zip(values, keys, strict=True)


def _begin(producer: Any, value: bytes, key: str | None) -> "Future[Any]":
    """Hand over one message; the future gives its id."""
    future: Future[Any] = Future()

    def settle(result: Any, message_id: Any) -> None:  # in a thread of the client
        if result.name == "Ok":
            future.set_result(message_id)
        else:
            future.set_exception(ServerError(f"Pulsar did not take a message: {result.name}"))

    producer.send_async(value, settle, partition_key=key)
    return future


@contextmanager
def _producer(service_url: str, topic: str, *, batch: bool) -> Iterator[Any]:
    try:
        import pulsar
    except ImportError as error:
        raise MissingExtraError("pulsar-client", "pulsar") from error
    try:
        # Never one of Python's loggers: the client's threads would wait for the interpreter.
        logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        client = pulsar.Client(service_url, logger=logger)
        try:
            yield client.create_producer(
                topic,
                block_if_queue_full=True,
                batching_enabled=batch,
                batching_max_messages=1000,
                batching_max_allowed_size_in_bytes=_BATCH_BYTES,
                batching_max_publish_delay_ms=_NEVER,
            )
        finally:
            client.close()
    except pulsar.PulsarException as error:
        raise ServerError(f"Pulsar at {service_url}: {topic!r}: {error}") from error


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
        await self._ask("PUT", _subscription(topic, name), _place_of(position))

    async def reset_cursor(self, topic: str, subscription: str, position: Position) -> None:
        """Move a subscription to a position; its consumers are disconnected and connect again.

        Raises:
            ServerError: Pulsar refused.
        """
        for part in await self._parts(topic):
            path = f"{_subscription(part, subscription)}/resetcursor"
            await self._ask("POST", path, _place_of(position))

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
        return await asyncio.to_thread(_send, self.service_url, topic, values, key, batch=batch)

    async def _ask(self, method: str, path: str, body: object = None) -> Any:
        return await asyncio.to_thread(call, self.admin_url, method, path, body)

    async def _parts(self, topic: str) -> list[str]:
        count = await self.partitions(topic)
        return [f"{topic}-partition-{index}" for index in range(count)] or [topic]


def _subscription(topic: str, name: str) -> str:
    return f"{path_of(topic)}/subscription/{quote(name, safe='')}"
