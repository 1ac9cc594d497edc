"""What range reads of Pulsar are configured with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import _pulsar

from consumer_sdk.adapters.option_texts import make_options
from consumer_sdk.adapters.pulsar.connection import Connection
from consumer_sdk.adapters.pulsar.options import PulsarOptions
from consumer_sdk.adapters.pulsar.urls import READERS, parse_url
from consumer_sdk.errors import ConfigurationError

__all__ = ["NOBODY", "RangeOptions", "adapter_options", "parse_range_url"]

NOBODY = "-"
"""The subscription's name where there is none: it is never subscribed to."""

FORM = "write pulsar://host:port/topic[,topic]?subscription=name&admin_url=http://host:8080"
SECONDS = ("stall_timeout", "seen_within")
OWN = {
    *("subscription", "pattern", "initial_position", "admin_url", "admin_token", "receiver_queue"),
    *(field.name for field in fields(Connection)),
}
OWN_READERS: dict[str, Any] = {
    **{name: READERS[name] for name in OWN & READERS.keys()},
    **dict.fromkeys(SECONDS, float),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeOptions:
    """`PulsarRanges`' docstring says what each does.

    Attributes:
        pulsar: those that an adapter has too.
        stall_timeout, seen_within: seconds.
    """

    pulsar: PulsarOptions
    stall_timeout: float
    seen_within: float

    def __post_init__(self) -> None:
        for name in SECONDS:
            given: object = getattr(self, name)  # whatever a caller has given
            if not (isinstance(given, int | float) and 0 < given < math.inf):
                raise ConfigurationError(f"{name}={given!r}: give seconds, above 0")

    def for_reader(self, queue: int) -> Any:
        """The native reader's options, with so many messages that are sent ahead."""
        made = _pulsar.ReaderConfiguration()
        made.receiver_queue_size(queue)
        keys = self.pulsar.crypto_key_reader
        if keys is not None:
            made.crypto_key_reader(keys.cryptoKeyReader)
        return made


def adapter_options(
    topics: tuple[str, ...], subscription: str | None, connection: Mapping[str, Any], **own: Any
) -> PulsarOptions:
    """The options that an adapter would have; what it alone uses is left as it is.

    Raises:
        ConfigurationError: an option is unknown or cannot work.
    """
    return PulsarOptions(
        topics=topics,
        subscription=NOBODY if subscription is None else subscription,
        type="exclusive",
        consumer_name=None,
        buffer_bytes=1,
        cumulative_acks=False,
        busy_timeout=1.0,
        discovery_interval=1.0,
        retry_topic=False,
        retry_limit=1,
        encryption_keys=(),
        connection=make_options(Connection, connection),
        **own,
    )


def parse_range_url(url: str) -> tuple[list[str], dict[str, Any]]:
    """Topics, and the keyword arguments of `PulsarRanges`.

    Raises:
        ConfigurationError: the URL is malformed, or an option is unknown or only a consumer's.
    """
    return parse_url(url, OWN_READERS, FORM)
