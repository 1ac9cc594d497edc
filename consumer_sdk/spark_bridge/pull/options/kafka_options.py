"""The option names of Spark's own Kafka source, as what `KafkaRanges` takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.pull.options.kafka_security import (
    JAAS,
    MECHANISM,
    OAUTH,
    PROTOCOL,
    TOKENS,
    check_security,
    credentials,
    tls_context,
)
from consumer_sdk.spark_bridge.pull.options.kafka_settings import (
    CLIENT,
    GROUP,
    LEVEL,
    LEVELS,
    SECURITY,
    SERVERS,
    check_names,
)
from consumer_sdk.spark_bridge.pull.options.option_values import choice, json_object, names

if TYPE_CHECKING:
    from consumer_sdk.range_reads import RangeReader

__all__ = ["STREAMS", "KafkaSource", "secured", "security_of", "servers_of"]

STREAMS = ("subscribe", "subscribePattern", "assign")
"""Each chooses topics; a query has one of them."""


PREFIX = re.compile(r"^[0-9a-zA-Z%._-]*://")
"""Of a server, as a broker's ``advertised.listeners`` has it; Java's client passes over it too."""
WAITS = {"connect_timeout": 10.0, "read_timeout": 30.0}
"""How long a task waits for the broker: arguments of `KafkaRanges`, and their defaults."""


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """Topics and a connection; secrets are still as they were given.

    Attributes:
        servers: ``host:port``, with commas between.
        topics: their names; none with a pattern, or where partitions are named.
        pattern: found anywhere in a topic's name, as Spark's is; or None.
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
            servers=servers_of(options),
            **_streams(options),
            group=_group(options.get(GROUP), group),
            client=tuple(sorted(_client(options).items())),
            security=security_of(options),
        )

    def for_tasks(self, outage: float | None = None) -> KafkaSource:
        """The same without the group, which tasks have no business with.

        Nor do they need topics that are not theirs: one may be gone, and others are still read.

        Args:
            outage: how many seconds they wait for the broker; None for as long as it says itself.
        """
        given = dict(self.client)
        waits = {name: max(outage or 0, given.get(name, least)) for name, least in WAITS.items()}
        client = given | waits | {"require_topics": False}
        return replace(self, group=None, client=tuple(sorted(client.items())))

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
            "whole_names": False,
            "partitions": None if self.partitions is None else dict(self.partitions),
            **dict(self.client),
            **secured(dict(self.security)),
        }


def servers_of(options: Mapping[str, str]) -> str:
    """``host:port``, with commas between.

    Raises:
        ConfigurationError: there is none.
    """
    if not options.get(SERVERS, "").strip():
        raise ConfigurationError(f"{SERVERS} is missing: give host:port, several with commas")
    return ",".join(PREFIX.sub("", server.strip()) for server in options[SERVERS].split(","))


def security_of(options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The settings for `secured`, as they were given."""
    return tuple((name, options[name]) for name in sorted((*SECURITY, TOKENS)) if name in options)


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


def _login(security: Mapping[str, str]) -> dict[str, Any]:
    if security[MECHANISM] != OAUTH:
        return credentials(security[MECHANISM], security[JAAS])
    from consumer_sdk.adapters.kafka.client.token_providers import token_provider

    return {"sasl_oauth_token_provider": token_provider(security[TOKENS])}


def secured(security: Mapping[str, str]) -> dict[str, Any]:
    """The client's options of the protocol, of SASL and of TLS; secrets are looked up.

    Raises:
        ConfigurationError: a secret or file cannot be read.
    """
    protocol = security.get(PROTOCOL, "PLAINTEXT")
    found: dict[str, Any] = {"security_protocol": protocol}
    if protocol.startswith("SASL"):
        found["sasl_mechanism"] = security[MECHANISM]
        found |= _login(security)
    if protocol.endswith("SSL"):
        found["ssl_context"] = tls_context(security)
    return found
