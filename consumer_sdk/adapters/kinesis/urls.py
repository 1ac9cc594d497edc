"""``kinesis://region/stream?group=g&option=value``."""

from __future__ import annotations

from dataclasses import fields
from typing import Any
from urllib.parse import unquote

from consumer_sdk.adapters.kinesis.connection import Connection
from consumer_sdk.adapters.kinesis.options import SECONDS
from consumer_sdk.adapters.option_texts import TRUTH, read_texts, split_url, truth
from consumer_sdk.errors import ConfigurationError

__all__ = ["parse_url"]

FORM = "write kinesis://region/stream?group=name&option=value"


def _verify(text: str) -> bool | str:
    """Whether certificates are checked, or the file of the authorities' certificates."""
    return TRUTH.get(text.lower(), text)


READERS: dict[str, Any] = {
    **dict.fromkeys(("group", "fan_out", "dead_letter_stream"), str),
    **{each.name: str for each in fields(Connection) if each.type == "str | None"},
    **dict.fromkeys((*SECONDS, "request_timeout", "connect_timeout"), float),
    **dict.fromkeys(("buffer_bytes", "connections"), int),
    "fast_decode": truth,
    "verify": _verify,
}


def parse_url(url: str) -> tuple[str, dict[str, Any]]:
    """The stream, and the keyword arguments of `KinesisAdapter`.

    Raises:
        ConfigurationError: the URL is malformed, an option unknown or its value of another type.
    """
    parts, texts = split_url(url, {"kinesis"}, FORM)
    if not parts.path.strip("/"):
        raise ConfigurationError(f"the stream is missing in the URL: {FORM}")
    if "region_name" in texts:
        raise ConfigurationError("region_name= in the URL: the region stands before the stream")
    options = read_texts(texts, READERS, FORM)
    stream, region = unquote(parts.path.strip("/")), unquote(parts.netloc)
    return stream, options | {"region_name": region or None}
