"""The path and the data of a store's znodes. No I/O.

A checkpoint is the znode ``{root}/{group}/{stream}/{partition}``. Its data is one JSON object::

    {"version":1,"writer":"host/4711/9f…c2.3","fence":null,"serial":17,"checkpoint":{…}}

``writer``, ``fence`` and ``serial`` are the stamp of `consumer_sdk.stores.fencing`. The checkpoint
is the text that was saved, byte by byte; it is missing before the first save and after a delete.
A stream's own znode holds the group's resolved start, ``{"version":1,"start":"…"}``, or nothing.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

from consumer_sdk.errors import CheckpointFormatError, ConfigurationError
from consumer_sdk.records import Partition
from consumer_sdk.stores.fencing import Stamp

__all__ = [
    "check_root",
    "checkpoint_path",
    "decode_pin",
    "decode_znode",
    "encode_pin",
    "encode_znode",
    "escape",
    "unescape",
]

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
