"""Opens a record writer from a URL, for Spark's sink."""

from __future__ import annotations

from consumer_sdk.adapters.urls import class_of, scheme_of
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.record_writes import RecordWriter

__all__ = ["SCHEMES", "open_writer"]

SCHEMES = {
    "kafka": "consumer_sdk.adapters.kafka.producing.writing:KafkaWriter",
    "pulsar": "consumer_sdk.adapters.pulsar.writing:PulsarWriter",
    "pulsar+ssl": "consumer_sdk.adapters.pulsar.writing:PulsarWriter",
}
"""URL scheme → ``module:class``; the class has a ``from_url``."""

FORM = "write kafka://host:port/topic or pulsar://host:port/topic, with ?option=value"


def open_writer(url: str) -> RecordWriter:
    """The writer that ``url`` names, not open yet; which topics it writes to, each record says.

    Raises:
        ConfigurationError: the scheme or an option is unknown, or the URL is malformed.
        MissingExtraError: the broker's client is not installed.
    """
    scheme = scheme_of(url, FORM)
    if scheme not in SCHEMES:
        raise ConfigurationError(f"{scheme}: records are written to Kafka and Pulsar: {FORM}")
    writer: RecordWriter = class_of(SCHEMES[scheme]).from_url(url)
    return writer
