"""Opens a dead-letter destination from a URL, for programs that can hand on nothing but text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import SplitResult, unquote

from consumer_sdk.abc import DeadLetters
from consumer_sdk.adapters.urls import split_url
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.options import NAME, SECONDS, kinds_of, read_texts

__all__ = ["dead_letters_from_url"]

FORM = (
    "write kafka://host:port[,host:port]/topic, pulsar://host:port/topic, "
    "kinesis://region/stream or sqlite:///absolute/path/letters.db, with ?option=value"
)


def dead_letters_from_url(url: str) -> DeadLetters:
    """The destination that ``url`` names; not open yet.

    ===============================  =============================================================
    ``kafka://k1:9092,k2:9092/dlq``  ``KafkaDeadLetters("dlq", bootstrap_servers="k1:9092,k2:9092")``
    ``pulsar://host:6650/dlq``       ``PulsarDeadLetters("dlq", service_url="pulsar://host:6650")``
    ``kinesis://eu-central-1/dlq``   ``KinesisDeadLetters("dlq", region_name="eu-central-1")``
    ``sqlite:///var/lib/dlq.db``     ``LocalDeadLetters("/var/lib/dlq.db")``
    ===============================  =============================================================

    Without a topic, Kafka and Pulsar use their default, ``<stream>-<group>-DLQ``. The query holds
    the destination's own options: ``?security_protocol=SSL&creates_topics=no``.

    Raises:
        ConfigurationError: it names no destination, or an option cannot work. Shows no query.
        MissingExtraError: the broker's client is not installed.
    """
    parts, texts = split_url(url, OPENERS, FORM)
    return OPENERS[parts.scheme](parts, texts)


def _kafka(parts: SplitResult, texts: dict[str, str]) -> DeadLetters:
    from consumer_sdk.adapters.kafka.client.options import read_url
    from consumer_sdk.adapters.kafka.dead_letters import KINDS, KafkaDeadLetters

    kinds = {name: kind for name, kind in KINDS.items() if name != "topic"}
    _, options = read_url(parts, texts, kinds, FORM)
    return KafkaDeadLetters(_topic(parts), **options)


def _pulsar(parts: SplitResult, texts: dict[str, str]) -> DeadLetters:
    from consumer_sdk.adapters.pulsar.client.connection import Connection
    from consumer_sdk.adapters.pulsar.dead_letters import PulsarDeadLetters
    from consumer_sdk.adapters.pulsar.options import read_url

    kinds = kinds_of(Connection) | {"initial_subscription": NAME}
    _, options = read_url(parts, texts, kinds, FORM)
    return PulsarDeadLetters(_topic(parts), **options)


def _kinesis(parts: SplitResult, texts: dict[str, str]) -> DeadLetters:
    from consumer_sdk.adapters.kinesis.dead_letters import KinesisDeadLetters
    from consumer_sdk.adapters.kinesis.options import read_url
    from consumer_sdk.adapters.kinesis.service.connection import Connection

    stream, options = read_url(parts, texts, kinds_of(Connection), FORM)
    return KinesisDeadLetters(stream, **options)


def _sqlite(parts: SplitResult, texts: dict[str, str]) -> DeadLetters:
    from consumer_sdk.dead_letters.local import LocalDeadLetters

    if parts.netloc or not parts.path.strip("/"):
        raise ConfigurationError(
            f"'sqlite://{parts.netloc}{parts.path}': the file's path is missing in the URL: {FORM}"
        )
    options = read_texts(texts, {"busy_timeout": SECONDS})
    return LocalDeadLetters(unquote(parts.path), **options)


OPENERS: Mapping[str, Callable[[SplitResult, dict[str, str]], DeadLetters]] = {
    "kafka": _kafka,
    "kinesis": _kinesis,
    "pulsar": _pulsar,
    "pulsar+ssl": _pulsar,
    "sqlite": _sqlite,
}


def _topic(parts: SplitResult) -> str | None:
    return unquote(parts.path.strip("/")) or None
