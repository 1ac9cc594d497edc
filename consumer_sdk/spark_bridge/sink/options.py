"""What a sink was asked to do: the options of Spark's own Kafka sink, or a URL."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from consumer_sdk.adapters.urls import scheme_of, topics_of
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.option_values import TRUTH, spelled
from consumer_sdk.spark_bridge.pull.options.kafka_security import (
    TOKENS,
    check_security,
    secured,
    security_of,
)
from consumer_sdk.spark_bridge.pull.options.sources import (
    BROKERS,
    WRITES,
    WRITING,
    UrlSource,
    check_names,
    servers_of,
)

if TYPE_CHECKING:
    from consumer_sdk.record_writes import RecordWriter

__all__ = ["SinkOptions"]

OURS = ("url", "topic", "includeHeaders", TOKENS)
SPARKS_OWN = ("checkpointlocation", "queryname")
"""Spark hands them to each sink."""
FORM = "give kafka://host:port/topic or pulsar://host:port/topic"


@dataclass(frozen=True, slots=True)
class KafkaDestination:
    """A connection; secrets are still as they were given.

    Attributes:
        servers: ``host:port``, with commas between.
        client: keyword arguments of `KafkaWriter`.
        security: settings of the protocol, of SASL and of TLS, by their names in Kafka.
    """

    servers: str
    client: tuple[tuple[str, Any], ...] = ()
    security: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> KafkaDestination:
        """Reads the settings of Java's producer.

        Raises:
            ConfigurationError: one is unknown or wrong.
        """
        check_names(options, WRITING)
        check_security(options)
        client = {
            argument: kind.parse(name, options[name])
            for name, (argument, kind) in WRITES.items()
            if name in options
        }
        return cls(servers_of(options), tuple(sorted(client.items())), security_of(options))

    @property
    def shown(self) -> str:
        """How messages name it."""
        return f"kafka://{self.servers}"

    def open_writer(self) -> RecordWriter:
        """A writer that is not open yet; secrets are looked up now."""
        from consumer_sdk.adapters.kafka.producing.writing import KafkaWriter

        return KafkaWriter(
            bootstrap_servers=self.servers, **dict(self.client), **secured(dict(self.security))
        )


@dataclass(frozen=True, slots=True)
class UrlDestination:
    """A ``kafka://`` or ``pulsar://`` URL, as `open_writer` takes it.

    Attributes:
        url: with its secrets as they were given.
    """

    url: UrlSource

    @property
    def shown(self) -> str:
        """How messages name it."""
        return self.url.shown

    def open_writer(self) -> RecordWriter:
        """A writer that is not open yet; secrets are looked up now."""
        from consumer_sdk.adapters.urls import open_writer

        return open_writer(self.url.resolved())


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Everything that the options say; picklable, hashable, and its repr shows no secret.

    Attributes:
        destination: where to.
        topic: of all rows, whatever their column says; None: the column says it.
    """

    destination: KafkaDestination | UrlDestination
    topic: str | None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """Reads Spark's options; the case of their names does not matter.

        Raises:
            ConfigurationError: an option is unknown or its value wrong; says what is allowed.
        """
        given = spelled(options, OURS, SPARKS_OWN.__contains__)
        # As in Spark's own sink, headers are written where there is such a column.
        TRUTH.parse("includeHeaders", given.get("includeHeaders", "true"))
        topics = [given["topic"]] if "topic" in given else []
        if "url" not in given:
            destination: KafkaDestination | UrlDestination = KafkaDestination.parse(given)
        else:
            destination = _url(given)
            topics += topics_of(urlsplit(given["url"]).path)
        return cls(destination, _topic(topics))

    def identity(self) -> Hashable:
        """Equal for options that may share a connection, and for no others."""
        return self.destination

    def open_writer(self) -> RecordWriter:
        """A writer that is not open yet; looks up secrets that are named by ``env:``, ``file:``.

        Raises:
            ConfigurationError: a secret cannot be found, or the writer refuses an option.
            MissingExtraError: the broker's client is not installed.
        """
        return self.destination.open_writer()


def _url(given: Mapping[str, str]) -> UrlDestination:
    others = sorted(name for name in given if name == TOKENS or name.startswith("kafka."))
    if others:
        raise ConfigurationError(
            f"url and {', '.join(others)}: the URL says it all; give one of the two"
        )
    scheme = scheme_of(given["url"], FORM)
    if scheme.partition("+")[0] == "feed":
        raise ConfigurationError("a feed is written by consumers, with a SparkFeed, not by Spark")
    if scheme not in BROKERS:
        raise ConfigurationError(f"{scheme}: rows are written to Kafka and Pulsar: {FORM}")
    return UrlDestination(UrlSource.parse(given["url"], None))


def _topic(topics: list[str]) -> str | None:
    if len(set(topics)) > 1 or not all(topic.strip() for topic in topics):
        raise ConfigurationError(
            f"topics {', '.join(map(repr, topics))}: give one, as the option topic or in the URL; for several "
            f"leave both out, and give a column topic"
        )
    return topics[0] if topics else None
