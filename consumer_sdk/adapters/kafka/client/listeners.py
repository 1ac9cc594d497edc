"""Finds out which security a listener expects, after it has closed a connection without an error.

A broker closes the connection of a client with another ``security_protocol``, or without a required certificate, as it
does when it restarts. A retry helps only after a restart.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from asyncio import IncompleteReadError
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiokafka.errors import IllegalSaslStateError, KafkaConnectionError

from consumer_sdk.adapters.kafka.client.faults import translate
from consumer_sdk.errors import AdapterError, ConfigurationError
from consumer_sdk.tls_trouble import TlsOptions, answer_of, tls_trouble, trusting

__all__ = ["look_at_listener", "reach_first"]

PATIENCE = 2.0
"""Seconds for each question, at most."""

CORRELATION = 0x5D4B
BODY = struct.pack(">hhihh5s", 17, 1, CORRELATION, -1, 5, b"PLAIN")
HANDSHAKE = struct.pack(">i", len(BODY)) + BODY
"""SaslHandshake: the one request that listeners with and without SASL answer, each in its way."""

ANSWER = struct.Struct(">iih")
ILLEGAL_SASL_STATE = 34

CLOSED = (
    ConnectionResetError,
    ConnectionAbortedError,
    BrokenPipeError,
    KafkaConnectionError,
    IncompleteReadError,
    ssl.SSLError,
    IllegalSaslStateError,  # the one that does answer: it has no SASL
)
"""What a connection to a listener that speaks something else ends with."""


OPTIONS = TlsOptions(
    trust="load its authority into ssl_context (load_verify_locations; in Spark "
    "kafka.ssl.truststore.location)",
    hostname="set check_hostname=False of ssl_context",
    certificate="load one into ssl_context (load_cert_chain; in Spark kafka.ssl.keystore.location)",
    on="give security_protocol='SSL'",
    off="give security_protocol='PLAINTEXT'",
)


async def reach_first(
    hosts: Sequence[tuple[str, int, Any]],
    timeout: float,
    reach: Callable[[str, int], Awaitable[None]],
    given: str,
    tls: ssl.SSLContext | None,
) -> None:
    """Reaches the first server that answers.

    Args:
        hosts: host, port and whatever of each server.
        timeout: seconds for all of them.
        reach: connects to one, and asks it something.
        given: the client's ``security_protocol``.
        tls: its TLS.

    Raises:
        ConfigurationError: a listener was reached that speaks another ``security_protocol``.
        AdapterError: none can be reached within the time, or it refused.
    """
    servers = ", ".join(f"{host}:{port}" for host, port, _family in hosts)
    failure: Exception = KafkaConnectionError("there is no server")
    for host, port, _family in hosts:
        try:
            async with asyncio.timeout(timeout / len(hosts)):
                await reach(host, port)
        except Exception as error:  # noqa: BLE001 - translated below
            patience = timeout / len(hosts)
            look = look_at_listener(error, host, port, given, tls=tls, patience=patience)
            failure = await look or error
        else:
            return
    raise translate(failure, f"connecting to bootstrap_servers {servers}") from failure


async def look_at_listener(
    error: Exception,
    host: str,
    port: int,
    given: str,
    *,
    tls: ssl.SSLContext | None,
    patience: float,
) -> AdapterError | ConfigurationError | None:
    """The error for options that are not what the listener wants; None if it is not that.

    Args:
        error: what the connection has ended with.
        given: the client's ``security_protocol``.
        tls: its TLS.
        patience: seconds that each answer may take.
    """
    if not isinstance(error, CLOSED):
        return None
    patience = min(patience, PATIENCE)
    wrong = await _wrong_protocol(host, port, given, patience)
    if wrong is not None or not given.endswith("SSL"):
        return wrong
    trouble = tls_trouble(error, f"{host}:{port}", OPTIONS)
    try:
        if trouble is None:
            await answer_of(host, port, HANDSHAKE, tls, patience)
    except (OSError, TimeoutError) as failure:
        trouble = tls_trouble(failure, f"{host}:{port}", OPTIONS)
    return None if trouble is None else AdapterError(trouble)


async def _wrong_protocol(
    host: str, port: int, given: str, patience: float
) -> ConfigurationError | None:
    for is_tls in (False, True):
        try:
            is_sasl = await _asks_for_sasl(host, port, patience, is_tls=is_tls)
        except (OSError, TimeoutError):
            continue
        protocol = f"{'SASL_' if is_sasl else ''}{'SSL' if is_tls else 'PLAINTEXT'}"
        return None if protocol == given else _refusal(f"{host}:{port}", given, protocol)
    return None


def _refusal(listener: str, given: str, protocol: str) -> ConfigurationError:
    return ConfigurationError(
        f"security_protocol={given!r}, but the listener at {listener} speaks {protocol}: give "
        f"security_protocol={protocol!r}, or the port of another listener"
    )


async def _asks_for_sasl(host: str, port: int, patience: float, *, is_tls: bool) -> bool:
    answer = await answer_of(host, port, HANDSHAKE, trusting() if is_tls else None, patience)
    if len(answer) < ANSWER.size:
        raise ConnectionError("no answer")
    _size, correlation, code = ANSWER.unpack_from(answer)
    if correlation != CORRELATION:
        raise ConnectionError("not an answer of Kafka's")
    return bool(code != ILLEGAL_SASL_STATE)
