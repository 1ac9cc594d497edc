"""``kinesis://region/stream?group=g&option=value``."""

from __future__ import annotations

from dataclasses import fields
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from consumer_sdk.adapters.kinesis.connection import Connection
from consumer_sdk.adapters.kinesis.options import SECONDS
from consumer_sdk.errors import ConfigurationError

__all__ = ["parse_url"]

FORM = "write kinesis://region/stream?group=name&option=value"
TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
NUMBERS = {"buffer_bytes": int, "connections": int, "request_timeout": float} | {
    "connect_timeout": float
}
TEXTS = {
    "group",
    "fan_out",
    "dead_letter_stream",
    *(field.name for field in fields(Connection) if "str" in field.type),
}


def parse_url(url: str) -> tuple[str, dict[str, Any]]:
    """The stream, and the keyword arguments of `KinesisAdapter`.

    Raises:
        ConfigurationError: the URL is malformed, an option unknown or its value of another type.
    """
    shown = repr(url.partition("?")[0].rpartition("@")[2])  # the query may hold a secret
    try:
        parts = urlsplit(url)
    except ValueError as error:  # a bracket that is not closed
        raise ConfigurationError(f"{shown}: {error}; {FORM}") from error
    stream = unquote(parts.path.strip("/"))
    if parts.scheme != "kinesis" or not stream or "@" in parts.netloc:
        raise ConfigurationError(f"{shown}: {FORM}")
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    options = {name: _value(name, text) for name, text in pairs}
    if len(options) < len(pairs):
        raise ConfigurationError(f"{shown}: an option is given twice")
    if "region_name" in options:
        raise ConfigurationError(f"{shown}: region_name= in the URL: the region stands before /")
    return stream, options | {"region_name": unquote(parts.netloc) or None}


def _value(name: str, text: str) -> Any:
    if name == "verify":
        return TRUTH.get(text.lower(), text)  # or the file of the authorities' certificates
    if name == "fast_decode":
        return _read(name, text, lambda given: TRUTH[given.lower()], "truth value")
    if name in SECONDS or name in NUMBERS:
        kind = NUMBERS.get(name, float)
        return _read(name, text, kind, "number")
    if name in TEXTS:
        return text
    raise ConfigurationError(f"unknown option {name}= in the URL: {FORM}")


def _read(name: str, text: str, kind: Any, what: str) -> Any:
    try:
        return kind(text)
    except (KeyError, ValueError) as error:
        raise ConfigurationError(f"{name}={text!r} in the URL is no {what}") from error
