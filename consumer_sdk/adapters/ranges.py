"""Opens a range reader from a URL, for Spark, command lines and configuration files."""

from __future__ import annotations

from urllib.parse import urlsplit

from consumer_sdk.adapters.urls import class_of
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.range_reads import RangeReader

__all__ = ["SCHEMES", "open_ranges"]

SCHEMES = {
    "kafka": "consumer_sdk.adapters.kafka.ranges:KafkaRanges",
    "pulsar": "consumer_sdk.adapters.pulsar.ranges:PulsarRanges",
    "pulsar+ssl": "consumer_sdk.adapters.pulsar.ranges:PulsarRanges",
}
"""URL scheme → ``module:class``; the class has a ``from_url``."""


def open_ranges(url: str) -> RangeReader:
    """The range reader that ``url`` names, such as ``kafka://host:9092/orders?group=billing``.

    Raises:
        ConfigurationError: the scheme or an option is unknown, or the URL is malformed.
        MissingExtraError: the broker's client is not installed.
    """
    scheme = urlsplit(url).scheme
    if scheme not in SCHEMES:
        raise ConfigurationError(
            f"{scheme or 'no scheme'}: ranges can be read of {', '.join(sorted(SCHEMES))}; brokers "
            f"that cannot re-read a range, such as Kinesis, feed Spark through SparkFeed"
        )
    reader: RangeReader = class_of(SCHEMES[scheme], scheme).from_url(url)
    return reader
