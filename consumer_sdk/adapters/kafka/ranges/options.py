"""The options of a range reader, checked when it is built."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.fetch import FetchRequest

from consumer_sdk.adapters.kafka.client.options import (
    client_kinds,
    connection_options,
    read_topics,
    read_url,
)
from consumer_sdk.adapters.kafka.options import LEVELS, KafkaOptions, ReaderOptions
from consumer_sdk.adapters.urls import shown, split_url, topics_of
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.options import (
    FLAG,
    SECONDS,
    TEXT,
    OptionType,
    check_fields,
    kinds_of,
    option,
)

__all__ = ["CONSUMERS_OWN", "OURS", "RangeOptions", "parse_url"]

OURS = {
    "request_timeout_ms": "use read_timeout= (seconds)",
}
"""Client options that the reader sets itself → what to do instead."""

KNOWS_RACKS = "rack_id" in signature(FetchRequest).parameters

CHOICES = "'orders', several in a list, pattern='orders-.*', or partitions={'orders': [0, 1]}"
FORM = (
    "write kafka://host:port[,host:port]/topic[,topic]?group=name&option=value, or no topic and "
    "?pattern=expression, or ?partitions= with a JSON object of topics and numbers"
)


def _json_object(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(text)  # noqa: TRY004 - a wrong value to whoever wrote the URL
    return found


PARTITIONS = OptionType(
    "topics and their partitions' numbers, {'orders': [0, 1]}",
    lambda value: isinstance(value, Mapping | None),
    _json_object,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeOptions(ReaderOptions):
    """What a range reader is configured with; `KafkaRanges`' docstring says what each does."""

    partitions: Mapping[str, Collection[int]] | None = option(PARTITIONS)
    read_timeout: float = option(SECONDS)
    seen_within: float = option(SECONDS)
    require_topics: bool = option(FLAG)
    whole_names: bool = option(FLAG)
    client_rack: str = option(TEXT)

    def __post_init__(self) -> None:
        check_fields(self)
        self._check_streams()

    def _check_streams(self) -> None:
        given = [bool(self.topics), self.pattern is not None, self.partitions is not None]
        if sum(given) != 1:
            raise ConfigurationError(f"KafkaRanges reads one choice of topics: give {CHOICES}")
        read_topics(tuple(self.names))
        for topic, numbers in (self.partitions or {}).items():
            if not numbers or not all(type(n) is int and n >= 0 for n in numbers):
                raise ConfigurationError(
                    f"partitions of {topic!r}: {numbers!r}; give numbers, from 0 up"
                )
        self._check_pattern()
        if self.client_rack and not KNOWS_RACKS:
            raise ConfigurationError(
                f"client_rack={self.client_rack!r}: this aiokafka sends no rack; install 0.14 or newer"
            )

    def _check_pattern(self) -> None:
        try:
            re.compile(self.pattern or "")
        except re.error as error:
            raise ConfigurationError(
                f"pattern={self.pattern!r} is no regular expression: {error}"
            ) from error

    @property
    def names(self) -> Sequence[str]:
        """The topics that are named; none where a pattern chooses."""
        return list(self.topics or self.partitions or ())

    def chooses(self, topic: str) -> bool:
        """Whether it is one of the topics, or a name that the pattern matches."""
        if self.pattern is None:
            return topic in self.names
        match = re.fullmatch if self.whole_names else re.search
        return match(self.pattern, topic) is not None

    @property
    def level(self) -> int:
        """The isolation level as Kafka's requests have it."""
        return LEVELS[self.isolation_level]

    def for_client(self) -> dict[str, Any]:
        """The options of the client; a connection that hangs is given up while time is left."""
        return connection_options(
            {
                **self.client_options,
                "bootstrap_servers": list(self.servers),
                "client_id": self.client_id,
                "request_timeout_ms": max(round(self.read_timeout * 500), 1),
            }
        )


OWN = client_kinds(AIOKafkaClient.__init__) | kinds_of(RangeOptions)
CONSUMERS_OWN = (
    client_kinds(AIOKafkaConsumer.__init__).keys() | kinds_of(KafkaOptions).keys()
) - OWN.keys()
"""Options that an adapter has, and a reader has not."""


def parse_url(url: str) -> tuple[list[str], dict[str, Any]]:
    """Topics, and the keyword arguments of `KafkaRanges`.

    Raises:
        ConfigurationError: the URL is malformed, or an option is unknown or of another kind.
    """
    parts, texts = split_url(url, {"kafka"}, FORM)
    if not topics_of(parts.path) and not {"pattern", "partitions"} & texts.keys():
        raise ConfigurationError(f"{shown(url)}: the topics are missing in the URL: {FORM}")
    return read_url(parts, texts, OWN, FORM)
