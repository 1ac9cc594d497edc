"""``kafka://host:port[,host:port]/topic[,topic]?group=g&option=value``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from aiokafka import AIOKafkaConsumer

from consumer_sdk.adapters.kafka.options import SECONDS
from consumer_sdk.errors import ConfigurationError

__all__ = ["parse_url"]

FORM = "write kafka://host:port[,host:port]/topic[,topic]?group=name&option=value"
TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def parse_url(url: str) -> tuple[list[str], dict[str, Any]]:
    """Topics, and the keyword arguments of `KafkaAdapter`.

    Raises:
        ConfigurationError: the URL is malformed, or an option's value has the wrong type.
    """
    parts = urlsplit(url)
    topics = [unquote(topic) for topic in parts.path.strip("/").split(",") if topic]
    if parts.scheme != "kafka" or not parts.netloc or not topics or "@" in parts.netloc:
        raise ConfigurationError(f"{_without_secrets(url)!r}: {FORM}")
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    options: dict[str, Any] = {name: _value(name, text) for name, text in pairs}
    if len(options) < len(pairs):
        raise ConfigurationError(f"{_without_secrets(url)!r}: an option is given twice")
    if "bootstrap_servers" in options:
        raise ConfigurationError(
            "bootstrap_servers= in the URL: the servers stand before the topic"
        )
    return topics, {"bootstrap_servers": parts.netloc} | options


def _value(name: str, text: str) -> Any:
    read = _reader(name)
    try:
        return read(text)
    except (KeyError, ValueError) as error:
        raise ConfigurationError(f"{name}={text!r} in the URL: not a {read.__name__}") from error


def _reader(name: str) -> Callable[[str], Any]:
    """Text to the type of the option's default; unknown ones are refused by the adapter."""
    if name in SECONDS:
        return float
    parameter = inspect.signature(AIOKafkaConsumer.__init__).parameters.get(name)
    default = None if parameter is None else parameter.default
    if isinstance(default, bool):
        return _truth
    if isinstance(default, int | float):
        return type(default)
    return str


def _truth(text: str) -> bool:
    return TRUTH[text.lower()]


def _without_secrets(url: str) -> str:
    """The query may hold a password."""
    return url.partition("?")[0].rpartition("@")[2]
