"""``kafka://host:port[,host:port]/topic[,topic]?group=g&option=value`` of a range reader."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

from aiokafka.client import AIOKafkaClient

from consumer_sdk.adapters.kafka.ranges.options import SECONDS
from consumer_sdk.adapters.kafka.urls import read_value
from consumer_sdk.adapters.option_texts import reader_like, split_url, topics_of, truth
from consumer_sdk.errors import ConfigurationError

__all__ = ["parse_url"]

FORM = (
    "write kafka://host:port[,host:port]/topic[,topic]?group=name&option=value, or no topic and "
    "?pattern=expression, or ?partitions= with a JSON object of topics and numbers"
)


def parse_url(url: str) -> tuple[list[str], dict[str, Any]]:
    """Topics, and the keyword arguments of `KafkaRanges`.

    Raises:
        ConfigurationError: the URL is malformed, or an option's value has the wrong type.
    """
    parts, texts = split_url(url, {"kafka"}, FORM)
    topics = topics_of(parts.path)
    if not parts.netloc:
        raise ConfigurationError(f"servers are missing in the URL: {FORM}")
    if not topics and not {"pattern", "partitions"} & texts.keys():
        raise ConfigurationError(f"topics are missing in the URL: {FORM}")
    for name in {"bootstrap_servers", "topics"} & texts.keys():
        raise ConfigurationError(f"{name}= in the URL: {FORM}")
    options = {name: read_value(name, text, _reader(name)) for name, text in texts.items()}
    return topics, {"bootstrap_servers": parts.netloc} | options


def _reader(name: str) -> Callable[[str], Any]:
    """Text to the type of the option's default; unknown ones are refused by the reader."""
    if name in SECONDS:
        return float
    if name == "require_topics":
        return truth
    if name == "partitions":
        return json_object
    parameter = inspect.signature(AIOKafkaClient.__init__).parameters.get(name)
    return reader_like(None if parameter is None else parameter.default)


def json_object(text: str) -> dict[str, Any]:
    """Reads one.

    Raises:
        ValueError: it is something else.
    """
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(text)  # noqa: TRY004 - a wrong value to whoever wrote the URL
    return found
