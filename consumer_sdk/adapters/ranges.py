"""Opens a range reader from a URL, for Spark, command lines and configuration files."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from consumer_sdk.adapters.urls import class_of, scheme_of, split_url
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.range_reads import RangeReader

__all__ = ["SCHEMES", "open_for_tools", "open_ranges", "share_group_of"]

SCHEMES = {
    "kafka": "consumer_sdk.adapters.kafka.ranges:KafkaRanges",
    "pulsar": "consumer_sdk.adapters.pulsar.ranges:PulsarRanges",
    "pulsar+ssl": "consumer_sdk.adapters.pulsar.ranges:PulsarRanges",
}
"""URL scheme → ``module:class``; the class has a ``from_url``."""

TOOLS = {**SCHEMES, "kinesis": "consumer_sdk.adapters.kinesis.ranges:KinesisRanges"}
"""Those that command lines use, which may be slow; the class has ``consumer_options()``, too."""

FORM = "write kafka://host:port/topic?group=name or pulsar://host:port/topic?subscription=name"


def open_ranges(url: str) -> RangeReader:
    """The range reader that ``url`` names, such as ``kafka://host:9092/orders?group=billing``.

    Raises:
        ConfigurationError: the scheme or an option is unknown, or the URL is malformed.
        MissingExtraError: the broker's client is not installed.
    """
    scheme = scheme_of(url, FORM)
    if scheme not in SCHEMES:
        raise ConfigurationError(
            f"{scheme}: ranges can be read of {', '.join(sorted(SCHEMES))}; brokers "
            f"that cannot re-read a range, such as Kinesis, feed Spark through SparkFeed"
        )
    reader: RangeReader = class_of(SCHEMES[scheme]).from_url(url)
    return reader


def open_for_tools(url: str) -> tuple[RangeReader, str | None]:
    """A reader for a consumer's own URL, and the group or subscription that the URL names.

    The reader belongs to no group, and makes none. What concerns consumers alone is left out.

    Raises:
        ConfigurationError: the scheme or an option is unknown, or the URL is malformed.
        MissingExtraError: the broker's client is not installed.
    """
    parts, texts = split_url(url, TOOLS, f"{FORM}, or kinesis://region/stream?group=name")
    reader = class_of(TOOLS[parts.scheme])
    group = texts.pop("subscription" if parts.scheme.startswith("pulsar") else "group", None)
    kept = {name: text for name, text in texts.items() if name not in reader.consumer_options()}
    opened: RangeReader = reader.from_url(urlunsplit(parts._replace(query=urlencode(kept))))
    return opened, group


def share_group_of(url: str) -> str | None:
    """The share group that a consumer's URL names: its broker keeps no position for each partition."""
    return dict(parse_qsl(urlsplit(url).query)).get("share_group")
