"""What range reads of Pulsar are configured with."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import _pulsar

from consumer_sdk.adapters.pulsar.client.connection import Connection
from consumer_sdk.adapters.pulsar.options import KINDS, PulsarOptions, parse_url
from consumer_sdk.options import SECONDS, check_fields, kinds_of, make_options, option

__all__ = ["NOBODY", "SHARED", "RangeOptions", "adapter_options", "parse_range_url"]

NOBODY = "-"
"""The subscription's name where there is none: it is never subscribed to."""

FORM = "write pulsar://host:port/topic[,topic]?subscription=name&admin_url=http://host:8080"
SHARED = (
    *("subscription", "pattern", "initial_position", "admin_url", "admin_token", "receiver_queue"),
    "crypto_key_reader",
)
"""Options that an adapter has too."""
UNUSED: Mapping[str, Any] = {
    "type": "exclusive",
    "consumer_name": None,
    "buffer_bytes": 1,
    "memory_limit": None,
    "max_message_size": 1,
    "cumulative_acks": False,
    "busy_timeout": 1.0,
    "discovery_interval": 1.0,
    "persist_time": 1.0,
    "retry_topic": False,
    "retry_limit": 1,
    "encryption_keys": (),
    "crypto_failure_action": "fail",
    "max_pending_chunked_message": 1,
    "is_read_compacted": False,
    "key_shared_policy": None,
    "properties": {},
    "replicate_subscription_state_enabled": False,
}
"""Options that an adapter alone has, and a value for each that passes its check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeOptions:
    """`PulsarRanges`' docstring says what each does.

    Attributes:
        pulsar: those that an adapter has too.
        stall_timeout, seen_within: seconds.
    """

    pulsar: PulsarOptions
    stall_timeout: float = option(SECONDS)
    seen_within: float = option(SECONDS)

    def __post_init__(self) -> None:
        check_fields(self)

    def for_reader(self, queue: int) -> Any:
        """The native reader's options, with so many messages that are sent ahead."""
        made = _pulsar.ReaderConfiguration()
        made.receiver_queue_size(queue)
        # The client draws a reader's name without a lock. Two that are opened at the same time, one in
        # the caller's thread and one in the client's, may draw the same; the second is refused as busy.
        made.subscription_role_prefix(f"reader-{uuid.uuid4().hex}")
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
        connection=make_options(Connection, connection),
        **UNUSED,
        **own,
    )


def parse_range_url(url: str) -> tuple[list[str], dict[str, Any]]:
    """Topics, and the keyword arguments of `PulsarRanges`.

    Raises:
        ConfigurationError: the URL is malformed, or an option is unknown or only a consumer's.
    """
    return parse_url(url, {name: KINDS[name] for name in SHARED} | kinds_of(RangeOptions), FORM)
