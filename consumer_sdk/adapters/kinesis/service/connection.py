"""The connection to Kinesis: the client's options, and an open client.

The client's own retries are off: they are silent, take seconds, and count against a shard's limits.
The caller keeps the limits that the readers of a shard share.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cache
from pathlib import Path
from typing import Any

from consumer_sdk.adapters.kinesis import client_support as _support  # noqa: F401 - is it there?

# isort: split
from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession

from consumer_sdk.adapters.kinesis.service.translation import FOREIGN, Faults, readable, translate
from consumer_sdk.errors import ConfigurationError, ConsumerClosedError
from consumer_sdk.log_limits import LimitedLoggers
from consumer_sdk.options import (
    COUNT,
    FLAG,
    HTTP_URL,
    NAME,
    SECONDS,
    SECRET,
    TEXT,
    TRUTH,
    OptionType,
    check_fields,
    option,
    optional,
)

__all__ = ["Connection", "Link"]

CLIENT_LOGS = LimitedLoggers("aiobotocore", "botocore")
"""Held from a `Link`'s opening to its end."""


def _verify(text: str) -> bool | str:
    return TRUTH.get(text.lower(), text)


VERIFY = OptionType(
    "True, False or a file of authorities", lambda v: isinstance(v, bool | str), _verify
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Where Kinesis is, and who asks.

    The client looks for missing options as all of Amazon's clients do: in environment variables, in
    the configuration files, and in the machine's role.

    Attributes:
        region_name: the AWS region, such as ``"eu-central-1"``. A stream's ARN names its own region.
        endpoint_url: an endpoint other than Amazon's, such as ``"http://127.0.0.1:4567"``.
        aws_access_key_id: the id of an access key; needs ``aws_secret_access_key``.
        aws_secret_access_key: the secret of that access key.
        aws_session_token: the session token of temporary credentials.
        profile: the profile of the AWS configuration files to use.
        verify: whether to check the server's certificate, or a file of certificate authorities to check
            it with.
        request_timeout: seconds to wait for a response, and for the next event of a fan-out
            subscription, which comes about every five seconds.
        connect_timeout: seconds to wait for a connection, and to go on retrying if opening fails with
            a transient error.
        connections: most connections at a time, opened as needed. Each fan-out subscription holds
            one, and each request holds one until its response.
        fast_decode: parse the responses to GetRecords without the client's own parser, ten times as
            fast.

    Raises:
        ConfigurationError: an option is of the wrong kind, a file is not there, or half of a pair
            of keys is missing.
    """

    region_name: str | None = option(optional(NAME), default=None)
    endpoint_url: str | None = option(optional(HTTP_URL), default=None)
    aws_access_key_id: str | None = option(optional(TEXT), default=None)
    aws_secret_access_key: str | None = option(optional(SECRET), default=None)
    aws_session_token: str | None = option(optional(SECRET), default=None)
    profile: str | None = option(optional(NAME), default=None)
    verify: bool | str = option(VERIFY, default=True)
    request_timeout: float = option(SECONDS, default=30.0)
    connect_timeout: float = option(SECONDS, default=10.0)
    connections: int = option(COUNT, default=1000)
    fast_decode: bool = option(FLAG, default=True)

    def __post_init__(self) -> None:
        check_fields(self)
        if isinstance(self.verify, str) and not Path(self.verify).exists():
            raise ConfigurationError(f"verify={self.verify!r}: there is no such file")
        if (self.aws_access_key_id is None) != (self.aws_secret_access_key is None):
            raise ConfigurationError(
                "give both of aws_access_key_id and aws_secret_access_key, or none"
            )

    @property
    def patience(self) -> float:
        """Seconds until a call fails: for its connection and its whole response."""
        return self.connect_timeout + self.request_timeout

    def place(self, region: str | None = None) -> str:
        """Where requests go, for messages."""
        return self.endpoint_url or region or self.region_name or "the configured region"


class Link:
    """An open client, with the clock of who answers it.

    Args:
        region: of a stream's ARN; the connection's own gives way to it.
        clock: monotonic, in seconds.
    """

    __slots__ = (
        "__weakref__",
        "_client",
        "_clock",
        "_connection",
        "_exits",
        "_heard",
        "_offset",
        "_region",
    )

    def __init__(
        self,
        connection: Connection,
        region: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._region = region
        self._clock = clock
        self._exits = AsyncExitStack()
        self._client: Any = None
        self._heard: tuple[str, float] | None = None
        self._offset: float | None = None

    @property
    def events(self) -> Any:
        """Where the client's hooks are registered."""
        return self._client.meta.events

    async def open(self) -> None:
        """Makes the client; asks for nothing yet, except where credentials come from a service.

        Idempotent.

        Raises:
            ConfigurationError: the options cannot work.
            AdapterError: there are no credentials to be had now.
        """
        if self._client is not None:
            return
        CLIENT_LOGS.hold(self)
        doing = "opening a client of Kinesis"
        try:
            async with asyncio.timeout(self._connection.patience):
                self._client = await self._exits.enter_async_context(self._made())
        except FOREIGN as error:
            raise translate(error, doing) from error
        except ValueError as error:  # the client's word for an endpoint that is no URL
            raise ConfigurationError(f"{doing}: {error}") from error

    async def call(
        self,
        operation: str,
        parameters: Mapping[str, object],
        doing: str,
        faults: Faults | None = None,
    ) -> Any:
        """One request, sent once.

        Args:
            operation: in the client's spelling, such as ``"get_records"``.
            doing: what for, with the names that matter; an error's message starts with it.
            faults: what the service's codes mean here.

        Raises:
            ConsumerSdkError: as `translate` has it.
            ConsumerClosedError: the client is not open.

        Cancellation: the request's connection is closed.
        """
        if self._client is None:
            raise ConsumerClosedError(f"{doing}: the client is not open")
        request = getattr(self._client, operation)
        try:
            with readable(doing):
                async with asyncio.timeout(self._connection.patience):
                    answer = await request(**parameters)
        except FOREIGN as error:
            raise translate(error, doing, faults) from error
        date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        if date is not None:
            self._heard = (date, self._clock())
        return answer

    def time(self) -> float | None:
        """The service's clock, in seconds since the epoch; None while it has not told it well.

        An answer's Date, cut to seconds, and what has passed since it came: always a little late.
        """
        if self._heard is not None:
            (date, when), self._heard = self._heard, None
            with suppress(ValueError):  # of a proxy that answered: what was known before counts
                self._offset = parsedate_to_datetime(date).timestamp() - when
        return None if self._offset is None else self._offset + self._clock()

    async def aclose(self) -> None:
        """Closes all connections. Idempotent."""
        self._client = None
        CLIENT_LOGS.release(self)
        await self._exits.aclose()

    def _made(self) -> Any:
        given = self._connection
        session = AioSession(profile=given.profile)
        session.register_component("data_loader", _models(given.profile))
        return session.create_client(
            "kinesis",
            region_name=self._region or given.region_name,
            endpoint_url=given.endpoint_url,
            verify=given.verify,
            aws_access_key_id=given.aws_access_key_id,
            aws_secret_access_key=given.aws_secret_access_key,
            aws_session_token=given.aws_session_token,
            config=AioConfig(
                connect_timeout=given.connect_timeout,
                read_timeout=given.request_timeout,
                max_pool_connections=given.connections,
                # The mode is given since the environment may ask for another, with other attempts.
                retries={"mode": "standard", "total_max_attempts": 1},
            ),
        )


@cache
def _models(profile: str | None) -> Any:
    """The client's models of its services: to read them takes six times as long as all else."""
    return AioSession(profile=profile).get_component("data_loader")
