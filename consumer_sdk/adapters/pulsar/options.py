"""What a Pulsar adapter is configured with."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import _pulsar

from consumer_sdk.adapters.pulsar.connection import Connection
from consumer_sdk.adapters.pulsar.pump import POSTED
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import Capabilities, Kind

__all__ = ["InitialPosition", "PulsarOptions", "SubscriptionType"]

SubscriptionType = Literal["exclusive", "failover", "shared", "key_shared"]
InitialPosition = Literal["earliest", "latest"]

TYPES = {
    "exclusive": _pulsar.ConsumerType.Exclusive,
    "failover": _pulsar.ConsumerType.Failover,
    "shared": _pulsar.ConsumerType.Shared,
    "key_shared": _pulsar.ConsumerType.KeyShared,
}
SECONDS = ("busy_timeout", "discovery_interval", "persist_time")
MOST_UNACKED = 50_000
"""``maxUnackedMessagesPerConsumer`` of a broker that was not told otherwise: then it sends no more. It counts on queues alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarOptions:
    """`PulsarAdapter`'s docstring says what each does."""

    topics: tuple[str, ...]
    pattern: str | None
    subscription: str
    type: SubscriptionType
    initial_position: InitialPosition
    consumer_name: str | None
    admin_url: str | None
    admin_token: str | None = field(repr=False)
    receiver_queue: int
    buffer_bytes: int
    cumulative_acks: bool
    busy_timeout: float
    discovery_interval: float
    retry_topic: bool
    retry_limit: int
    crypto_key_reader: Any
    encryption_keys: tuple[str, ...]
    connection: Connection
    persist_time: float = 180.0

    def __post_init__(self) -> None:
        self._check_topics()
        if not self.subscription or not self.subscription.strip():
            raise ConfigurationError(f"subscription={self.subscription!r}: give a name")
        for name, kind in (("type", SubscriptionType), ("initial_position", InitialPosition)):
            value = getattr(self, name)
            if value not in get_args(kind):
                raise ConfigurationError(f"{name}={value!r}: one of {', '.join(get_args(kind))}")
        for name in ("receiver_queue", "buffer_bytes", "retry_limit"):
            value = getattr(self, name)
            if not (isinstance(value, int) and value >= 1):
                raise ConfigurationError(f"{name}={value!r}: give a whole number, at least 1")
        for name in SECONDS:
            value = getattr(self, name)
            if not (isinstance(value, int | float) and 0 < value < math.inf):
                raise ConfigurationError(f"{name}={value!r}: give seconds, above 0")
        if self.cumulative_acks and self.is_queue:
            raise ConfigurationError(
                f"cumulative_acks=True: a {self.type} subscription has individual acks only"
            )
        if self.admin_url is not None and not self.admin_url.startswith(("http://", "https://")):
            raise ConfigurationError(f"admin_url={self.admin_url!r}: give http://host:port")
        self._check_writing()

    def _check_topics(self) -> None:
        if bool(self.topics) == (self.pattern is not None):
            raise ConfigurationError("give topics, or pattern=…: PulsarAdapter('orders', …)")
        for topic in self.topics:
            if not topic or topic != topic.strip():
                raise ConfigurationError(f"topic {topic!r}: give the name of a topic")
        if self.pattern is not None:
            if self.admin_url is None:
                raise ConfigurationError(
                    "pattern=… needs admin_url=…: the client cannot list topics by itself"
                )
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise ConfigurationError(f"pattern={self.pattern!r}: {error}") from error

    def _check_writing(self) -> None:
        if not hasattr(self.crypto_key_reader, "cryptoKeyReader") and self.crypto_key_reader:
            raise ConfigurationError("crypto_key_reader=…: give a pulsar.CryptoKeyReader")
        if self.encryption_keys and self.crypto_key_reader is None:
            raise ConfigurationError("encryption_keys=… needs crypto_key_reader=…")
        if self.retry_topic and not self.is_queue:
            raise ConfigurationError(
                f"retry_topic=True: the broker delays records of shared and key_shared "
                f"subscriptions only, and {self.type} would lose its order: let the handler raise Retry(delay)"
            )
        if self.retry_topic and not self.may_write:
            raise ConfigurationError(
                "retry_topic=True: messages are encrypted: give encryption_keys=… for their copies"
            )

    @property
    def may_write(self) -> bool:
        """Copies of records are as safe as the records."""
        return self.crypto_key_reader is None or bool(self.encryption_keys)

    @property
    def is_queue(self) -> bool:
        """Several consumers share each partition."""
        return self.type in ("shared", "key_shared")

    @property
    def capabilities(self) -> Capabilities:
        """What such a consumer can do."""
        return Capabilities(
            kind=Kind.QUEUE if self.is_queue else Kind.LOG,
            wants_settled=True,
            keeps_key_order=self.type != "shared",
            max_unacked=MOST_UNACKED - self.receiver_queue - MOST_AHEAD if self.is_queue else None,
            lag_unit=None,
            knows_ends=False,
            tells_new=self.admin_url is not None,
        )

    @property
    def batch_bytes(self) -> int:
        """What is received at a time; one message at least."""
        return min(BATCH_BYTES, self.buffer_bytes)

    def for_consumer(self, *, is_discovered: bool) -> Any:
        """The native consumer's options.

        Args:
            is_discovered: the topic is newer than the subscription, which is to have all of it.
        """
        is_latest = self.initial_position == "latest" and not is_discovered
        position = _pulsar.InitialPosition
        made = _pulsar.ConsumerConfiguration()
        made.consumer_type(TYPES[self.type])
        made.subscription_initial_position(position.Latest if is_latest else position.Earliest)
        made.receiver_queue_size(self.receiver_queue)
        made.batch_receive_policy(_pulsar.BatchReceivePolicy(BATCH, self.batch_bytes, BATCH_WAIT))
        made.batch_index_ack_enabled(True)
        # By default a seek goes to the entry before, which the broker sends, the client drops, and
        # nobody acks: it would stay in the backlog for ever.
        made.start_message_id_inclusive(True)
        if self.consumer_name is not None:
            made.consumer_name(self.consumer_name)
        if self.crypto_key_reader is not None:
            made.crypto_key_reader(self.crypto_key_reader.cryptoKeyReader)
        return made


BATCH = 999
"""Messages that are received at a time, beside the one that was waited for."""

AHEAD = 1000
"""Messages that are received ahead of fetches, about."""

MOST_AHEAD = AHEAD + (POSTED + 1) * (BATCH + 1)
"""Messages that are received ahead at most, while the loop is busy."""

BATCH_BYTES = 1 << 20
"""Bytes that are received at a time, beside the message that was waited for."""

BATCH_WAIT = 2
"""Milliseconds that they are waited for."""
