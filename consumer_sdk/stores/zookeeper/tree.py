"""Znodes: the path and the data of each, and how many are read and written at a time.

A checkpoint is the znode ``{root}/{group}/{stream}/{partition}``. Its data is one JSON object::

    {"version":1,"writer":"host/4711/9f…c2.3","fence":null,"serial":17,"checkpoint":{…}}

``writer``, ``fence`` and ``serial`` are the stamp of `consumer_sdk.stores.fencing`. The checkpoint
is the text that was saved, byte by byte; it is missing before the first save and after a delete.
A stream's own znode holds the group's resolved start, ``{"version":1,"start":"…"}``, or nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError, NotEmptyError, RolledBackError

from consumer_sdk.errors import CheckpointFormatError, ConfigurationError
from consumer_sdk.records import Partition
from consumer_sdk.stores.fencing import Stamp
from consumer_sdk.stores.zookeeper.bridge import Bridge, is_conflict, translate

__all__ = [
    "Put",
    "Refusal",
    "Tree",
    "Znode",
    "batches",
    "check_root",
    "checkpoint_path",
    "decode_pin",
    "decode_znode",
    "encode_pin",
    "encode_znode",
    "escape",
    "unescape",
]

# -- their path and data; no I/O -------------------------------------------------------------------

VERSION = 1
STAMP = frozenset(("version", "writer", "fence", "serial"))
PIN = frozenset(("version", "start"))

CHECKPOINT = b',"checkpoint":'
"""Found once in our data: quotes inside JSON strings are escaped, and the text comes after it."""

MAX_HEAD = 4096
"""Bytes before the checkpoint that are parsed: a writer's name takes a few hundred."""

MAX_PATH = 8192
"""Characters; beside a path as long as that, a request has room for a checkpoint."""


def check_root(root: str) -> str:
    """Sees that everything can be kept below ``root``.

    Raises:
        ConfigurationError: it cannot.
    """
    given: object = root  # whatever was given
    names = root.split("/")[1:] if isinstance(given, str) else []
    is_plain = names and re.fullmatch(r"(/[!-.0-~]+)+", root)  # printable ASCII
    if not is_plain or {".", ".."} & set(names) or names[0] == "zookeeper":
        raise ConfigurationError(
            f"root={root!r}: give the absolute path of a znode, such as '/consumer-sdk'"
        )
    return root


@lru_cache(maxsize=16_384)
def escape(name: str) -> str:
    """A name as one element of a path: percent-encoded UTF-8."""
    element = quote(name, safe="")
    if element in (".", ".."):
        return element.replace(".", "%2E")
    return element or "%"


def unescape(element: str) -> str | None:
    """Reads `escape` back; None for what is none of its elements."""
    name = "" if element == "%" else unquote(element)
    return name if escape(name) == element else None


def checkpoint_path(root: str, group: str, partition: Partition) -> str:
    """Where a checkpoint is kept.

    Raises:
        ConfigurationError: the names are too long.
    """
    path = f"{root}/{escape(group)}/{escape(partition.stream)}/{escape(partition.id)}"
    if len(path) > MAX_PATH:
        raise ConfigurationError(f"a path of {len(path)} characters, at most {MAX_PATH}: {path}")
    return path


def encode_znode(stamp: Stamp, text: str | None) -> bytes:
    """The data of a checkpoint's znode."""
    writer, fence = json.dumps(stamp.writer), "null" if stamp.fence is None else stamp.fence
    head = f'{{"version":{VERSION},"writer":{writer},"fence":{fence},"serial":{stamp.serial}'
    rest = "" if text is None else f"{CHECKPOINT.decode()}{text}"
    return f"{head}{rest}}}".encode()


def decode_znode(data: bytes, path: str) -> tuple[Stamp, str | None]:
    """Reads `encode_znode` back.

    Raises:
        CheckpointFormatError: somebody else has written it, or a newer version of this program.
    """
    head, found, rest = data.partition(CHECKPOINT)
    try:
        body = _decode(head + b"}" if found else head, STAMP)
        stamp = Stamp(_text(body, "writer"), _fence(body), _serial(body))
        return stamp, _whole(rest) if found else None
    except (ValueError, RecursionError) as error:
        raise _foreign(path, error) from error


def encode_pin(start: str) -> bytes:
    """The data of a stream's znode."""
    return f'{{"version":{VERSION},"start":{json.dumps(start)}}}'.encode()


def decode_pin(data: bytes, path: str) -> str | None:
    """Reads `encode_pin` back; None where nothing was pinned.

    Raises:
        CheckpointFormatError: somebody else has written it, or a newer version of this program.
    """
    try:
        return _text(_decode(data, PIN), "start") if data else None
    except (ValueError, RecursionError) as error:
        raise CheckpointFormatError(
            f"{path} holds no pinned start that can be read ({error}): nothing was changed. "
            f"Delete it with the store's unpin() or `consumer-sdk checkpoints unpin`, put a copy "
            f"back, or use another root or group"
        ) from error


def _decode(data: bytes, names: frozenset[str]) -> dict[str, Any]:
    if len(data) > MAX_HEAD:
        raise ValueError(f"{len(data)} bytes without a checkpoint")
    body = json.loads(data.decode())
    if not isinstance(body, dict) or type(version := body.get("version")) is not int:
        raise ValueError("it is not ours")
    if version != VERSION:
        raise ValueError(f"version {version}, and this consumer_sdk knows version {VERSION}")
    # Exactly: a checkpoint under a damaged name must not pass for no checkpoint.
    if body.keys() != names:
        raise ValueError(f"its fields are {', '.join(body):.200}")
    return body


def _text(body: dict[str, Any], name: str) -> str:
    value = body[name]
    if not isinstance(value, str):
        raise ValueError(f"{name} is {value!r:.80}")  # noqa: TRY004 - one type for all bad content
    return value


def _fence(body: dict[str, Any]) -> int | None:
    fence = body["fence"]
    if fence is not None and type(fence) is not int:
        raise ValueError(f"fence is {fence!r:.80}")
    return fence


def _serial(body: dict[str, Any]) -> int:
    serial = body["serial"]
    if type(serial) is not int or serial < 0:
        raise ValueError(f"serial is {serial!r:.80}")
    return serial


def _whole(rest: bytes) -> str:
    if not rest.endswith(b"}"):
        raise ValueError("it ends too early")
    return rest[:-1].decode()


def _foreign(path: str, error: Exception) -> CheckpointFormatError:
    return CheckpointFormatError(
        f"{path} holds no checkpoint that can be read ({error}): nothing was changed. Delete it "
        f"with the store's delete(), put a copy back, or use another root or group"
    )


# -- reading and writing many at a time ------------------------------------------------------------

SET_OVERHEAD = 200
CREATE_OVERHEAD = 1000
"""Bytes that a put may take beside its path and data: the hosts' chroot, and an ACL."""


class Znode(NamedTuple):
    """What was read."""

    data: bytes
    version: int


class Put(NamedTuple):
    """What is to be written, and over which version; None: there must be no such znode yet."""

    path: str
    data: bytes
    version: int | None

    @property
    def size(self) -> int:
        """Bytes that it takes in a request, at most."""
        overhead = CREATE_OVERHEAD if self.version is None else SET_OVERHEAD
        return len(self.path) + len(self.data) + overhead


class Refusal(NamedTuple):
    """Why nothing was written: the first put that could not be, and its error."""

    at: int
    error: Exception


def batches(puts: Iterable[Put], limit: int) -> Iterator[list[Put]]:
    """Splits ``puts``, in order, so that each request stays below ``limit`` bytes.

    A server closes the connection on a request that is too large, which looks like an outage.
    """
    batch: list[Put] = []
    room = limit
    for put in puts:
        if batch and put.size > room:
            yield batch
            batch, room = [], limit
        batch.append(put)
        room -= put.size
    if batch:
        yield batch


class Tree:
    """The znodes of a ZooKeeper, through a bridge.

    Every method raises what `Bridge.ask` raises, and:

    Raises:
        StoreError: the servers refused; says what to do.
    """

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    async def read(self, paths: Sequence[str]) -> list[Znode | None]:
        """The znodes; None where there is none."""
        answers = await self._bridge.ask(_get, paths)
        return [_znode(answer, path) for answer, path in zip(answers, paths, strict=True)]

    async def write(self, puts: Sequence[Put]) -> Refusal | None:
        """Writes all in one step, or nothing."""
        (answer,) = await self._bridge.ask(_commit, [puts])
        if isinstance(answer, Exception):
            raise translate(answer, f"writing {puts[0].path} and {len(puts) - 1} more") from answer
        for index, result in enumerate(answer):
            # Those before the refused one are "rolled back", those after it "inconsistent".
            if isinstance(result, Exception) and not isinstance(result, RolledBackError):
                return Refusal(index, result)
        return None

    async def children(self, paths: Sequence[str]) -> list[Sequence[str]]:
        """The names below each znode; none where there is no such znode."""
        answers = await self._bridge.ask(_get_children, paths)
        return [_names(answer, path) for answer, path in zip(answers, paths, strict=True)]

    async def ensure(self, path: str) -> None:
        """Makes a znode and those above it, where they are missing."""
        (answer,) = await self._bridge.ask(_ensure, [path])
        _value(answer, path)

    async def prune(self, path: str, version: int) -> None:
        """Removes a znode, unless there is something below it or it has been written since."""
        (answer,) = await self._bridge.ask(_delete, [Put(path, b"", version)])
        if not (isinstance(answer, NotEmptyError) or is_conflict(answer)):
            _value(answer, path)


def _get(client: KazooClient, path: str) -> Any:
    return client.get_async(path)


def _get_children(client: KazooClient, path: str) -> Any:
    return client.get_children_async(path)


def _ensure(client: KazooClient, path: str) -> Any:
    return client.ensure_path_async(path)


def _delete(client: KazooClient, put: Put) -> Any:
    return client.delete_async(put.path, put.version)


def _commit(client: KazooClient, puts: Sequence[Put]) -> Any:
    request = client.transaction()
    for path, data, version in puts:
        if version is None:
            request.create(path, data)
        else:
            request.set_data(path, data, version)
    return request.commit_async()


def _znode(answer: Any, path: str) -> Znode | None:
    if isinstance(answer, NoNodeError):
        return None
    data, stat = _value(answer, path)
    return Znode(data, stat.version)


def _names(answer: Any, path: str) -> Sequence[str]:
    return () if isinstance(answer, NoNodeError) else list(_value(answer, path))


def _value(answer: Any, path: str) -> Any:
    if isinstance(answer, Exception):
        raise translate(answer, path) from answer
    return answer
