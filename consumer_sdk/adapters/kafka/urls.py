"""``kafka://host:port[,host:port]/topic[,topic]?group=g&option=value``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from aiokafka import AIOKafkaConsumer

from consumer_sdk.adapters.kafka.options import SECONDS
from consumer_sdk.adapters.option_texts import reader_like, split_url, topics_of
from consumer_sdk.errors import ConfigurationError

__all__ = ["parse_url", "read_value"]

FORM = "write kafka://host:port[,host:port]/topic[,topic]?group=name&option=value"


def parse_url(url: str) -> tuple[list[str], dict[str, Any]]:
    """Topics, and the keyword arguments of `KafkaAdapter`.

    Raises:
        ConfigurationError: the URL is malformed, or an option's value has the wrong type.
    """
    parts, texts = split_url(url, {"kafka"}, FORM)
    topics = topics_of(parts.path)
    if not parts.netloc or not topics:
        raise ConfigurationError(f"servers or topics are missing in the URL: {FORM}")
    options: dict[str, Any] = {name: _value(name, text) for name, text in texts.items()}
    if "bootstrap_servers" in options:
        raise ConfigurationError(
            "bootstrap_servers= in the URL: the servers stand before the topic"
        )
    return topics, {"bootstrap_servers": parts.netloc} | options


def _value(name: str, text: str) -> Any:
    return read_value(name, text, _reader(name))


def read_value(name: str, text: str, read: Callable[[str], Any]) -> Any:
    """An option's value.

    Raises:
        ConfigurationError: ``read`` cannot read it.
    """
    try:
        return read(text)
    except (KeyError, ValueError) as error:
        raise ConfigurationError(f"{name}={text!r} in the URL: not a {read.__name__}") from error


def _reader(name: str) -> Callable[[str], Any]:
    """Text to the type of the option's default; unknown ones are refused by the adapter."""
    if name in SECONDS:
        return float
    parameter = inspect.signature(AIOKafkaConsumer.__init__).parameters.get(name)
    return reader_like(None if parameter is None else parameter.default)
