"""A schema registry by its URL. It blocks: call it in a thread where an event loop runs."""

from __future__ import annotations

import base64
import http.client
import logging
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import IO, TYPE_CHECKING, final
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, parse_qsl, quote, urlsplit
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
from consumer_sdk.options import (
    COUNT,
    HTTP_URL,
    PATH,
    SECONDS,
    SECONDS_OR_0,
    SECRET,
    TEXT,
    check_fields,
    kinds_of,
    option,
    optional,
    read_texts,
    shown,
)
from consumer_sdk.schema_registry.answers import RegisteredSchema, error_of, read_schema

if TYPE_CHECKING:
    from http.client import HTTPMessage, HTTPResponse

__all__ = ["SchemaRegistry"]

_LOG = logging.getLogger(__name__)
_LONGEST_PAUSE = 5.0
_CHUNK = 2**16
_ACCEPTED = "application/vnd.schemaregistry.v1+json, application/json"
_REMEMBERED = 512


@final
@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """A schema registry with Confluent's interface (Karapace, Redpanda and Apicurio have it too).

    It may be pickled, and used by several threads. A process asks once for the schema of a number,
    which never changes, and remembers the last 512.

    Args:
        url: ``https://host:8081``, with a path where the interface has one. The options may be in
            its query: ``https://host?username=reader&password=env:REGISTRY_PASSWORD``.
        username: for HTTP basic authentication, with ``password``.
        password: the password itself, or ``env:NAME``, or ``file:/path``, which is looked up at
            each request.
        token: a bearer token instead, in the same forms.
        ca_file: certificates to trust instead of the system's, PEM.
        timeout: seconds for one request and its answer.
        attempts: tries while the registry is unreachable or answers 5xx.
        retry_delay: seconds before the second attempt; each later wait is twice as long, 5 s at
            most.
        max_bytes: most bytes of an answer.

    Raises:
        ConfigurationError: an option is none.
    """

    url: str = option(HTTP_URL)
    username: str | None = option(optional(TEXT), default=None)
    password: str | None = option(optional(SECRET), default=None)
    token: str | None = option(optional(SECRET), default=None)
    ca_file: str | None = option(optional(PATH), default=None)
    timeout: float = option(SECONDS, default=10.0)
    attempts: int = option(COUNT, default=6)
    retry_delay: float = option(SECONDS_OR_0, default=0.2)
    max_bytes: int = option(COUNT, default=4 * 2**20)

    def __post_init__(self) -> None:
        check_fields(self, "SchemaRegistry")
        parts = _split(self.url)
        if parts.query or parts.fragment:
            raise ConfigurationError("url: SchemaRegistry.from_url reads options of a URL's query")
        if (self.username is None) != (self.password is None):
            raise ConfigurationError("username=, password=: give both, or none")
        if self.token is not None and self.username is not None:
            raise ConfigurationError("token=, username=: give one of them")
        object.__setattr__(self, "url", self.url.rstrip("/"))

    @classmethod
    def from_url(cls, url: str) -> SchemaRegistry:
        """The registry that a URL names, with the options in its query.

        Raises:
            ConfigurationError: it is no such URL, or an option is unknown.
        """
        HTTP_URL.check("registry", url)
        parts = _split(url)
        texts = dict(parse_qsl(parts.query, keep_blank_values=True))
        bare = parts._replace(query="", fragment="").geturl()
        kinds = {name: kind for name, kind in kinds_of(cls).items() if name != "url"}
        return cls(bare, **read_texts(texts, kinds))

    def schema(self, number: int, *, serialized: bool = False) -> RegisteredSchema:
        """The schema that a value's head names.

        Args:
            serialized: of Protobuf: the serialized file instead of its source.

        Raises:
            UnknownSchemaError: the registry has no such schema.
            TransientSchemaRegistryError: it is away, and was after the last attempt.
            SchemaRegistryAccessError: it refuses the credentials.
            SchemaRegistryError: it answers what no registry does.
        """
        return _remembered(self, f"schemas/ids/{number}{_format(serialized)}")

    def version(
        self, subject: str, version: int | str = "latest", *, serialized: bool = False
    ) -> RegisteredSchema:
        """The schema of a subject's version; the latest is asked for each time.

        Raises:
            SchemaRegistryError: as `schema`.
        """
        where = f"subjects/{quote(subject, safe='')}/versions/{version}{_format(serialized)}"
        return _asked(self, where) if version == "latest" else _remembered(self, where)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        is_whole = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise ConfigurationError(f"registry={shown(url)}: this is no URL") from error
    if not is_whole or "@" in parts.netloc:
        raise ConfigurationError(
            "registry: write https://host:port, and credentials as options: "
            "?username=reader&password=env:NAME"
        )
    return parts


def _format(serialized: bool) -> str:  # noqa: FBT001 - the caller names it
    return "?format=serialized" if serialized else ""


def _asked(registry: SchemaRegistry, where: str) -> RegisteredSchema:
    return read_schema(fetch(registry, where), f"{registry.url}/{where}")


@lru_cache(maxsize=_REMEMBERED)
def _remembered(registry: SchemaRegistry, where: str) -> RegisteredSchema:
    """Remembers answers that never change; errors are not remembered."""
    return _asked(registry, where)


# -- requests ------------------------------------------------------------------------------


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
