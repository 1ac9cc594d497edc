"""``pulsar://host:6650[,host:6650]/topic[,topic]?subscription=s&option=value``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from consumer_sdk.adapters.option_texts import read_texts, split_url, topics_of, truth
from consumer_sdk.adapters.pulsar.connection import SCHEMES, Connection
from consumer_sdk.adapters.pulsar.options import SECONDS
from consumer_sdk.errors import ConfigurationError

__all__ = ["parse_url"]

FORM = "write pulsar://host:port/topic[,topic]?subscription=name&type=shared&option=value"
KINDS: dict[Any, Any] = {"str": str, "str | None": str, "int": int, "float": float, "bool": truth}
READERS: dict[str, Any] = {
    **{each.name: KINDS[each.type] for each in fields(Connection) if each.type in KINDS},
    **dict.fromkeys(("subscription", "type", "initial_position", "consumer_name"), str),
    **dict.fromkeys(("pattern", "admin_url", "admin_token", "token"), str),
    **dict.fromkeys(("receiver_queue", "buffer_bytes", "retry_limit"), int),
    **dict.fromkeys(SECONDS, float),
    **dict.fromkeys(("cumulative_acks", "retry_topic"), truth),
}


def parse_url(
    url: str, readers: Mapping[str, Callable[[str], Any]] = READERS, form: str = FORM
) -> tuple[list[str], dict[str, Any]]:
    """Topics, and the keyword arguments of `PulsarAdapter`, or those that ``readers`` read.

    A topic of another tenant or namespace is written with ``%2F``: ``tenant%2Fspace%2Fname``. With
    ``pattern=`` there is none: ``pulsar://host:6650/?pattern=…``.

    Raises:
        ConfigurationError: the URL is malformed, an option unknown or its value of another type.
    """
    parts, texts = split_url(url, SCHEMES, form)
    if not parts.netloc or "service_url" in texts:
        raise ConfigurationError(f"the servers stand before the topic: {form}")
    options = read_texts(texts, readers, form)
    return topics_of(parts.path), {"service_url": f"{parts.scheme}://{parts.netloc}"} | options
