"""Opens adapters, range readers and record writers from URLs, and has what all readers of URLs share."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.options import URL, OptionType, read_texts, shown

if TYPE_CHECKING:
    from consumer_sdk.abc import Adapter
    from consumer_sdk.range_reads import RangeReader
    from consumer_sdk.record_writes import RecordWriter

__all__ = [
    "SCHEMES",
    "TOOLS",
    "class_of",
    "is_host",
    "open_for_tools",
    "open_ranges",
    "open_url",
    "open_writer",
    "read_server_url",
    "scheme_of",
    "share_group_of",
    "shown",
    "split_url",
    "topics_of",
]

SCHEMES = {
    "kafka": "consumer_sdk.adapters.kafka:KafkaAdapter",
    "kinesis": "consumer_sdk.adapters.kinesis:KinesisAdapter",
    "memory": "consumer_sdk.testing.memory:MemoryAdapter",
    "pulsar": "consumer_sdk.adapters.pulsar:PulsarAdapter",
    "pulsar+ssl": "consumer_sdk.adapters.pulsar:PulsarAdapter",
}
"""URL scheme → ``module:class``; the class has a ``from_url``."""

RANGES = {
    "kafka": "consumer_sdk.adapters.kafka.ranges:KafkaRanges",
    "pulsar": "consumer_sdk.adapters.pulsar.ranges:PulsarRanges",
    "pulsar+ssl": "consumer_sdk.adapters.pulsar.ranges:PulsarRanges",
}
"""The same for range readers."""
TOOLS = {**RANGES, "kinesis": "consumer_sdk.adapters.kinesis.ranges:KinesisRanges"}
"""Range readers for command lines, which may be slow; the class has ``consumer_options()``, too."""
WRITERS = {
    "kafka": "consumer_sdk.adapters.kafka.producing.writing:KafkaWriter",
    "pulsar": "consumer_sdk.adapters.pulsar.writing:PulsarWriter",
    "pulsar+ssl": "consumer_sdk.adapters.pulsar.writing:PulsarWriter",
}
"""The same for record writers."""

FORM = (
    "write kafka://host:port/topic?group=name, pulsar://host:port/topic?subscription=name, "
    "kinesis://region/stream?group=name or memory://broker/stream?group=name"
)

RANGES_FORM = (
    "write kafka://host:port/topic?group=name or pulsar://host:port/topic?subscription=name"
)
WRITERS_FORM = "write kafka://host:port/topic or pulsar://host:port/topic, with ?option=value"

LAST_PORT = 65_535


def open_url(url: str) -> Adapter:
    """The adapter that ``url`` names, such as ``kafka://host:9092/orders?group=billing``.

    Raises:
        ConfigurationError: the scheme or an option is unknown, or the URL is malformed.
        MissingExtraError: the broker's client is not installed.
    """
    scheme = scheme_of(url, FORM)
    if scheme not in SCHEMES:
        raise ConfigurationError(f"{shown(url)}: no adapter has the scheme {scheme!r}: {FORM}")
    adapter: Adapter = class_of(SCHEMES[scheme]).from_url(url)
    return adapter


def open_ranges(url: str) -> RangeReader:
    """The range reader that ``url`` names, such as ``kafka://host:9092/orders?group=billing``.

    Raises:
        ConfigurationError: the scheme or an option is unknown, or the URL is malformed.
        MissingExtraError: the broker's client is not installed.
    """
    scheme = scheme_of(url, RANGES_FORM)
    if scheme not in RANGES:
        raise ConfigurationError(
            f"{scheme}: ranges can be read of {', '.join(sorted(RANGES))}; brokers "
            f"that cannot re-read a range, such as Kinesis, feed Spark through SparkFeed"
        )
    reader: RangeReader = class_of(RANGES[scheme]).from_url(url)
    return reader


def open_for_tools(url: str) -> tuple[RangeReader, str | None]:
    """A reader for a consumer's own URL, and the group or subscription that the URL names.

    The reader belongs to no group, and makes none. What concerns consumers alone is left out.

    Raises:
        ConfigurationError: the scheme or an option is unknown, or the URL is malformed.
        MissingExtraError: the broker's client is not installed.
    """
    parts, texts = split_url(url, TOOLS, f"{RANGES_FORM}, or kinesis://region/stream?group=name")
    reader = class_of(TOOLS[parts.scheme])
    group = texts.pop("subscription" if parts.scheme.startswith("pulsar") else "group", None)
    kept = {name: text for name, text in texts.items() if name not in reader.consumer_options()}
    opened: RangeReader = reader.from_url(urlunsplit(parts._replace(query=urlencode(kept))))
    return opened, group


def share_group_of(url: str) -> str | None:
    """The share group that a consumer's URL names: its broker keeps no position for each partition."""
    return dict(parse_qsl(urlsplit(url).query)).get("share_group")


def open_writer(url: str) -> RecordWriter:
    """The writer that ``url`` names, not open yet; which topics it writes to, each record says.

    Raises:
        ConfigurationError: the scheme or an option is unknown, or the URL is malformed.
        MissingExtraError: the broker's client is not installed.
    """
    scheme = scheme_of(url, WRITERS_FORM)
    if scheme not in WRITERS:
        raise ConfigurationError(
            f"{scheme}: records are written to Kafka and Pulsar: {WRITERS_FORM}"
        )
    writer: RecordWriter = class_of(WRITERS[scheme]).from_url(url)
    return writer


# -- what readers of URLs share ---------------------------------------------------------------


def class_of(path: str) -> Any:
    """The class at ``module:class``, imported only now, since it imports a broker's client.

    Raises:
        MissingExtraError: the broker's client is not installed.
    """
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def scheme_of(url: str, form: str) -> str:
    """A URL's scheme.

    Args:
        form: what to write instead, for errors.

    Raises:
        ConfigurationError: it has none, or is no text.
    """
    URL.check("url", url)
    scheme, colon, _rest = url.partition(":")
    if not colon or (scheme not in SCHEMES and not _rest.startswith("//")):
        raise ConfigurationError(
            f"{shown(url)} does not begin with a scheme such as kafka://: {form}"
        )
    return scheme


def split_url(url: str, schemes: Collection[str], form: str) -> tuple[SplitResult, dict[str, str]]:
    """A URL's parts, and the options in its query.

    Args:
        form: what to write instead, for errors.

    Raises:
        ConfigurationError: it is no text, the URL is malformed, has credentials, or an option twice.
    """
    URL.check("url", url)
    try:
        parts = urlsplit(url)
    except ValueError as error:  # a bracket that is not closed
        raise ConfigurationError(f"{shown(url)}: {error}; {form}") from error
    if parts.scheme not in schemes:
        known = " or ".join(f"{scheme}://" for scheme in sorted(schemes))
        raise ConfigurationError(f"{shown(url)} does not begin with {known}: {form}")
    if parts.scheme in SCHEMES and "://" not in url:
        raise ConfigurationError(f"{shown(url)}: '//' is missing behind '{parts.scheme}:': {form}")
    if "@" in parts.netloc:
        raise ConfigurationError(
            f"{shown(url)}: credentials before the host are not read, give them as options; {form}"
        )
    if "#" in url:
        raise ConfigurationError(
            f"{shown(url)}: '#' ends a URL, write %23 for one in a name; {form}"
        )
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    for name in {name for name, _ in pairs}:
        if sum(name == other for other, _ in pairs) > 1:
            raise ConfigurationError(f"{shown(url)}: the option {name}= is given twice")
    return parts, dict(pairs)


def read_server_url(
    parts: SplitResult,
    texts: Mapping[str, str],
    kinds: Mapping[str, OptionType],
    form: str,
    *,
    servers: str,
    hint: str = "",
) -> tuple[list[str], dict[str, Any]]:
    """The topics, and the options, of a URL whose host names the servers.

    Args:
        kinds: what each option takes.
        form: what to write instead, for errors.
        servers: the option that the host stands for, which the query may not have.
        hint: see `read_texts`.

    Raises:
        ConfigurationError: servers are missing, or an option is unknown or of another kind.
    """
    if not parts.netloc:
        raise ConfigurationError(
            f"'{parts.scheme}://{parts.path}': the servers are missing in the URL: {form}"
        )
    if servers in texts:
        raise ConfigurationError(
            f"{servers}= in the URL: the servers stand before the topic: {form}"
        )
    return topics_of(parts.path), read_texts(texts, kinds, hint)


def is_host(text: str) -> bool:
    """``host`` or ``host:port``, with a port that there is; an IPv6 host stands in brackets."""
    host, colon, port = (text, "", "") if text.endswith("]") else text.rpartition(":")
    if re.search(r"\s", text) or not (host if colon else text):
        return False
    return not colon or (port.isascii() and port.isdigit() and 0 < int(port) <= LAST_PORT)


def topics_of(path: str) -> list[str]:
    """The topics that a URL's path names."""
    return [unquote(topic) for topic in path.strip("/").split(",") if topic]
