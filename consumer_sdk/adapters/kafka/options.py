"""The options of a Kafka adapter, checked when it is built."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from consumer_sdk.adapters.kafka import client_support as _support  # noqa: F401 - is it there?

# isort: split
from aiokafka import AIOKafkaConsumer

from consumer_sdk.adapters.kafka.client.options import client_kinds, connection_options, read_url
from consumer_sdk.adapters.kafka.client.topics import Topic
from consumer_sdk.adapters.urls import shown, split_url, topics_of
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.options import (
    COUNT,
    NAME,
    SECONDS,
    SECONDS_OR_0,
    TEXT,
    check_fields,
    choice,
    endless,
    kinds_of,
    option,
    optional,
)

__all__ = [
    "LEVELS",
    "LONGEST_HOLD",
    "OURS",
    "AcquireModeName",
    "GroupProtocol",
    "InitialPosition",
    "IsolationLevel",
    "KafkaOptions",
    "ReaderOptions",
    "parse_url",
]

OURS = {
    "group_id": "use group=",
    "session_timeout_ms": "use session_timeout= (seconds)",
    "rebalance_timeout_ms": "use rebalance_timeout= (seconds)",
    "heartbeat_interval_ms": "use heartbeat_interval= (seconds)",
    "key_deserializer": "decode in the handler, so that a bad record can be retried and dead-lettered",
    "value_deserializer": "decode in the handler, so that a bad record can be retried and dead-lettered",
    "enable_auto_commit": "what is settled is committed",
    "auto_commit_interval_ms": "use flush_interval= of the Consumer",
    "auto_offset_reset": "use start= and out_of_range= of the Consumer",
    "max_poll_interval_ms": "a slow handler never costs the membership",
    "max_poll_records": "use fetch_records= of the Consumer",
    "consumer_timeout_ms": "a fetch waits for fetch_wait= of the Consumer",
}
"""Client options that the adapter sets itself → what to do instead."""

IsolationLevel = Literal["read_committed", "read_uncommitted"]

LEVELS: Mapping[str, int] = {"read_uncommitted": 0, "read_committed": 1}
"""As Kafka's requests have them."""

GroupProtocol = Literal["classic", "consumer", "auto"]

AcquireModeName = Literal["batch_optimized", "record_limit"]

InitialPosition = Literal["earliest", "latest"]

OF_SHARE_GROUPS = ("acquire_mode", "initial_position", "longest_hold")
"""Options that only a share group has, with `LONGEST_HOLD` and the first of each choice as defaults."""

NOT_OF_SHARE_GROUPS = {
    "group": "a member is in one group: leave group= out, or share_group=",
    "pattern": "a share group has no patterns: name the topics",
    "session_timeout": "the broker decides that (the group's share.session.timeout.ms)",
    "heartbeat_interval": "the broker decides that (the group's share.heartbeat.interval.ms)",
    "group_instance_id": "a share group has no static members",
    "partition_assignment_strategy": "the broker assigns (its group.share.assignors)",
}
"""Options that a share group cannot keep → why, and what to do."""

LONGEST_HOLD = 86_400.0
"""Seconds."""

OF_THE_BROKER = {
    "session_timeout": "group.consumer.session.timeout.ms, or the group's consumer.session.timeout.ms",
    "heartbeat_interval": "group.consumer.heartbeat.interval.ms, or the group's "
    "consumer.heartbeat.interval.ms",
    "partition_assignment_strategy": "group.consumer.assignors",
}
"""Options of classic groups → the broker's setting that a group of the consumer protocol has instead."""

OF_KAFKA = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics of the broker itself."""

FORM = "write kafka://host:port[,host:port]/topic[,topic]?group=name&option=value"

SESSION = 10.0
"""Seconds of a classic member's session, if nothing else is given."""

JOIN_MARGIN = 10_000
"""Milliseconds that a join may take beyond the rebalance timeout."""

LEAST_BUDGET = 0.5
"""Seconds that a revoke needs at the very least."""

REJOIN = 1.0
"""Seconds beyond two heartbeats that a rebalance of a classic group takes at the least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """What the adapter and the range reader have both: what is read, where, and how."""

    topics: Sequence[str]
    servers: Sequence[str]
    group: str | None = option(optional(NAME))
    pattern: str | None = option(optional(TEXT))
    isolation_level: IsolationLevel = option(choice(*get_args(IsolationLevel)))
    connect_timeout: float = option(SECONDS)
    client_id: str = option(NAME)
    max_batch_bytes: int = option(COUNT)
    client_options: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions(ReaderOptions):
    """What a Kafka adapter is configured with; `KafkaAdapter`'s docstring says what each does."""

    protocol: GroupProtocol = option(choice(*get_args(GroupProtocol)))
    session_timeout: float | None = option(optional(SECONDS))
    rebalance_timeout: float = option(SECONDS)
    heartbeat_interval: float | None = option(optional(SECONDS))
    share_group: str | None = option(optional(NAME), default=None)
    acquire_mode: AcquireModeName = option(
        choice(*get_args(AcquireModeName)), default="batch_optimized"
    )
    initial_position: InitialPosition = option(
        choice(*get_args(InitialPosition)), default="earliest"
    )
    longest_hold: float = option(endless(SECONDS_OR_0), default=LONGEST_HOLD)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.share_group is not None:
            self._check_share_group()
            return
        self._check_no_share_group()
        self._check_topics()
        self._check_protocol()
        self._check_times()

    def _check_share_group(self) -> None:
        given = {**self.client_options, "group": self.group, "pattern": self.pattern}
        given |= {"session_timeout": self.session_timeout}
        given |= {"heartbeat_interval": self.heartbeat_interval}
        for name, why in NOT_OF_SHARE_GROUPS.items():
            if given.get(name) is not None:
                raise ConfigurationError(
                    f"{name}={given[name]!r} beside share_group={self.share_group!r}: {why}"
                )
        if self.protocol != "classic":
            raise ConfigurationError(
                f"protocol={self.protocol!r} beside share_group={self.share_group!r}: a share group has a "
                f"protocol of its own: leave protocol= out"
            )
        if self.isolation_level != "read_committed":
            raise ConfigurationError(
                f"isolation_level={self.isolation_level!r} beside share_group={self.share_group!r}: it is the "
                f"group's: leave it out, and set share.isolation.level of the group at the broker"
            )
        if not self.topics:
            raise ConfigurationError("KafkaAdapter needs a topic: KafkaAdapter('orders', …)")

    def _check_no_share_group(self) -> None:
        defaults: dict[str, Any] = {"acquire_mode": "batch_optimized"}
        defaults |= {"initial_position": "earliest", "longest_hold": LONGEST_HOLD}
        for name in OF_SHARE_GROUPS:
            if getattr(self, name) != defaults[name]:
                advice = (
                    "use start= of the Consumer" if name == "initial_position" else "leave it out"
                )
                raise ConfigurationError(
                    f"{name}={getattr(self, name)!r} is of share groups alone: give share_group= instead of "
                    f"group=, or {advice}"
                )

    def _check_topics(self) -> None:
        if not self.topics and self.pattern is None:
            raise ConfigurationError(
                "KafkaAdapter needs a topic: KafkaAdapter('orders', …), or KafkaAdapter(pattern=…)"
            )
        if self.topics and self.pattern is not None:
            raise ConfigurationError(
                f"pattern={self.pattern!r} beside the topics {', '.join(self.topics)}: give either "
                f"the topics, or a pattern that matches them all"
            )
        if self.pattern is not None and not self.pattern.strip():
            raise ConfigurationError(f"pattern={self.pattern!r} is empty: '.*' matches all topics")
        if self.pattern is not None and self.protocol != "consumer":
            self._check_pattern(self.pattern)

    @staticmethod
    def _check_pattern(pattern: str) -> None:
        """One that the broker evaluates is an RE2 expression, and the broker's to check."""
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigurationError(
                f"pattern={pattern!r} is no regular expression: {error}; write one that matches the "
                f"whole name of each topic, such as 'orders-.*'"
            ) from error

    def _check_protocol(self) -> None:
        if self.protocol != "classic" and self.group is None:
            raise ConfigurationError(
                f"protocol={self.protocol!r} is that of a group: give group= too, or no protocol="
            )
        given = {"session_timeout": self.session_timeout, **self.client_options}
        given["heartbeat_interval"] = self.heartbeat_interval
        for name, setting in OF_THE_BROKER.items():
            if self.protocol == "consumer" and given.get(name) is not None:
                raise ConfigurationError(
                    f"{name}= has no effect with protocol='consumer': the broker decides that ({setting})"
                )

    def _check_times(self) -> None:
        if self.protocol != "consumer" and self.heartbeat * 2 > self.session:
            raise ConfigurationError(
                f"heartbeat_interval={self.heartbeat} leaves no room for a lost "
                f"heartbeat in session_timeout={self.session}: give at most half of it"
            )
        if self.request_timeout < self.rebalance_timeout:
            raise ConfigurationError(
                f"request_timeout_ms={self.request_timeout * 1000:.0f} is shorter than "
                f"rebalance_timeout={self.rebalance_timeout}: joining waits that long for the "
                f"other members; give more, or shorten rebalance_timeout"
            )
        if self.revoke_budget < LEAST_BUDGET:
            raise ConfigurationError(
                f"rebalance_timeout={self.rebalance_timeout} is too short: after one "
                f"heartbeat_interval ({self.heartbeat:.3g} s) and a margin it leaves "
                f"{max(self.revoke_budget, 0):.1f} s to drain; give more"
            )
        least = 2 * self.heartbeat + REJOIN
        if self.protocol != "consumer" and self.rebalance_timeout < least:
            raise ConfigurationError(
                f"rebalance_timeout={self.rebalance_timeout} is shorter than two heartbeats and "
                f"{REJOIN:.3g} s ({least:.3g} s): a member hears of a rebalance by its heartbeat, and if one is lost "
                f"it would be out of the group before the next; give more, or a shorter heartbeat_interval"
            )

    def with_protocol(self, protocol: Literal["classic", "consumer"]) -> KafkaOptions:
        """The same for a group whose protocol is known by now; what the other one has is left out."""
        if protocol == "classic":
            return replace(self, protocol=protocol)
        rest = {k: v for k, v in self.client_options.items() if k not in OF_THE_BROKER}
        return replace(
            self,
            protocol=protocol,
            session_timeout=None,
            heartbeat_interval=None,
            client_options=rest,
        )

    @property
    def is_chosen_by_broker(self) -> bool:
        """The broker evaluates the pattern."""
        return self.pattern is not None and self.protocol == "consumer"

    def chooses(self, topic: Topic) -> bool:
        """The whole name of a topic is as ``pattern`` says; Kafka's own topics are left out."""
        if topic.error or self.pattern is None:
            return False
        if self.is_chosen_by_broker:
            return True
        if topic.is_internal and self._leaves_out_internal:
            return False
        return re.fullmatch(self.pattern, topic.name) is not None

    @property
    def _leaves_out_internal(self) -> bool:
        return bool(self.client_options.get("exclude_internal_topics", True))

    @property
    def unread_topics(self) -> frozenset[str]:
        """Topics that a pattern does not mean, whoever evaluates it."""
        return OF_KAFKA if self.pattern is not None and self._leaves_out_internal else frozenset()

    @property
    def session(self) -> float:
        """Seconds that a classic member lives without a heartbeat."""
        return SESSION if self.session_timeout is None else self.session_timeout

    @property
    def heartbeat(self) -> float:
        """Seconds between a classic member's heartbeats."""
        shortest = min(self.session / 3, self.rebalance_timeout / 3, 3.0)
        return shortest if self.heartbeat_interval is None else self.heartbeat_interval

    @property
    def revoke_budget(self) -> float:
        """Seconds that a revoke may take."""
        # A member hears of a rebalance up to one heartbeat late, and rejoining takes a moment. In a group
        # of the consumer protocol the time begins with the answer that takes the partitions back.
        margin = min(1.0, self.rebalance_timeout * 0.1)
        late = 0.0 if self.protocol == "consumer" else self.heartbeat
        return self.rebalance_timeout - late - margin

    @property
    def request_timeout(self) -> float:
        """Seconds that one question to the broker may take."""
        default = max(40_000, self.rebalance_timeout * 1000 + JOIN_MARGIN)
        return float(self.client_options.get("request_timeout_ms", default)) / 1000

    def for_connection(self) -> dict[str, Any]:
        """The options that any client of these servers needs."""
        names = ("security_protocol", "ssl_context", "request_timeout_ms", "retry_backoff_ms")
        chosen = {
            name: value
            for name, value in self.client_options.items()
            if name in names or name.startswith("sasl_")
        }
        return {"bootstrap_servers": list(self.servers), "client_id": self.client_id} | chosen

    def for_cluster(self) -> dict[str, Any]:
        """The options of the connections; what is none of theirs does no harm."""
        return connection_options(
            {
                "metadata_max_age_ms": 30_000,
                **self.client_options,
                "request_timeout_ms": round(self.request_timeout * 1000),
                "bootstrap_servers": list(self.servers),
                "client_id": self.client_id,
            }
        )

    @property
    def level(self) -> int:
        """The isolation level as Kafka's requests have it."""
        return LEVELS[self.isolation_level]


def parse_url(url: str) -> tuple[list[str], dict[str, Any]]:
    """Topics, and the keyword arguments of `KafkaAdapter`.

    Raises:
        ConfigurationError: the URL is malformed, or an option is unknown or of another kind.
    """
    parts, texts = split_url(url, {"kafka"}, FORM)
    if not topics_of(parts.path) and "pattern" not in texts:
        raise ConfigurationError(
            f"{shown(url)}: the topics are missing in the URL: {FORM}, or "
            f"kafka://host:port/?pattern=expression&group=name"
        )
    kinds = client_kinds(AIOKafkaConsumer.__init__) | kinds_of(KafkaOptions)
    return read_url(parts, texts, kinds, FORM)
