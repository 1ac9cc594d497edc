"""What only the broker's REST API tells: which topics there are, and who is active."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

from consumer_sdk.errors import AdapterError, ConfigurationError, TransientAdapterError

__all__ = ["Admin"]

PATIENCE = 10.0
"""Seconds until a question is given up."""

THREADS = 4
"""Questions at a time: one that gets no answer does not hold the others up."""


class Admin:
    """A client of the REST API (https://pulsar.apache.org/admin-rest-api/), in a few named threads.

    Args:
        url: ``http://host:8080``.
        token: a JWT, or None.

    Every method raises:

    Raises:
        TransientAdapterError: it does not answer, or answers with a 5xx.
        AdapterError: access is denied.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigurationError(f"admin_url={url!r}: give http://host:port")
        self._url = url.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._thread = ThreadPoolExecutor(THREADS, thread_name_prefix="pulsar admin")

    async def has_topic(self, topic: str) -> bool:
        """There is a topic of that full name, partitioned or not."""
        metadata = await self._get(f"{_path(topic)}/partitions") or {}
        return (
            bool(metadata.get("partitions")) or await self._get(f"{_path(topic)}/stats") is not None
        )

    async def subscriptions(self, topic: str) -> Sequence[str]:
        """Of a topic that is no partitioned one; none where there is no such topic."""
        found: list[str] = await self._get(f"{_path(topic)}/subscriptions") or []
        return found

    async def active_consumer(self, topic: str, subscription: str) -> str | None:
        """The name of a failover subscription's consumer that is sent records."""
        stats = await self._get(f"{_path(topic)}/stats") or {}
        found: str | None = (
            stats.get("subscriptions", {}).get(subscription, {}).get("activeConsumerName")
        )
        return found or None

    async def topics(self, namespace: str) -> Sequence[str]:
        """The full names of all persistent topics, one of each that is partitioned."""
        base = f"/admin/v2/persistent/{namespace}"
        single: list[str] = await self._get(base) or []
        partitioned: list[str] = await self._get(f"{base}/partitioned") or []
        return sorted({*partitioned, *(name for name in single if "-partition-" not in name)})

    async def time(self) -> float:
        """The broker's clock, in whole seconds since the epoch."""
        answer = await self._run("/admin/v2/brokers/version")
        date = answer[1].get("Date")
        if date is None:
            raise AdapterError(f"{self._url} does not tell its time")
        return parsedate_to_datetime(date).timestamp()

    async def _get(self, path: str) -> Any:
        """The answer's JSON; None where there is no such thing."""
        body, _ = await self._run(path)
        try:
            return None if body is None else json.loads(body)
        except ValueError as error:
            raise TransientAdapterError(f"{self._url}{path}: no JSON: {error}") from error

    async def _run(self, path: str) -> tuple[bytes | None, Any]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._ask, path)

    def _ask(self, path: str) -> tuple[bytes | None, Any]:
        request = Request(self._url + path, headers=self._headers)  # noqa: S310 - checked above
        try:
            with urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310 - likewise
                return answer.read(), answer.headers
        except HTTPError as error:
            with error:
                return self._refused(path, error)
        except (OSError, URLError) as error:
            raise TransientAdapterError(f"{self._url}{path}: {error}") from error

    def _refused(self, path: str, error: HTTPError) -> tuple[None, Any]:
        if error.code == 404:  # noqa: PLR2004 - there is no such topic
            return None, error.headers
        what = f"{self._url}{path}: {error.code} {error.reason}"
        if error.code in (401, 403):
            raise AdapterError(f"{what}: give admin_token= of a role that may look") from error
        raise TransientAdapterError(what) from error

    def close(self) -> None:
        """Waits for nothing."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _path(topic: str) -> str:
    domain, _, name = topic.partition("://")
    return f"/admin/v2/{domain}/{quote(name)}"
