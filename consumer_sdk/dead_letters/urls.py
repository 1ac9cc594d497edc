"""Opens a dead-letter destination from a URL, for programs that can hand on nothing but text."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import SplitResult, unquote

from consumer_sdk.abc import DeadLetters
from consumer_sdk.adapters.option_texts import read_texts, reader_like, split_url, truth
from consumer_sdk.errors import ConfigurationError

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
    from consumer_sdk.dead_letters.kafka import KafkaDeadLetters

    options = read_texts(texts, _kafka_readers(), FORM)
    return KafkaDeadLetters(_topic(parts), bootstrap_servers=_host(parts), **options)


def _kafka_readers() -> dict[str, Callable[[str], Any]]:
    """A reader for each option of the client, by the type of its default."""
    from aiokafka import AIOKafkaProducer

    signature = inspect.signature(AIOKafkaProducer.__init__).parameters
    defaults = {name: each.default for name, each in signature.items() if name != "self"}
    del defaults["bootstrap_servers"]  # they stand before the topic
    readers = {name: reader_like(default) for name, default in defaults.items()}
    return readers | {"creates_topics": truth, "connect_timeout": float}


def _pulsar(parts: SplitResult, texts: dict[str, str]) -> DeadLetters:
    from consumer_sdk.adapters.pulsar.connection import Connection
    from consumer_sdk.adapters.pulsar.urls import READERS
    from consumer_sdk.dead_letters.pulsar import PulsarDeadLetters

    readers = _own(READERS, Connection) | {"token": str, "initial_subscription": str}
    del readers["service_url"]
    service = f"{parts.scheme}://{_host(parts)}"
    options = read_texts(texts, readers, FORM)
    return PulsarDeadLetters(_topic(parts), service_url=service, **options)


def _kinesis(parts: SplitResult, texts: dict[str, str]) -> DeadLetters:
    from consumer_sdk.adapters.kinesis.connection import Connection
    from consumer_sdk.adapters.kinesis.urls import READERS
    from consumer_sdk.dead_letters.kinesis import KinesisDeadLetters

    stream, region = _topic(parts), unquote(parts.netloc) or None
    if stream is None:
        raise ConfigurationError(f"the stream is missing in the URL: {FORM}")
    readers = _own(READERS, Connection)
    del readers["region_name"]  # it stands before the stream
    return KinesisDeadLetters(stream, region_name=region, **read_texts(texts, readers, FORM))


def _sqlite(parts: SplitResult, texts: dict[str, str]) -> DeadLetters:
    from consumer_sdk.dead_letters.local import LocalDeadLetters

    if parts.netloc or not parts.path.strip("/"):
        raise ConfigurationError(f"the file's path is missing in the URL: {FORM}")
    return LocalDeadLetters(unquote(parts.path), **read_texts(texts, {"busy_timeout": float}, FORM))


OPENERS: Mapping[str, Callable[[SplitResult, dict[str, str]], DeadLetters]] = {
    "kafka": _kafka,
    "kinesis": _kinesis,
    "pulsar": _pulsar,
    "pulsar+ssl": _pulsar,
    "sqlite": _sqlite,
}


def _own(readers: Mapping[str, Any], connection: type) -> dict[str, Any]:
    """Those of an adapter's options that are its connection's."""
    fields = inspect.signature(connection).parameters
    return {name: reader for name, reader in readers.items() if name in fields}


def _host(parts: SplitResult) -> str:
    if not parts.netloc:
        raise ConfigurationError(f"the servers are missing in the URL: {FORM}")
    return parts.netloc


def _topic(parts: SplitResult) -> str | None:
    return unquote(parts.path.strip("/")) or None
