"""Which of Kafka's client settings have a counterpart here, and what becomes of the others."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.pull.kafka_security import JAAS, MECHANISM, PROTOCOL, TLS
from consumer_sdk.spark_bridge.pull.option_values import count, number

__all__ = ["CLIENT", "GROUP", "LEVEL", "LEVELS", "SECURITY", "SERVERS", "check_names", "is_unused"]

SERVERS = "kafka.bootstrap.servers"
GROUP = "kafka.group.id"
LEVEL = "kafka.isolation.level"
LEVELS = ("read_uncommitted", "read_committed")


def _seconds(option: str, text: str) -> float:
    return count(option, text) / 1000


def _text(_option: str, text: str) -> str:
    return text


CLIENT: Mapping[str, tuple[str, Callable[[str, str], Any]]] = {
    "kafka.client.id": ("client_id", _text),
    "kafka.request.timeout.ms": ("read_timeout", _seconds),
    "kafka.socket.connection.setup.timeout.ms": ("connect_timeout", _seconds),
    "kafka.metadata.max.age.ms": ("metadata_max_age_ms", count),
    "kafka.retry.backoff.ms": ("retry_backoff_ms", number),
    "kafka.connections.max.idle.ms": ("connections_max_idle_ms", count),
}
"""Client settings that have a counterpart."""

UNUSED = (
    *("groupidprefix", "kafkaconsumer.polltimeoutms"),
    *("fetchoffset.numretries", "fetchoffset.retryintervalms"),
    *("kafka.allow.auto.create.topics", "kafka.check.crcs", "kafka.client.dns.lookup"),
    *("kafka.client.rack", "kafka.default.api.timeout.ms", "kafka.fetch.max.bytes"),
    *("kafka.fetch.max.wait.ms", "kafka.fetch.min.bytes", "kafka.heartbeat.interval.ms"),
    *("kafka.max.partition.fetch.bytes", "kafka.max.poll.interval.ms"),
    *("kafka.max.poll.records", "kafka.receive.buffer.bytes", "kafka.reconnect.backoff.max.ms"),
    *("kafka.reconnect.backoff.ms", "kafka.retry.backoff.max.ms", "kafka.send.buffer.bytes"),
    *("kafka.session.timeout.ms", "kafka.socket.connection.setup.timeout.max.ms"),
)
"""Tuning of Java's consumer, which does not run here: accepted, so that a query ports unchanged."""

REFUSED = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.enable.auto.commit": "use group and ackMode",
    "kafka.interceptor.classes": "Java classes do not run here",
    "kafka.key.deserializer": "the column key is binary: cast it",
    "kafka.value.deserializer": "the column value is binary: cast it",
    "kafka.ssl.keystore.key": "give a PEM file with kafka.ssl.keystore.location",
    "kafka.ssl.keystore.certificate.chain": "give a PEM file with kafka.ssl.keystore.location",
    "kafka.sasl.client.callback.handler.class": "Java classes do not run here",
    "kafka.sasl.login.callback.handler.class": "Java classes do not run here",
}
"""Settings that cannot be kept here → what to do."""

SECURITY = (PROTOCOL, MECHANISM, JAAS, *TLS)
KNOWN = (SERVERS, GROUP, LEVEL, *CLIENT, *SECURITY)


def is_unused(option: str) -> bool:
    """Whether an option, in lower case, is accepted and means nothing."""
    return option in UNUSED


def check_names(options: Mapping[str, str]) -> None:
    """Finds settings that would not be kept.

    Raises:
        ConfigurationError: one is unknown, or cannot be kept here; says what to do.
    """
    for name in options:
        if name in REFUSED:
            raise ConfigurationError(f"{name} cannot be set: {REFUSED[name]}")
        if name.startswith("kafka.") and name not in (*KNOWN, *UNUSED):
            near = difflib.get_close_matches(name, KNOWN, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(KNOWN)}"
            raise ConfigurationError(f"unknown option {name}: {hint}")
