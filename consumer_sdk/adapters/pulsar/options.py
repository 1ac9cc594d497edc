"""What a Pulsar adapter is configured with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import SplitResult

from consumer_sdk.adapters.pulsar import client_support as _support  # noqa: F401 - is it there?

# isort: split
import _pulsar
import pulsar

from consumer_sdk.adapters.pulsar.client.connection import SCHEMES, Connection
from consumer_sdk.adapters.pulsar.client.topics import read_pattern
from consumer_sdk.adapters.urls import read_server_url, split_url
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.options import (
    COUNT,
    FLAG,
    HTTP_URL,
    NAME,
    NAMES,
    SECONDS,
    SECRET,
    TEXT,
    OptionType,
    check_fields,
    choice,
    instance,
    kinds_of,
    option,
    optional,
)
from consumer_sdk.records import Capabilities, Kind

if TYPE_CHECKING:
    from consumer_sdk.adapters.pulsar.consumer.read_ahead_budget import ReadAheadBudget

__all__ = [
    "KINDS",
    "CryptoFailureAction",
    "InitialPosition",
    "PulsarOptions",
    "SubscriptionType",
    "parse_url",
    "read_url",
]

SubscriptionType = Literal["exclusive", "failover", "shared", "key_shared"]
InitialPosition = Literal["earliest", "latest"]
CryptoFailureAction = Literal["fail", "discard", "consume"]

TYPES = {
    "exclusive": _pulsar.ConsumerType.Exclusive,
    "failover": _pulsar.ConsumerType.Failover,
    "shared": _pulsar.ConsumerType.Shared,
    "key_shared": _pulsar.ConsumerType.KeyShared,
}
ACTIONS = {
    "fail": _pulsar.ConsumerCryptoFailureAction.FAIL,
    "discard": _pulsar.ConsumerCryptoFailureAction.DISCARD,
    "consume": _pulsar.ConsumerCryptoFailureAction.CONSUME,
}
FORM = "write pulsar://host:port/topic[,topic]?subscription=name&type=shared&option=value"


def _are_texts(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(text, str) for pair in value.items() for text in pair
    )


KEY_READER = OptionType(
    "a pulsar.CryptoKeyReader, or None", lambda v: v is None or hasattr(v, "cryptoKeyReader")
)
KEY_SHARED = optional(instance(pulsar.ConsumerKeySharedPolicy, "a pulsar.ConsumerKeySharedPolicy"))
PROPERTIES = OptionType("names with texts, {'team': 'billing'}", _are_texts)
MOST_UNACKED = 50_000
"""``maxUnackedMessagesPerConsumer`` of a broker that was not told otherwise: then it sends no more. It counts on queues alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarOptions:
    """`PulsarAdapter`'s docstring says what each does."""

    topics: tuple[str, ...]
    connection: Connection
    pattern: str | None = option(optional(TEXT))
    subscription: str = option(NAME)
    type: SubscriptionType = option(choice(*get_args(SubscriptionType)))
    initial_position: InitialPosition = option(choice(*get_args(InitialPosition)))
    consumer_name: str | None = option(optional(NAME))
    admin_url: str | None = option(optional(HTTP_URL))
    admin_token: str | None = option(optional(SECRET))
    receiver_queue: int = option(COUNT)
    buffer_bytes: int = option(COUNT)
    memory_limit: int | None = option(optional(COUNT))
    max_message_size: int = option(COUNT)
    cumulative_acks: bool = option(FLAG)
    busy_timeout: float = option(SECONDS)
    discovery_interval: float = option(SECONDS)
    persist_time: float = option(SECONDS)
    retry_topic: bool = option(FLAG)
    retry_limit: int = option(COUNT)
    crypto_key_reader: Any = option(KEY_READER)
    encryption_keys: Sequence[str] = option(NAMES)
    crypto_failure_action: CryptoFailureAction = option(choice(*get_args(CryptoFailureAction)))
    max_pending_chunked_message: int = option(COUNT)
    is_read_compacted: bool = option(FLAG)
    key_shared_policy: Any = option(KEY_SHARED)
    properties: Mapping[str, str] = option(PROPERTIES)
    replicate_subscription_state_enabled: bool = option(FLAG)

    def __post_init__(self) -> None:
        check_fields(self)
        self._check_topics()
        if self.cumulative_acks and self.is_queue:
            raise ConfigurationError(
                f"cumulative_acks=True: a {self.type} subscription has individual acks only"
            )
        if self.is_read_compacted and self.is_queue:
            raise ConfigurationError(
                f"is_read_compacted=True: the broker sends what was compacted to exclusive and "
                f"failover subscriptions only, and this one is {self.type}"
            )
        if self.key_shared_policy is not None and self.type != "key_shared":
            raise ConfigurationError(
                f"key_shared_policy=… needs type='key_shared', not {self.type!r}"
            )
        self._check_writing()
        self.make_room()

    def _check_topics(self) -> None:
        if bool(self.topics) == (self.pattern is not None):
            raise ConfigurationError("give topics, or pattern=…: PulsarAdapter('orders', …)")
        for topic in self.topics:
            if not NAME.accepts(topic) or topic != topic.strip():
                raise ConfigurationError(
                    f"topic {topic!r}: give the name of a topic; several one by one or in a list"
                )
        for name in (*self.topics, self.pattern or ""):
            if name.startswith("non-persistent://"):
                raise ConfigurationError(
                    f"topic {name!r}: the broker stores nothing of a topic that is not persistent, and "
                    f"drops what a consumer does not take at once: give a persistent topic"
                )
        if self.pattern is not None:
            if self.admin_url is None:
                raise ConfigurationError(
                    "pattern=… needs admin_url=…: the client cannot list topics by itself"
                )
            read_pattern(self.pattern)

    def _check_writing(self) -> None:
        if self.encryption_keys and self.crypto_key_reader is None:
            raise ConfigurationError("encryption_keys=… needs crypto_key_reader=…")
        if self.retry_topic and not self.is_queue:
            raise ConfigurationError(
                f"retry_topic=True: the broker delays records of shared and key_shared "
                f"subscriptions only, and {self.type} would lose its order: let the handler raise Retry(delay=…)"
            )
        if self.retry_topic and self.crypto_failure_action == "consume":
            raise ConfigurationError(
                "retry_topic=True: nobody could decrypt the copies of what crypto_failure_action="
                "'consume' lets through: leave one of them out"
            )
        if self.retry_topic and not self.may_write:
            raise ConfigurationError(
                "retry_topic=True: messages are encrypted: give encryption_keys=… for their copies"
            )

    @property
    def admin_options(self) -> dict[str, Any]:
        """The arguments of `Admin` behind its URL."""
        connection = self.connection
        is_tls = (self.admin_url or "").startswith("https://")
        return {
            "token": self.admin_token,
            "trusted": connection.hosts,
            "tls": connection.ssl_context() if is_tls else None,
        }

    @property
    def may_write(self) -> bool:
        """Copies of records are as safe as the records, and as useful."""
        if self.crypto_failure_action == "consume":
            return False
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
        most = self.buffer_bytes
        if self.memory_limit is not None:
            most = min(most, max(self.memory_limit // SHARES, 1))
        return min(BATCH_BYTES, most)

    def make_room(self) -> ReadAheadBudget | None:
        """What all partitions share; None: there is no limit.

        Raises:
            ConfigurationError: there is not enough for one partition.
        """
        if self.memory_limit is None:
            return None
        # Not above: whoever reads ranges needs no consumer.
        from consumer_sdk.adapters.pulsar.consumer.read_ahead_budget import ReadAheadBudget

        budget = ReadAheadBudget(
            self.memory_limit,
            self.max_message_size,
            most=self.receiver_queue,
            batch=self.batch_bytes,
        )
        budget.check()
        return budget

    def for_consumer(self, *, is_discovered: bool, queue: int | None = None) -> Any:
        """The native consumer's options.

        Args:
            is_discovered: the topic is newer than the subscription, which is to have all of it.
            queue: messages of its receiver queue, instead of the option's.
        """
        is_latest = self.initial_position == "latest" and not is_discovered
        position = _pulsar.InitialPosition
        made = _pulsar.ConsumerConfiguration()
        made.consumer_type(TYPES[self.type])
        made.subscription_initial_position(position.Latest if is_latest else position.Earliest)
        made.receiver_queue_size(self.receiver_queue if queue is None else queue)
        made.batch_receive_policy(_pulsar.BatchReceivePolicy(BATCH, self.batch_bytes, BATCH_WAIT))
        made.batch_index_ack_enabled(True)
        # By default a seek goes to the entry before, which the broker sends, the client drops, and
        # nobody acks: it would stay in the backlog for ever.
        made.start_message_id_inclusive(True)
        if self.consumer_name is not None:
            made.consumer_name(self.consumer_name)
        if self.crypto_key_reader is not None:
            made.crypto_key_reader(self.crypto_key_reader.cryptoKeyReader)
        self._set_rarer(made)
        return made

    def _set_rarer(self, made: Any) -> None:
        made.crypto_failure_action(ACTIONS[self.crypto_failure_action])
        made.max_pending_chunked_message(self.max_pending_chunked_message)
        made.read_compacted(self.is_read_compacted)
        made.replicate_subscription_state_enabled(self.replicate_subscription_state_enabled)
        for name, text in self.properties.items():
            made.property(name, text)
        if self.key_shared_policy is not None:
            made.key_shared_policy(self.key_shared_policy.policy())


BATCH = 999
"""Messages that are received at a time, beside the one that was waited for."""

AHEAD = 1000
"""Messages that are received ahead of fetches, about."""

POSTED = 2
"""Batches that the loop may leave untaken; with more, a loop that is blocked would fill the memory."""

MOST_AHEAD = AHEAD + (POSTED + 1) * (BATCH + 1)
"""Messages that are received ahead at most, while the loop is busy."""

BATCH_BYTES = 1 << 20
"""Bytes that are received at a time, beside the message that was waited for."""

SHARES = 32
"""Of a limit of memory: one is received at a time at most, beside the message that was waited for."""

BATCH_WAIT = 2
"""Milliseconds that they are waited for."""


KINDS = kinds_of(PulsarOptions)
"""What each of `PulsarAdapter`'s own options takes."""


def parse_url(
    url: str, own: Mapping[str, OptionType] = KINDS, form: str = FORM
) -> tuple[list[str], dict[str, Any]]:
    """Topics, and the keyword arguments of `PulsarAdapter`, or of a reader with other options.

    A topic of another tenant or namespace is written with ``%2F``: ``tenant%2Fspace%2Fname``. With
    ``pattern=`` there is none: ``pulsar://host:6650/?pattern=…``.

    Raises:
        ConfigurationError: the URL is malformed, or an option is unknown or of another kind.
    """
    parts, texts = split_url(url, SCHEMES, form)
    return read_url(parts, texts, kinds_of(Connection) | {**own}, form)


def read_url(
    parts: SplitResult, texts: Mapping[str, str], types: Mapping[str, OptionType], form: str
) -> tuple[list[str], dict[str, Any]]:
    """Topics, and options with the servers.

    Raises:
        ConfigurationError: servers are missing, or an option is unknown or of another kind.
    """
    topics, options = read_server_url(parts, texts, types, form, servers="service_url")
    return topics, {"service_url": f"{parts.scheme}://{parts.netloc}"} | options
