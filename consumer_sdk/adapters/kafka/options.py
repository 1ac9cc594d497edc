"""The options of a Kafka adapter, checked when it is built."""

from __future__ import annotations

import difflib
import inspect
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from consumer_sdk.errors import ConfigurationError

__all__ = ["KafkaOptions", "check_client_options", "connection_options", "read_servers"]

OURS = {
    "group_id": "group=",
    "session_timeout_ms": "session_timeout= (seconds)",
    "rebalance_timeout_ms": "rebalance_timeout= (seconds)",
    "heartbeat_interval_ms": "heartbeat_interval= (seconds)",
    "key_deserializer": "nothing: decode in the handler, so that a bad record can be retried and "
    "dead-lettered",
    "value_deserializer": "nothing: decode in the handler, so that a bad record can be retried "
    "and dead-lettered",
    "enable_auto_commit": "nothing: what is settled is committed",
    "auto_commit_interval_ms": "flush_interval= of the Consumer",
    "auto_offset_reset": "start= and out_of_range= of the Consumer",
    "max_poll_interval_ms": "nothing: a slow handler never costs the membership",
    "max_poll_records": "fetch_records= of the Consumer",
    "consumer_timeout_ms": "nothing",
    "api_version": "nothing",
    "loop": "nothing",
}
"""Client options that the adapter sets itself → what to use."""

JOIN_MARGIN = 10_000
"""Milliseconds that a join may take beyond the rebalance timeout."""

LEAST_BUDGET = 0.5
"""Seconds that a revoke needs at the very least."""


def read_servers(bootstrap_servers: str | Sequence[str]) -> list[str]:
    """``host:port`` of each server.

    Raises:
        ConfigurationError: there is none, or one is not ``host:port``.
    """
    text = isinstance(bootstrap_servers, str)
    servers = bootstrap_servers.split(",") if text else list(bootstrap_servers)  # type: ignore[union-attr]
    servers = [server.strip() for server in servers]
    for server in servers or [""]:
        _host, colon, port = server.rpartition(":")
        if not server or (colon and not port.isdigit()):
            raise ConfigurationError(
                f"bootstrap_servers={bootstrap_servers!r}: give 'host:port', several with commas"
            )
    return servers


def check_client_options(
    options: Mapping[str, Any],
    client: Callable[..., Any],
    ours: Mapping[str, str],
    owner: Callable[..., Any] | None = None,
) -> None:
    """Sees that every option is one of the client's, and not one that the SDK sets itself.

    Args:
        options: what was given beyond the owner's own options.
        client: whose options they have to be.
        ours: client options that the SDK sets itself → what to use.
        owner: whose own options may have been meant.

    Raises:
        ConfigurationError: it is not; names the one that was probably meant.
    """
    known = _keywords(client)
    meant = [name for name in known if name not in ours] + (_keywords(owner) if owner else [])
    for name in options:
        if name in ours:
            raise ConfigurationError(f"{name}= is not for you to set here: use {ours[name]}")
        if name not in known:
            near = difflib.get_close_matches(name, meant, n=1)
            hint = f"did you mean {near[0]}=?" if near else "it is none of aiokafka's either"
            raise ConfigurationError(f"unknown option {name}=…: {hint}")


def _keywords(function: Callable[..., Any]) -> list[str]:
    found = inspect.signature(function).parameters.values()
    return [p.name for p in found if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]


def connection_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """With the system's certificates, where TLS is asked for and no context is given."""
    found = dict(options)
    is_tls = found.get("security_protocol") in ("SSL", "SASL_SSL")
    if is_tls and found.get("ssl_context") is None:
        found["ssl_context"] = ssl.create_default_context()
    return found


SECONDS = ("session_timeout", "rebalance_timeout", "heartbeat_interval", "connect_timeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """What a Kafka adapter is configured with; `KafkaAdapter`'s docstring says what each does."""

    topics: tuple[str, ...]
    servers: Sequence[str]
    group: str | None
    isolation_level: str
    session_timeout: float
    rebalance_timeout: float
    heartbeat_interval: float
    connect_timeout: float
    client_id: str
    client_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check_topics()
        if self.group is not None and not self.group.strip():
            raise ConfigurationError(
                f"group={self.group!r}: give a name, or None to read without a group"
            )
        if self.isolation_level not in ("read_committed", "read_uncommitted"):
            raise ConfigurationError(
                f"isolation_level={self.isolation_level!r}: give 'read_committed' or "
                f"'read_uncommitted'"
            )
        self._check_times()

    def _check_topics(self) -> None:
        if not self.topics:
            raise ConfigurationError("KafkaAdapter needs a topic: KafkaAdapter('orders', …)")
        for topic in self.topics:
            if not topic:
                raise ConfigurationError(f"topic {topic!r}: give the name of a topic")

    def _check_times(self) -> None:
        for name in SECONDS:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise ConfigurationError(f"{name}={value!r}: give seconds, above 0")
        if self.heartbeat_interval * 2 > self.session_timeout:
            raise ConfigurationError(
                f"heartbeat_interval={self.heartbeat_interval} leaves no room for a lost "
                f"heartbeat in session_timeout={self.session_timeout}: give at most half of it"
            )
        if self.request_timeout < self.rebalance_timeout:
            raise ConfigurationError(
                f"request_timeout_ms={self.request_timeout * 1000:.0f} is shorter than "
                f"rebalance_timeout={self.rebalance_timeout}: joining waits that long for the "
                f"other members; give more, or shorten rebalance_timeout"
            )
        if self.revoke_budget < LEAST_BUDGET:
            raise ConfigurationError(
                f"rebalance_timeout={self.rebalance_timeout} is too short: after one "
                f"heartbeat_interval ({self.heartbeat_interval} s) and a margin it leaves "
                f"{max(self.revoke_budget, 0):.1f} s to drain; give more"
            )

    @property
    def revoke_budget(self) -> float:
        """Seconds that a revoke may take."""
        # A member hears of a rebalance up to one heartbeat late, and rejoining takes a moment.
        margin = min(1.0, self.rebalance_timeout * 0.1)
        return self.rebalance_timeout - self.heartbeat_interval - margin

    @property
    def request_timeout(self) -> float:
        """Seconds that one question to the broker may take."""
        default = max(40_000, self.rebalance_timeout * 1000 + JOIN_MARGIN)
        return float(self.client_options.get("request_timeout_ms", default)) / 1000

    def for_connection(self) -> dict[str, Any]:
        """The options that any client of these servers needs."""
        names = ("security_protocol", "ssl_context", "request_timeout_ms", "retry_backoff_ms")
        chosen = {
            name: value
            for name, value in self.client_options.items()
            if name in names or name.startswith("sasl_")
        }
        return {"bootstrap_servers": list(self.servers), "client_id": self.client_id} | chosen

    def for_consumer(self) -> dict[str, Any]:
        """The options of the client."""
        never_evicted_as_idle = 2**31 - 1
        return connection_options(
            {
                "metadata_max_age_ms": 30_000,
                "request_timeout_ms": round(self.request_timeout * 1000),
                **self.client_options,
                "bootstrap_servers": list(self.servers),
                "client_id": self.client_id,
                "group_id": self.group,
                "isolation_level": self.isolation_level,
                "session_timeout_ms": round(self.session_timeout * 1000),
                "rebalance_timeout_ms": round(self.rebalance_timeout * 1000),
                "heartbeat_interval_ms": round(self.heartbeat_interval * 1000),
                "max_poll_interval_ms": never_evicted_as_idle,
                "enable_auto_commit": False,
                "auto_offset_reset": "none",
            }
        )
