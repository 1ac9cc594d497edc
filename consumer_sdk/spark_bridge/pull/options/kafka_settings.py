"""Which of Kafka's client settings have a counterpart here, and what becomes of the others."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.pull.options.kafka_security import JAAS, MECHANISM, PROTOCOL, TLS
from consumer_sdk.spark_bridge.pull.options.option_values import choice, count, number, truth

__all__ = [
    "CLIENT",
    "GROUP",
    "LEVEL",
    "LEVELS",
    "MAX_BATCH",
    "OUTAGE",
    "SECURITY",
    "SERVERS",
    "WRITES",
    "WRITING",
    "Names",
    "check_names",
    "is_unused",
]

SERVERS = "kafka.bootstrap.servers"
GROUP = "kafka.group.id"
OUTAGE = "kafka.default.api.timeout.ms"
LEVEL = "kafka.isolation.level"
MAX_BATCH = "maxBatchBytes"
LEVELS = ("read_uncommitted", "read_committed")


def _seconds(option: str, text: str) -> float:
    return count(option, text) / 1000


def _text(_option: str, text: str) -> str:
    return text


CLIENT: Mapping[str, tuple[str, Callable[[str, str], Any]]] = {
    "kafka.client.id": ("client_id", _text),
    "kafka.client.rack": ("client_rack", _text),
    "kafka.request.timeout.ms": ("read_timeout", _seconds),
    "kafka.socket.connection.setup.timeout.ms": ("connect_timeout", _seconds),
    "kafka.metadata.max.age.ms": ("metadata_max_age_ms", count),
    "kafka.retry.backoff.ms": ("retry_backoff_ms", number),
    "kafka.connections.max.idle.ms": ("connections_max_idle_ms", count),
    MAX_BATCH: ("max_batch_bytes", count),
}
"""Client settings that have a counterpart; the last one is ours."""

UNUSED = (
    *("groupidprefix", "kafkaconsumer.polltimeoutms"),
    *("fetchoffset.numretries", "fetchoffset.retryintervalms"),
    *("kafka.allow.auto.create.topics", "kafka.check.crcs", "kafka.client.dns.lookup"),
    "kafka.fetch.max.bytes",
    *("kafka.fetch.max.wait.ms", "kafka.fetch.min.bytes", "kafka.heartbeat.interval.ms"),
    *("kafka.max.partition.fetch.bytes", "kafka.max.poll.interval.ms"),
    *("kafka.max.poll.records", "kafka.receive.buffer.bytes", "kafka.reconnect.backoff.max.ms"),
    *("kafka.reconnect.backoff.ms", "kafka.retry.backoff.max.ms", "kafka.send.buffer.bytes"),
    *("kafka.session.timeout.ms", "kafka.socket.connection.setup.timeout.max.ms"),
)
"""Tuning of Java's consumer, which does not run here: accepted, so that a query ports unchanged."""

JAVA = "Java classes do not run here"
REFUSED = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.enable.auto.commit": "use group and ackMode",
    "kafka.interceptor.classes": JAVA,
    "kafka.key.deserializer": "the column key is binary: cast it",
    "kafka.value.deserializer": "the column value is binary: cast it",
    "kafka.group.instance.id": "a query joins no group: leave it out",
    "kafka.group.protocol": "a query joins no group: leave it out",
    "kafka.metric.reporters": f"{JAVA}: use spark_bridge.watch",
    "kafka.sasl.client.callback.handler.class": JAVA,
    "kafka.sasl.login.callback.handler.class": JAVA,
}
"""Settings that cannot be kept here → what to do."""
OPENSSL = (
    "Python's TLS has OpenSSL's settings (MinProtocol, CipherString in openssl.cnf): leave it out"
)
KERBEROS = "Kerberos cannot be used here: let the broker offer PLAIN, SCRAM or OAUTHBEARER"
REFUSED_KINDS = {
    "kafka.ssl.protocol": OPENSSL,
    "kafka.ssl.enabled.protocols": OPENSSL,
    "kafka.ssl.cipher.suites": OPENSSL,
    "kafka.sasl.kerberos.": KERBEROS,
}
"""Beginnings of their names → what to do."""

SECURITY = (PROTOCOL, MECHANISM, JAAS, *TLS)


def _acks(option: str, text: str) -> str | int:
    return 1 if choice(option, text, ("all", "-1", "1")) == "1" else "all"


def _compression(option: str, text: str) -> str | None:
    kinds = ("none", "gzip", "snappy", "lz4", "zstd")
    return None if choice(option, text, kinds) == "none" else text


WRITES: Mapping[str, tuple[str, Callable[[str, str], Any]]] = {
    "kafka.acks": ("acks", _acks),
    "kafka.batch.size": ("max_batch_size", count),
    "kafka.client.id": ("client_id", _text),
    "kafka.compression.type": ("compression_type", _compression),
    "kafka.connections.max.idle.ms": ("connections_max_idle_ms", count),
    "kafka.delivery.timeout.ms": ("delivery_timeout", _seconds),
    "kafka.enable.idempotence": ("enable_idempotence", truth),
    "kafka.max.block.ms": ("connect_timeout", _seconds),
    "kafka.max.request.size": ("max_request_size", count),
    "kafka.metadata.max.age.ms": ("metadata_max_age_ms", count),
    "kafka.request.timeout.ms": ("request_timeout_ms", count),
    "kafka.retry.backoff.ms": ("retry_backoff_ms", number),
}
"""Settings of Java's producer that have a counterpart."""


@dataclass(frozen=True, slots=True)
class Names:
    """Which settings there are.

    Attributes:
        known: those that mean something.
        unused: accepted, so that a query ports unchanged.
        refused: those that cannot be kept → what to do.
    """

    known: Sequence[str]
    unused: Collection[str]
    refused: Mapping[str, str]


READING = Names((SERVERS, GROUP, LEVEL, OUTAGE, *CLIENT, *SECURITY), UNUSED, REFUSED)
WRITING = Names(
    (SERVERS, *WRITES, *SECURITY),
    (
        *("kafka.allow.auto.create.topics", "kafka.buffer.memory", "kafka.client.dns.lookup"),
        *("kafka.compression.gzip.level", "kafka.compression.lz4.level"),
        *("kafka.compression.zstd.level", "kafka.linger.ms", "kafka.metadata.max.idle.ms"),
        *("kafka.max.in.flight.requests.per.connection", "kafka.receive.buffer.bytes"),
        *("kafka.partitioner.adaptive.partitioning.enable", "kafka.reconnect.backoff.max.ms"),
        *("kafka.partitioner.availability.timeout.ms", "kafka.reconnect.backoff.ms"),
        *("kafka.retries", "kafka.retry.backoff.max.ms", "kafka.send.buffer.bytes"),
        *("kafka.socket.connection.setup.timeout.max.ms",),
        *("kafka.socket.connection.setup.timeout.ms",),
    ),
    {
        **{name: why for name, why in REFUSED.items() if why.startswith(JAVA)},
        "kafka.key.serializer": "the column key is binary or a string",
        "kafka.value.serializer": "the column value is binary or a string",
        "kafka.partitioner.class": "give a column partition",
        "kafka.partitioner.ignore.keys": "leave the column key out, or give a column partition",
        "kafka.transactional.id": "rows are written at least once, without a transaction",
        "kafka.transaction.timeout.ms": "rows are written at least once, without a transaction",
    },
)


def is_unused(option: str) -> bool:
    """Whether an option, in lower case, is accepted and means nothing."""
    return option in UNUSED


def check_names(options: Mapping[str, str], names: Names = READING) -> None:
    """Finds settings that would not be kept.

    Raises:
        ConfigurationError: one is unknown, or cannot be kept here; says what to do.
    """
    for name in options:
        kinds = [why for begin, why in REFUSED_KINDS.items() if name.startswith(begin)]
        if name in names.refused or kinds:
            raise ConfigurationError(f"{name} cannot be set: {names.refused.get(name) or kinds[0]}")
        if name.startswith("kafka.") and name not in (*names.known, *names.unused):
            near = difflib.get_close_matches(name, names.known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names.known)}"
            raise ConfigurationError(f"unknown option {name}: {hint}")
