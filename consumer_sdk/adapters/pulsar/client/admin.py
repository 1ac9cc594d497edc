"""Asks the broker's REST API for facts that the binary protocol does not tell.

Those are the topics of a namespace, a failover subscription's active consumer, a subscription's properties and
cursor, and the ledgers and entries of a topic. An answer about a topic is None if there is no such
topic.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from ssl import SSLContext
from typing import Any, TypeVar
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from consumer_sdk.adapters.pulsar.client.ids import Place, next_place
from consumer_sdk.adapters.pulsar.client.topics import partition_of
from consumer_sdk.checkpoints.positions import LAST_BATCH_INDEX
from consumer_sdk.errors import AdapterError, ConfigurationError, TransientAdapterError
from consumer_sdk.records import Checkpoint

__all__ = ["Admin", "cursor_in", "progress_in", "written_in"]

T = TypeVar("T")

_UNREADABLE = (ValueError, TypeError, AttributeError, LookupError, RecursionError)

PATIENCE = 10.0
"""Seconds to wait for a connection, and for each part of an answer."""
LONGEST = 30.0
"""Seconds until a request is given up."""

LAST = (1 << 63) - 1
"""A ledger and an entry that stand for the end."""

THREADS = 4
"""Requests at a time: one that gets no answer does not hold the others up."""


BATCH_SIZE = "X-Pulsar-num-batch-message"
CHUNK_ID = "X-Pulsar-chunk-id"
CHUNKS = "X-Pulsar-num-chunks-from-msg"
MESSAGE_UUID = "X-Pulsar-uuid"
UNSEEN = ("X-Pulsar-marker-type", "X-Pulsar-txnid-most-bits")
"""Headers of entries that a reader may not get: the broker's own markers, and entries of a transaction, which
may have been aborted."""

DELETED = re.compile(r"[\[(](-?\d+):(-?\d+)\.\.(-?\d+):(-?\d+)\]")
"""``(17:3..17:5]``: the entries behind the first place, up to the second."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a large message.

    Attributes:
        uuid: the message's: the producer's name and a sequence number.
        index: from 0.
        count: how many the message has.
    """

    uuid: str
    index: int
    count: int


@dataclass(frozen=True, slots=True)
class Entry:
    """What an entry is.

    Attributes:
        chunk: the part of a large message that it holds; None: it holds whole ones, or is a marker.
        is_seen: every reader gets it.
    """

    chunk: Chunk | None
    is_seen: bool


class Admin:
    """A client of the REST API (https://pulsar.apache.org/admin-rest-api/), in a few named threads.

    Args:
        url: ``http://host:8080[,host:8080]``; if a host cannot be reached, the next one is asked.
        token: a JWT, or None. It is sent only to hosts that ``url`` or ``trusted`` names.
        trusted: names of hosts to which a broker may redirect a request with the token.
        tls: for ``https://``; None for the system's authorities.

    Attributes:
        calls: requests sent so far.

    Every method raises:

    Raises:
        TransientAdapterError: it does not answer, answers with a 5xx, or sends a response that
            cannot be read.
        AdapterError: access is denied, or a redirect leads to another host.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        trusted: Collection[str] = (),
        tls: SSLContext | None = None,
    ) -> None:
        self.calls = 0
        self._hosts = _bases(url)
        self._host = 0
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        names = {urlsplit(base).hostname or "" for base in self._hosts}
        self._opener = build_opener(HTTPSHandler(context=tls), _Redirects({*names, *trusted}))
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="pulsar admin")

    @property
    def _url(self) -> str:
        return self._hosts[self._host]

    async def has_topic(self, topic: str) -> bool:
        """Whether there is a topic of that full name, partitioned or not."""
        path = _path_of(topic)
        if await self._get(f"{path}/partitions", lambda found: found["partitions"]):
            return True
        return await self._get(f"{path}/stats", dict) is not None

    async def subscriptions(self, topic: str) -> Sequence[str]:
        """The names of a topic's subscriptions. The topic is not a partitioned one, but may be a partition."""
        return await self._get(f"{_path_of(topic)}/subscriptions", _texts) or []

    async def active_consumer(self, topic: str, subscription: str) -> str | None:
        """The name of the active consumer of a failover subscription."""

        def active(stats: Any) -> str | None:
            found = stats.get("subscriptions", {}).get(subscription, {})
            return found.get("activeConsumerName") or None

        return await self._get(f"{_path_of(topic)}/stats", active)

    async def topics(self, namespace: str) -> Sequence[str]:
        """The full names of all persistent topics; a partitioned topic is there once."""
        base = f"/admin/v2/persistent/{namespace}"
        single = await self._get(base, _texts) or []
        partitioned = await self._get(f"{base}/partitioned", _texts) or []
        # Partitions are in the first list too; a topic may be called like one.
        known = set(partitioned)
        return sorted(known | {name for name in single if partition_of(name).stream not in known})

    async def after_last(self, topic: str) -> Place | None:
        """The position after the last message of a topic partition; None: there is no such topic.

        For an empty topic, the position of its next message.
        """
        last = await self._get(f"{_path_of(topic)}/lastMessageId", _last_in)
        if last is not None and last[0] < 0:  # all of it was deleted
            return await self._get(f"{_path_of(topic)}/internalStats", written_in)
        return None if last is None else next_place((*last, 0))

    async def make_subscription(
        self,
        topic: str,
        subscription: str,
        properties: Mapping[str, str],
        *,
        is_latest: bool = False,
        is_replicated: bool = False,
    ) -> bool:
        """Makes a subscription; False if it exists, or if there is no such topic.

        Args:
            topic: not a partitioned one; may be a partition.
            subscription: its name.
            properties: of the subscription, to be asked for with `properties`.
            is_latest: it begins at the topic's end, not at its first message.
            is_replicated: its position is replicated to other clusters.
        """
        edge = LAST if is_latest else -1
        place = {"ledgerId": edge, "entryId": edge, "partitionIndex": -1}
        path = f"{_subscription(topic, subscription)}?replicated={str(is_replicated).lower()}"
        return await self._put(path, {**place, "properties": dict(properties)})

    async def properties(self, topic: str, subscription: str) -> Mapping[str, str] | None:
        """A subscription's properties; None where there is no subscription of that name."""
        return await self._get(f"{_subscription(topic, subscription)}/properties", _named_texts)

    async def set_properties(
        self, topic: str, subscription: str, properties: Mapping[str, str]
    ) -> bool:
        """Replaces all properties; False if there is no such subscription."""
        return await self._put(f"{_subscription(topic, subscription)}/properties", properties)

    async def time(self) -> float:
        """The broker's clock, in whole seconds since the epoch."""
        answer = await self._run("/admin/v2/brokers/version")
        try:
            return parsedate_to_datetime(answer[1]["Date"]).timestamp()
        except (TypeError, ValueError) as error:
            raise AdapterError(f"{self._url} does not tell its time") from error

    # -- logs and cursors ----------------------------------------------------------------------

    async def internals(self, topic: str) -> dict[str, Any] | None:
        """Its ledgers and cursors (``internalStats``)."""
        return await self._get(f"{_path_of(topic)}/internalStats", _checked)

    async def of_all(self, topic: str) -> Mapping[str, dict[str, Any]]:
        """`internals` of each partition of a topic, by their names, in one request.

        Nothing for a topic that is not partitioned.
        """

        def partitions(found: Any) -> dict[str, dict[str, Any]]:
            each = found.get("partitions", {})
            return {name: _checked(internals) for name, internals in each.items()}

        return await self._get(f"{_path_of(topic)}/partitioned-internalStats", partitions) or {}

    async def cursor(self, topic: str, subscription: str) -> Place | None:
        """The position behind the last entry that a subscription has acked without a hole."""
        return cursor_in(await self.internals(topic) or {}, subscription)

    async def consumers(self, topic: str, subscription: str) -> Sequence[str]:
        """The names of a subscription's consumers that are connected."""

        def names(stats: Any) -> list[str]:
            found = stats.get("subscriptions", {}).get(subscription, {})
            return [str(each.get("consumerName")) for each in found.get("consumers", [])]

        return await self._get(f"{_path_of(topic)}/stats", names) or []

    async def reset_cursor(self, topic: str, subscription: str, place: Place) -> bool:
        """Moves a subscription to an entry, which is delivered first then.

        False where there is no such subscription.
        """
        path = f"{_path_of(topic)}/subscription/{quote(subscription, safe='')}/resetcursor"
        where = {"ledgerId": place[0], "entryId": place[1], "partitionIndex": -1}
        answer, _ = await self._run(path, json.dumps(where).encode(), "POST")
        return answer is not None

    async def messages_in(self, topic: str) -> int:
        """How many messages came since the broker loaded the topic."""
        count = await self._get(f"{_path_of(topic)}/stats", lambda stats: stats.get("msgInCounter"))
        return int(count or 0)

    async def batch_size(self, topic: str, ledger: int, entry: int) -> int | None:
        """How many messages an entry has; None if there is no such entry."""
        headers = await self._look(topic, ledger, entry)
        return None if headers is None else _number(headers, BATCH_SIZE, 1)

    async def entry(self, topic: str, ledger: int, number: int) -> Entry | None:
        """What an entry is; None if there is no such entry."""
        headers = await self._look(topic, ledger, number)
        if headers is None:
            return None
        is_seen = not any(headers.get(each) for each in UNSEEN)
        if headers.get(CHUNK_ID) is None:
            return Entry(None, is_seen)
        uuid, count = headers.get(MESSAGE_UUID) or "", _number(headers, CHUNKS, 0)
        return Entry(Chunk(uuid, _number(headers, CHUNK_ID, 0), count), is_seen)

    async def _look(self, topic: str, ledger: int, entry: int) -> Any:
        """The headers of the answer, whose body is the entry; None where there is no such entry."""
        path = f"{_path_of(topic)}/ledger/{ledger}/entry/{entry}"
        body, headers = await self._run(path)
        return None if body is None else headers

    # -- requests ------------------------------------------------------------------------------

    async def _get(self, path: str, read: Callable[[Any], T]) -> T | None:
        """What ``read`` finds in the answer's JSON; None where there is no such thing."""
        body, _ = await self._run(path)
        if body is None:
            return None
        try:
            return read(json.loads(body))
        except _UNREADABLE as error:
            text = f"{self._url}{path}: the answer has another form than Pulsar's: {error!r}"
            raise TransientAdapterError(text) from error

    async def _put(self, path: str, body: Mapping[str, Any]) -> bool:
        """False where there is no such thing, or where what is to be made is there already."""
        answer, _ = await self._run(path, json.dumps(body).encode())
        return answer is not None

    async def _run(
        self, path: str, put: bytes | None = None, method: str = "PUT"
    ) -> tuple[bytes | None, Any]:
        self.calls += 1
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(LONGEST):
                return await loop.run_in_executor(self._threads, self._ask, path, put, method)
        except TimeoutError as error:
            text = f"{self._url}{path}: no whole answer within {LONGEST} s"
            raise TransientAdapterError(text) from error

    def _ask(self, path: str, put: bytes | None, method: str) -> tuple[bytes | None, Any]:
        for _ in self._hosts[1:]:
            try:
                return self._ask_one(path, put, method)
            except _UnreachableError:
                self._host = (self._host + 1) % len(self._hosts)
        return self._ask_one(path, put, method)

    def _ask_one(self, path: str, put: bytes | None, method: str) -> tuple[bytes | None, Any]:
        url, headers = self._url + path, self._headers
        if put is None:
            method = "GET"
        else:
            headers = {**headers, "Content-Type": "application/json"}
        request = Request(url, put, headers, method=method)  # noqa: S310 - checked above
        try:
            with self._opener.open(request, timeout=PATIENCE) as answer:
                return answer.read(), answer.headers
        except HTTPError as error:
            with error:
                return self._refused(path, error)
        except (OSError, HTTPException, ValueError) as error:  # also a redirect to what is no URL
            raise _UnreachableError(f"{self._url}{path}: {error}") from error

    def _refused(self, path: str, error: HTTPError) -> tuple[None, Any]:
        if error.code in (404, 409):  # there is no such topic; there is such a subscription
            return None, error.headers
        what = f"{self._url}{path}: {error.code} {error.reason}"
        if error.code in (401, 403):
            raise AdapterError(f"{what}: give admin_token= of a role that may consume") from error
        raise TransientAdapterError(what) from error

    def close(self) -> None:
        """Closes the client, without a wait."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class _UnreachableError(TransientAdapterError):
    """Another host may answer."""


class _Redirects(HTTPRedirectHandler):
    """Follows to the broker that has the topic; the token goes to known hosts alone.

    Args:
        hosts: their names.
    """

    def __init__(self, hosts: Collection[str]) -> None:
        self._known = hosts

    def redirect_request(  # noqa: PLR0917 - the base class passes them so
        self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        """The question to the other host."""
        to = urlsplit(newurl)
        is_known = to.hostname in self._known and req.type in ("http", to.scheme)
        if req.has_header("Authorization") and not is_known:
            fp.close()
            raise AdapterError(
                f"{req.full_url}: redirects to {to.scheme}://{to.netloc}, which does not get to see "
                "the token: name that host in admin_url=, with commas between several"
            )
        if req.data is not None:  # urllib redirects questions alone
            return Request(newurl, req.data, req.headers, method=req.method)  # noqa: S310 - http too
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _bases(url: str) -> Sequence[str]:
    """Each host's URL.

    Raises:
        ConfigurationError: it is no URL of HTTP.
    """
    scheme, slashes, hosts = url.partition("://")
    if scheme not in ("http", "https") or not slashes:
        raise ConfigurationError(f"admin_url={url!r}: give http://host:port")
    return [f"{scheme}://{host}" for host in hosts.rstrip("/").split(",")]


def _texts(found: Any) -> list[str]:
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise TypeError("no list of texts")
    return found


def written_in(internals: Mapping[str, Any]) -> Place:
    """The position after a topic's last entry, which readers may not get yet."""
    return _after(internals["lastConfirmedEntry"])


def _after(text: str) -> Place:
    """What comes after ``ledger:entry``, as the REST API writes where a cursor stands."""
    ledger, _, entry = text.partition(":")
    return next_place((int(ledger), int(entry), 0))


def _last_in(found: Any) -> tuple[int, int]:
    return int(found["ledgerId"]), int(found["entryId"])


def _named_texts(found: Any) -> dict[str, str]:
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise TypeError("no texts by name")
    return found


def _subscription(topic: str, name: str) -> str:
    return f"{_path_of(topic)}/subscription/{quote(name, safe='')}"


def _path_of(topic: str) -> str:
    """Where the REST API has a topic."""
    domain, _, name = topic.partition("://")
    return f"/admin/v2/{domain}/{quote(name)}"


def _number(headers: Any, name: str, otherwise: int) -> int:
    """A header that is a number, or ``otherwise`` where it is absent."""
    text = headers.get(name)
    try:
        return int(text) if text else otherwise
    except ValueError as error:
        raise TransientAdapterError(
            f"{name}: {text!r} of an entry is no number: is a proxy in between?"
        ) from error


def _checked(internals: Any) -> dict[str, Any]:
    """The answer, after a look at all that is read in it later: another form raises here."""
    written_in(internals)
    for name in internals.get("cursors", {}):
        cursor_in(internals, name)
    return dict(internals)


def cursor_in(internals: Mapping[str, Any], subscription: str) -> Place | None:
    """The position of a topic's subscription; None if there is no such subscription."""
    found = internals.get("cursors", {}).get(subscription)
    return None if found is None else _after(found["markDeletePosition"])


def progress_in(internals: Mapping[str, Any], subscription: str) -> Checkpoint | None:
    """What a topic's subscription has acked, with its holes; None if there is no such subscription.

    A producer's batch that is acked in part counts as not acked.
    """
    resume = cursor_in(internals, subscription)
    if resume is None:
        return None
    text = str(internals["cursors"][subscription].get("individuallyDeletedMessages", ""))
    places = (tuple(map(int, found.groups())) for found in DELETED.finditer(text))
    return Checkpoint(
        watermark=(resume[0], resume[1] - 1, LAST_BATCH_INDEX) if resume[1] > 0 else None,
        resume=resume,
        ranges=tuple(
            ((ledger, entry + 1, 0), (last_ledger, last, LAST_BATCH_INDEX))
            for ledger, entry, last_ledger, last in places
        ),
    )
