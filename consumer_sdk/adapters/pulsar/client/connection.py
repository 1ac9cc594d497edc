"""The connection to Pulsar: the client's options, and a native client."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import _pulsar
import pulsar

from consumer_sdk.adapters.pulsar.client.interpreter_exit import remember
from consumer_sdk.adapters.pulsar.client.native_log import NativeLog
from consumer_sdk.adapters.urls import is_host, shown
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.options import (
    COUNT,
    FLAG,
    NAME,
    PATH,
    SECONDS,
    SECRET,
    OptionType,
    check_fields,
    choice,
    option,
    optional,
)

__all__ = ["Connection"]

SCHEMES = ("pulsar", "pulsar+ssl")


def _is_service_url(value: object) -> bool:
    try:
        parts = urlsplit(value if isinstance(value, str) else "")
    except ValueError:  # a bracket that is not closed
        return False
    is_plain = parts.scheme in SCHEMES and "@" not in parts.netloc
    return is_plain and all(map(is_host, parts.netloc.split(",")))


SERVICE_URL = OptionType(
    "pulsar://host:port or pulsar+ssl://host:port, without credentials",
    _is_service_url,
    show=shown,
)
TOKEN = replace(
    SECRET,
    wanted="a JWT, or a function that returns one",
    accepts=lambda value: isinstance(value, str) or callable(value),
)
OAUTH2 = replace(
    SECRET,
    wanted="the flow's parameters, {'issuer_url': …}",
    accepts=lambda value: isinstance(value, Mapping),
    read=None,
)
LOG_LEVEL = choice("debug", "info", "warn", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """The servers of Pulsar, and the credentials.

    Attributes:
        service_url: ``pulsar://host:6650[,host:6650]``, or ``pulsar+ssl://host:6651``.
        token: a JWT for authentication, or a function that returns one. The function is called for each
            connection, and when the broker asks again, in a thread of the client.
        tls_certificate: the file of a client certificate for authentication; needs ``tls_key``.
        tls_key: the file of the private key of ``tls_certificate``.
        oauth2: parameters of the OAuth2 flow: ``issuer_url``, ``private_key`` and so on.
        tls_trust_certs: a file of certificate authorities to trust; by default those of certifi.
        tls_validate_hostname: whether the server's certificate has to name the host.
        operation_timeout: longest time for one request to the broker, in seconds.
        connect_timeout: seconds to wait for a connection, and to go on retrying if opening fails with
            a transient error.
        io_threads: threads of the native client.
        listener_name: the brokers' advertised listener to use.
        log_level: the lowest level that the native client logs: ``"debug"``, ``"info"``, ``"warn"`` or
            ``"error"``.
        log_file: the file for the native client's log. None: Python's logger ``pulsar``, whose repeated
            lines are limited. The first client of a process decides for all of them.

    Raises:
        ConfigurationError: an option cannot work.
    """

    service_url: str = option(SERVICE_URL)
    token: str | Callable[[], str] | None = option(optional(TOKEN), default=None)
    tls_certificate: str | None = option(optional(PATH), default=None)
    tls_key: str | None = option(optional(PATH), default=None)
    oauth2: Mapping[str, str] | None = option(optional(OAUTH2), default=None)
    tls_trust_certs: str | None = option(optional(PATH), default=None)
    tls_validate_hostname: bool = option(FLAG, default=True)
    operation_timeout: float = option(SECONDS, default=30.0)
    connect_timeout: float = option(SECONDS, default=10.0)
    io_threads: int = option(COUNT, default=1)
    listener_name: str | None = option(optional(NAME), default=None)
    log_level: str = option(LOG_LEVEL, default="error")
    log_file: str | None = option(optional(PATH), default=None)

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("tls_certificate", "tls_key", "tls_trust_certs"):
            path = getattr(self, name)
            if path is not None and not Path(path).is_file():  # the client would retry for ever
                raise ConfigurationError(f"{name}={path!r}: there is no such file")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ConfigurationError("give both of tls_certificate and tls_key, or none")
        given = (self.token, self.tls_certificate, self.oauth2)
        if sum(each is not None for each in given) > 1:
            raise ConfigurationError("give one of token, tls_certificate and oauth2")

    def as_options(self) -> dict[str, Any]:
        """All options by name, to make another connection with them; values are not copied."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def make_client(self) -> Any:
        """A native client; connects when it is first needed. Close it with `calls.close`.

        Raises:
            ConfigurationError: an option cannot work.
        """
        configuration = self._configuration()
        try:
            client = _pulsar.Client(self.service_url, configuration)
        except Exception as error:
            raise ConfigurationError(f"service_url={self.service_url!r}: {error}") from error
        remember(client)
        return client

    def ssl_context(self) -> ssl.SSLContext:
        """The same TLS options for connections that Python makes.

        Raises:
            ConfigurationError: a file holds no certificate, or no key.
        """
        try:
            made = ssl.create_default_context(cafile=self.tls_trust_certs or _certificates())
            made.check_hostname = self.tls_validate_hostname
            if self.tls_certificate is not None:
                made.load_cert_chain(self.tls_certificate, self.tls_key)
        except OSError as error:
            given = (self.tls_trust_certs, self.tls_certificate, self.tls_key)
            raise ConfigurationError(
                f"one of tls_trust_certs, tls_certificate and tls_key {given} cannot be used: {error}"
            ) from error
        return made

    @property
    def hosts(self) -> list[str]:
        """The names of the hosts in the service URL."""
        servers = urlsplit(self.service_url).netloc.split(",")
        return [urlsplit(f"//{server}").hostname or "" for server in servers]

    def _configuration(self) -> Any:
        configuration = _pulsar.ClientConfiguration()
        configuration.operation_timeout_seconds(max(round(self.operation_timeout), 1))
        configuration.connection_timeout(round(self.connect_timeout * 1000))
        configuration.io_threads(int(self.io_threads))
        level = getattr(pulsar.LoggerLevel, self.log_level.capitalize())
        if self.log_file is None:
            native_log = NativeLog.of_process()
            configuration.set_file_logger(level, native_log.path)
            native_log.opened()
        else:
            configuration.set_file_logger(level, self.log_file)
        if self.listener_name is not None:
            configuration.listener_name(self.listener_name)
        configuration.tls_trust_certs_file_path(self.tls_trust_certs or _certificates())
        configuration.tls_validate_hostname(self.tls_validate_hostname)
        authentication = self._authentication()
        if authentication is not None:
            configuration.authentication(authentication.auth)
        return configuration

    def _authentication(self) -> Any:
        if self.token is not None:
            return pulsar.AuthenticationToken(self.token)
        if self.tls_certificate is not None:
            return pulsar.AuthenticationTLS(self.tls_certificate, self.tls_key)
        if self.oauth2 is not None:
            import json

            return pulsar.AuthenticationOauth2(json.dumps(dict(self.oauth2)))
        return None


def _certificates() -> str:
    import certifi

    found: str = certifi.where()
    return found
