"""``pulsar://host:6650[,host:6650]/topic[,topic]?subscription=s&option=value``."""

from __future__ import annotations

from dataclasses import fields
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from consumer_sdk.adapters.pulsar.connection import Connection
from consumer_sdk.adapters.pulsar.options import SECONDS
from consumer_sdk.errors import ConfigurationError

__all__ = ["parse_url"]

FORM = "write pulsar://host:port/topic[,topic]?subscription=name&type=shared&option=value"
TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
KINDS: dict[str, Any] = {
    **dict.fromkeys(SECONDS, float),
    **{
        each.name: {"float": float, "int": int}[each.type]
        for each in fields(Connection)
        if each.type in ("float", "int")
    },
    "receiver_queue": int,
    "buffer_bytes": int,
    "cumulative_acks": lambda text: TRUTH[text.lower()],
    "tls_validate_hostname": lambda text: TRUTH[text.lower()],
}
TEXTS = {
    *("subscription", "type", "initial_position", "consumer_name", "pattern"),
    *("admin_url", "admin_token"),
    *(each.name for each in fields(Connection) if each.type == "str | None"),
    "log_level",
}


def parse_url(url: str) -> tuple[list[str], dict[str, Any]]:
    """Topics, and the keyword arguments of `PulsarAdapter`.

    A topic of another tenant or namespace is written with ``%2F``: ``tenant%2Fspace%2Fname``.

    Raises:
        ConfigurationError: the URL is malformed, an option unknown or its value of another type.
    """
    parts = urlsplit(url)
    shown = repr(url.partition("?")[0].rpartition("@")[2])  # the query may hold a token
    topics = [unquote(name) for name in parts.path.strip("/").split(",") if name]
    if parts.scheme not in {"pulsar", "pulsar+ssl"} or not parts.netloc or "@" in parts.netloc:
        raise ConfigurationError(f"{shown}: {FORM}")
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    options = {name: _value(name, text) for name, text in pairs}
    if len(options) < len(pairs):
        raise ConfigurationError(f"{shown}: an option is given twice")
    return topics, {"service_url": f"{parts.scheme}://{parts.netloc}"} | options


def _value(name: str, text: str) -> Any:
    if name in TEXTS:
        return text
    if name not in KINDS:
        raise ConfigurationError(f"unknown option {name}= in the URL: {FORM}")
    try:
        return KINDS[name](text)
    except (KeyError, ValueError) as error:
        raise ConfigurationError(f"{name}={text!r} in the URL has another type") from error
