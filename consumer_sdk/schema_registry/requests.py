"""Requests to a registry, by the standard library: bounded in time, size and number."""

from __future__ import annotations

import base64
import http.client
import logging
import ssl
import time
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import (
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    Request,
    build_opener,
)

from consumer_sdk.errors import (
    ConfigurationError,
    SchemaRegistryError,
    TransientSchemaRegistryError,
)
from consumer_sdk.named_secrets import secret
from consumer_sdk.schema_registry.answers import error_of

if TYPE_CHECKING:
    from http.client import HTTPMessage, HTTPResponse

    from consumer_sdk.schema_registry.registry import SchemaRegistry

__all__ = ["fetch"]

_LOG = logging.getLogger(__name__)
_LONGEST_PAUSE = 5.0
_CHUNK = 2**16
_ACCEPTED = "application/vnd.schemaregistry.v1+json, application/json"


def fetch(registry: SchemaRegistry, where: str) -> bytes:
    """Fetches the body of an answer; asks again while the registry is away.

    Args:
        where: the path and query below the registry's URL.

    Raises:
        SchemaRegistryError: as `SchemaRegistry.schema` says.
    """
    for pause in _pauses(registry):
        try:
            return _once(registry, where)
        except TransientSchemaRegistryError as error:
            if pause is None:
                raise
            _LOG.warning("%s; asking again in %.1f s", error, pause)
            time.sleep(pause)
    raise AssertionError  # the last pause is None


def _pauses(registry: SchemaRegistry) -> Iterator[float | None]:
    """Seconds to wait after each failed attempt; None after the last one."""
    for attempt in range(registry.attempts - 1):
        yield min(registry.retry_delay * 2 ** min(attempt, 30), _LONGEST_PAUSE)
    yield None


def _once(registry: SchemaRegistry, where: str) -> bytes:
    asked = f"{registry.url}/{where}"
    request = Request(asked, headers=_headers(registry))  # noqa: S310 - SchemaRegistry takes http and https alone
    opener = _opener(registry)
    until = time.monotonic() + registry.timeout
    try:
        with opener.open(request, timeout=registry.timeout) as answer:
            return _body(answer, registry, asked, until)
    except HTTPError as error:
        with error:
            raise error_of(error.code, _start(error), asked) from error
    except URLError as error:
        raise _failure(asked, error.reason) from error
    except (OSError, http.client.HTTPException) as error:
        raise _failure(asked, error) from error
    except ValueError as error:  # a redirect to what is no URL
        raise SchemaRegistryError(f"{asked}: {error}") from error


def _headers(registry: SchemaRegistry) -> dict[str, str]:
    found = {"Accept": _ACCEPTED, "User-Agent": "consumer-sdk"}
    if registry.token is not None:
        found["Authorization"] = f"Bearer {secret('token', registry.token)}"
    if registry.username is not None and registry.password is not None:
        name = secret("username", registry.username)
        pair = f"{name}:{secret('password', registry.password)}"
        found["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    if not all(text.isprintable() and text.isascii() for text in found.values()):
        raise ConfigurationError("token=: it has characters that no HTTP header can have")
    return found


def _body(answer: HTTPResponse, registry: SchemaRegistry, asked: str, until: float) -> bytes:
    """Reads the body in parts, since the socket's own timeout begins anew with each byte."""
    parts: list[bytes] = []
    size = 0
    while part := answer.read1(_CHUNK):
        parts.append(part)
        size += len(part)
        if size > registry.max_bytes:
            raise SchemaRegistryError(
                f"{asked}: the answer has more than max_bytes={registry.max_bytes}"
            )
        if time.monotonic() > until:
            raise TransientSchemaRegistryError(
                f"{asked}: the answer took over {registry.timeout} s"
            )
    if answer.length:
        raise TransientSchemaRegistryError(f"{asked}: the answer ended {answer.length} bytes early")
    return b"".join(parts)


def _start(error: HTTPError) -> bytes:
    try:
        return error.read(_CHUNK)
    except (OSError, http.client.HTTPException):
        return b""  # the status says enough


def _failure(asked: str, reason: object) -> SchemaRegistryError:
    said = f"{asked}: {type(reason).__name__}: {reason}" if reason else asked
    if isinstance(reason, ssl.SSLCertVerificationError):
        return SchemaRegistryError(f"{said}; ca_file= names certificates to trust")
    return TransientSchemaRegistryError(f"{said}: the schema registry does not answer")


# -- redirects ------------------------------------------------------------------------------


def _opener(registry: SchemaRegistry) -> OpenerDirector:
    if not registry.url.startswith("https://"):
        return build_opener(_SameOrigin)
    try:
        context = ssl.create_default_context(cafile=registry.ca_file)
    except OSError as error:
        raise ConfigurationError(f"ca_file={registry.ca_file!r}: {error}") from error
    return build_opener(_SameOrigin, HTTPSHandler(context=context))


class _SameOrigin(HTTPRedirectHandler):
    """Follows no redirect to another server: urllib would send it the credentials."""

    def redirect_request(  # noqa: PLR0917 - urllib's
        self,
        req: Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> Request | None:
        if _origin(newurl) != _origin(req.full_url):
            raise SchemaRegistryError(
                f"{req.full_url}: redirects to {_shown(newurl)}; if that is the schema registry, "
                "give its URL"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    default = {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname, parts.port or default


def _shown(url: str) -> str:
    scheme, host, port = _origin(url)
    return f"{scheme}://{host}:{port}"
