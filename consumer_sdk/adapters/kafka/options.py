"""The options of a Kafka adapter, checked when it is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from consumer_sdk.adapters.kafka import client_support as _support  # noqa: F401 - is it there?

# isort: split
from aiokafka import AIOKafkaConsumer

from consumer_sdk.adapters.kafka.client.options import client_kinds, connection_options, read_url
from consumer_sdk.adapters.urls import shown, split_url, topics_of
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.options import (
    COUNT,
    NAME,
    SECONDS,
    check_fields,
    choice,
    kinds_of,
    option,
    optional,
)

__all__ = ["OURS", "IsolationLevel", "KafkaOptions", "parse_url"]

OURS = {
    "group_id": "use group=",
    "session_timeout_ms": "use session_timeout= (seconds)",
    "rebalance_timeout_ms": "use rebalance_timeout= (seconds)",
    "heartbeat_interval_ms": "use heartbeat_interval= (seconds)",
    "key_deserializer": "decode in the handler, so that a bad record can be retried and dead-lettered",
    "value_deserializer": "decode in the handler, so that a bad record can be retried and dead-lettered",
    "enable_auto_commit": "what is settled is committed",
    "auto_commit_interval_ms": "use flush_interval= of the Consumer",
    "auto_offset_reset": "use start= and out_of_range= of the Consumer",
    "max_poll_interval_ms": "a slow handler never costs the membership",
    "max_poll_records": "use fetch_records= of the Consumer",
    "consumer_timeout_ms": "a fetch waits for fetch_wait= of the Consumer",
    "api_version": "the client asks the broker",
    "loop": "the running event loop is used",
}
"""Client options that the adapter sets itself → what to do instead."""

IsolationLevel = Literal["read_committed", "read_uncommitted"]

FORM = "write kafka://host:port[,host:port]/topic[,topic]?group=name&option=value"

JOIN_MARGIN = 10_000
"""Milliseconds that a join may take beyond the rebalance timeout."""

LEAST_BUDGET = 0.5
"""Seconds that a revoke needs at the very least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """What a Kafka adapter is configured with; `KafkaAdapter`'s docstring says what each does."""

    topics: tuple[str, ...]
    servers: Sequence[str]
    group: str | None = option(optional(NAME))
    isolation_level: IsolationLevel = option(choice(*get_args(IsolationLevel)))
    session_timeout: float = option(SECONDS)
    rebalance_timeout: float = option(SECONDS)
    heartbeat_interval: float | None = option(optional(SECONDS))
    connect_timeout: float = option(SECONDS)
    client_id: str = option(NAME)
    max_batch_bytes: int = option(COUNT)
    client_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not self.topics:
            raise ConfigurationError("KafkaAdapter needs a topic: KafkaAdapter('orders', …)")
        check_fields(self)
        self._check_times()

    def _check_times(self) -> None:
        if self.heartbeat * 2 > self.session_timeout:
            raise ConfigurationError(
                f"heartbeat_interval={self.heartbeat} leaves no room for a lost "
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
                f"heartbeat_interval ({self.heartbeat:.3g} s) and a margin it leaves "
                f"{max(self.revoke_budget, 0):.1f} s to drain; give more"
            )

    @property
    def heartbeat(self) -> float:
        """Seconds between heartbeats."""
        shortest = min(self.session_timeout / 3, self.rebalance_timeout / 3, 3.0)
        return shortest if self.heartbeat_interval is None else self.heartbeat_interval

    @property
    def revoke_budget(self) -> float:
        """Seconds that a revoke may take."""
        # A member hears of a rebalance up to one heartbeat late, and rejoining takes a moment.
        margin = min(1.0, self.rebalance_timeout * 0.1)
        return self.rebalance_timeout - self.heartbeat - margin

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
                "heartbeat_interval_ms": round(self.heartbeat * 1000),
                "max_poll_interval_ms": never_evicted_as_idle,
                "enable_auto_commit": False,
                "auto_offset_reset": "none",
            }
        )


def parse_url(url: str) -> tuple[list[str], dict[str, Any]]:
    """Topics, and the keyword arguments of `KafkaAdapter`.

    Raises:
        ConfigurationError: the URL is malformed, or an option is unknown or of another kind.
    """
    parts, texts = split_url(url, {"kafka"}, FORM)
    if not topics_of(parts.path):
        raise ConfigurationError(f"{shown(url)}: the topics are missing in the URL: {FORM}")
    kinds = client_kinds(AIOKafkaConsumer.__init__) | kinds_of(KafkaOptions)
    return read_url(parts, texts, kinds, FORM)
