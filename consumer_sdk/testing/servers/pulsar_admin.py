"""Pulsar's admin interface over HTTP, without a client of its own."""

import json
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any, Literal
from urllib.parse import quote

from consumer_sdk.testing.servers.errors import ServerError

__all__ = ["Position", "call", "path_of", "place_of"]

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


def place_of(position: Position) -> dict[str, int]:
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
