"""What a Kinesis adapter is configured with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from consumer_sdk.adapters.kinesis.connection import Connection
from consumer_sdk.adapters.kinesis.rates import Limits
from consumer_sdk.errors import ConfigurationError

__all__ = ["KinesisOptions"]

SECONDS = ("lease_duration", "handover_timeout", "discovery_interval", "poll_interval")


@dataclass(frozen=True, slots=True, kw_only=True)
class KinesisOptions:
    """`KinesisAdapter`'s docstring says what each does."""

    stream: str
    group: str | None
    fan_out: str | None
    lease_duration: float
    handover_timeout: float
    discovery_interval: float
    poll_interval: float
    buffer_bytes: int
    dead_letter_stream: str | None
    limits: Limits
    connection: Connection

    def __post_init__(self) -> None:
        stream: Any = self.stream  # whatever was given
        if not (isinstance(stream, str) and self.stream_name):
            raise ConfigurationError(f"stream={stream!r}: give the name or the ARN of a stream")
        for name in ("group", "fan_out", "dead_letter_stream"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and value.strip()):
                raise ConfigurationError(f"{name}={value!r}: give a name, or leave it out")
        for name in SECONDS:
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (is_number and 0 < value < math.inf):
                raise ConfigurationError(f"{name}={value!r}: give seconds, above 0")
        size: Any = self.buffer_bytes
        if not (isinstance(size, int) and size > 0):
            raise ConfigurationError(f"buffer_bytes={size!r}: give bytes, above 0")

    @property
    def stream_name(self) -> str:
        """What checkpoints and leases call the stream; the last part of an ARN."""
        return self.stream.rpartition("/")[2]
