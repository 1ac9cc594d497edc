"""The option names of Spark's own Kafka source, as what `KafkaRanges` takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.pull.kafka_security import (
    JAAS,
    MECHANISM,
    PROTOCOL,
    check_security,
    credentials,
    tls_context,
)
from consumer_sdk.spark_bridge.pull.kafka_settings import (
    CLIENT,
    GROUP,
    LEVEL,
    LEVELS,
    SECURITY,
    SERVERS,
    check_names,
)
from consumer_sdk.spark_bridge.pull.option_values import choice, json_object, names

if TYPE_CHECKING:
    from consumer_sdk.range_reads import RangeReader

__all__ = ["STREAMS", "KafkaSource"]

STREAMS = ("subscribe", "subscribePattern", "assign")
"""Each chooses topics; a query has one of them."""


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """Topics and a connection; secrets are still as they were given.

    Attributes:
        servers: ``host:port``, with commas between.
        topics: their names; none with a pattern, or where partitions are named.
        pattern: of topics' names, or None.
        partitions: ``(topic, numbers)``: the only ones that are read; or None.
        group: whose position is moved, or None.
        client: keyword arguments of `KafkaRanges`.
        security: settings of the protocol, of SASL and of TLS, by their names in Kafka.
    """

    broker: ClassVar[str] = "kafka"

    servers: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[tuple[str, tuple[int, ...]], ...] | None = None
    group: str | None = None
    client: tuple[tuple[str, Any], ...] = ()
    security: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def parse(cls, options: Mapping[str, str], group: str | None) -> KafkaSource:
        """Reads those of Spark's options that choose topics or configure the connection.

        Args:
            options: those of `STREAMS` by their names, and ``kafka.…`` in lower case.
            group: what the option ``group`` says.

        Raises:
            ConfigurationError: a setting is unknown or wrong.
        """
        check_names(options)
        check_security(options)
        return cls(
            servers=_servers(options),
            **_streams(options),
            group=_group(options.get(GROUP), group),
            client=tuple(sorted(_client(options).items())),
            security=tuple((name, options[name]) for name in sorted(SECURITY) if name in options),
        )

    def for_tasks(self) -> KafkaSource:
        """The same without the group, which tasks have no business with.

        Nor do they need topics that are not theirs: one may be gone, and others are still read.
        """
        return replace(self, group=None, client=(*self.client, ("require_topics", False)))

    def open_reader(self) -> RangeReader:
        """A reader that is not open yet; secrets are looked up now.

        Raises:
            ConfigurationError: a secret or file cannot be read.
            MissingExtraError: Kafka's client is not installed.
        """
        from consumer_sdk.adapters.kafka.ranges import KafkaRanges

        return KafkaRanges(**self.arguments())

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of `KafkaRanges`, with the secrets themselves.

        Raises:
            ConfigurationError: a secret or file cannot be read.
        """
        return {
            "topics": self.topics,
            "bootstrap_servers": self.servers,
            "group": self.group,
            "pattern": self.pattern,
            "partitions": None if self.partitions is None else dict(self.partitions),
            **dict(self.client),
            **_secured(dict(self.security)),
        }


def _servers(options: Mapping[str, str]) -> str:
    if not options.get(SERVERS, "").strip():
        raise ConfigurationError(f"{SERVERS} is missing: give host:port, several with commas")
    return options[SERVERS]


def _streams(options: Mapping[str, str]) -> dict[str, Any]:
    given = [name for name in STREAMS if name in options]
    if len(given) != 1:
        raise ConfigurationError(f"give one of {', '.join(STREAMS)}; there is {given or 'none'}")
    text = options[given[0]]
    if given == ["subscribePattern"]:
        return {"pattern": text}
    if given == ["subscribe"]:
        return {"topics": names("subscribe", text)}
    return {"partitions": _assigned(text)}


def _assigned(text: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    form = '{"topic":[0,1]}'
    found = json_object("assign", text, form, list)
    if not all(type(number) is int and number >= 0 for each in found.values() for number in each):
        raise ConfigurationError(f"assign={text!r}: give {form}")
    return tuple((topic, tuple(sorted(found[topic]))) for topic in sorted(found))


def _group(kafkas: str | None, ours: str | None) -> str | None:
    if kafkas is not None and ours is not None and kafkas != ours:
        raise ConfigurationError(f"{GROUP}={kafkas!r} and group={ours!r}: give one of them")
    return kafkas if ours is None else ours


def _client(options: Mapping[str, str]) -> dict[str, Any]:
    # Spark's default, other than that of the URL: a query that ports reads what it has read.
    level = choice(LEVEL, options.get(LEVEL, LEVELS[0]), LEVELS)
    found = {
        argument: read(n, options[n]) for n, (argument, read) in CLIENT.items() if n in options
    }
    return found | {"isolation_level": level}


def _secured(security: Mapping[str, str]) -> dict[str, Any]:
    protocol = security.get(PROTOCOL, "PLAINTEXT")
    found: dict[str, Any] = {"security_protocol": protocol}
    if protocol.startswith("SASL"):
        found["sasl_mechanism"] = security[MECHANISM]
        found |= credentials(security[MECHANISM], security[JAAS])
    if protocol.endswith("SSL"):
        found["ssl_context"] = tls_context(security)
    return found
