"""What a Kinesis adapter is configured with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, unquote

from consumer_sdk.adapters.kinesis.service.connection import Connection
from consumer_sdk.adapters.kinesis.service.rates import Limits
from consumer_sdk.adapters.kinesis.service.requests import address
from consumer_sdk.adapters.urls import split_url
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.options import (
    COUNT,
    NAME,
    SECONDS,
    OptionType,
    check_fields,
    kinds_of,
    names_of,
    option,
    optional,
    read_texts,
)

__all__ = ["KinesisOptions", "parse_url", "read_streams", "read_url"]

FORM = "write kinesis://region/stream[,stream]?group=name&option=value"


def _limits(text: str) -> Limits:
    """``calls:2,bytes:1048576``, or one of them.

    Raises:
        ValueError: it is not of that form.
    """
    kinds = {"calls": int, "bytes": float}
    parts = [part.partition(":") for part in text.split(",")]
    return Limits(**{name: kinds.get(name, _unknown)(value) for name, _, value in parts})


def _unknown(value: str) -> int:
    raise ValueError(value)


LIMITS = OptionType(
    "Limits(calls=…, bytes=…), in a URL calls:2,bytes:1048576",
    lambda value: isinstance(value, Limits),
    _limits,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KinesisOptions:
    """`KinesisAdapter`'s docstring says what each does."""

    stream: str
    connection: Connection
    group: str | None = option(optional(NAME))
    fan_out: str | None = option(optional(NAME))
    lease_duration: float = option(SECONDS)
    handover_timeout: float = option(SECONDS)
    max_shards: int | None = option(optional(COUNT))
    weight: int = option(COUNT)
    discovery_interval: float = option(SECONDS)
    poll_interval: float = option(SECONDS)
    buffer_bytes: int = option(COUNT)
    dead_letter_stream: str | None = option(optional(NAME))
    limits: Limits = option(LIMITS, default_factory=Limits)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.max_shards is not None and self.group is None:
            raise ConfigurationError(
                f"max_shards={self.max_shards} without a group: nobody would read the others; give "
                f"group=, or leave it out"
            )
        if self.weight != 1 and self.group is None:
            raise ConfigurationError(
                f"weight={self.weight} without a group: there are no members to share with; give "
                f"group=, or leave it out"
            )

    @property
    def stream_name(self) -> str:
        """What checkpoints and leases call the stream; the last part of an ARN."""
        return _name_of(self.stream)


def read_streams(given: Sequence[str | Sequence[str]], region: str | None) -> dict[str, str | None]:
    """Streams that were given one by one, or in one sequence, with the region of each.

    Raises:
        ConfigurationError: one is neither a name nor an ARN, is of another region than the one that
            was given, or has the name of another one.
    """
    streams = names_of(tuple(given))
    if not streams:
        raise ConfigurationError("stream=(): give the name or the ARN of a stream, or several")
    regions = {stream: address(stream)[0] for stream in streams}
    for stream, named in regions.items():
        if region is not None and named not in {None, region}:
            raise ConfigurationError(
                f"region_name={region!r}: the stream's ARN names {named}: {stream}"
            )
    names = list(map(_name_of, streams))
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigurationError(
            f"{', '.join(twice)}: two streams of one name, whose checkpoints could not be told apart: "
            f"use a consumer and a group for each"
        )
    return {stream: named or region for stream, named in regions.items()}


def _name_of(stream: str) -> str:
    return stream.rpartition("/")[2]


KINDS = kinds_of(Connection) | kinds_of(KinesisOptions)


def parse_url(url: str) -> tuple[list[str], dict[str, Any]]:
    """The streams, and the keyword arguments of `KinesisAdapter`.

    Raises:
        ConfigurationError: the URL is malformed, or an option is unknown or of another kind.
    """
    parts, texts = split_url(url, {"kinesis"}, FORM)
    streams, options = read_url(parts, texts, KINDS, FORM)
    return streams.split(","), options


def read_url(
    parts: SplitResult, texts: Mapping[str, str], types: Mapping[str, OptionType], form: str
) -> tuple[str, dict[str, Any]]:
    """The stream, and options with the region.

    Raises:
        ConfigurationError: the stream is missing, or an option is unknown or of another kind.
    """
    stream, region = unquote(parts.path.strip("/")), unquote(parts.netloc)
    if not stream:
        raise ConfigurationError(
            f"'{parts.scheme}://{parts.netloc}{parts.path}': the stream is missing in the URL: {form}"
        )
    if "region_name" in texts:
        raise ConfigurationError(
            f"region_name= in the URL: the region stands before the stream: {form}"
        )
    return stream, read_texts(texts, types) | {"region_name": region or None}
