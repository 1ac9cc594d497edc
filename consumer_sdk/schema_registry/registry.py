"""A schema registry by its URL. It blocks: call it in a thread where an event loop runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import final
from urllib.parse import SplitResult, parse_qsl, quote, urlsplit

from consumer_sdk.errors import ConfigurationError
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
from consumer_sdk.schema_registry.answers import RegisteredSchema, read_schema
from consumer_sdk.schema_registry.requests import fetch

__all__ = ["SchemaRegistry"]

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
        password: itself, or ``env:NAME``, or ``file:/path``, looked up at each request.
        token: a bearer token instead, in the same forms.
        ca_file: certificates to trust instead of the system's, PEM.
        timeout: seconds for one request and its answer.
        attempts: how often is asked while the registry is away or says 5xx.
        retry_delay: seconds before the second attempt; each later one waits twice as long, 5 s at most.
        max_bytes: of an answer.

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
