"""The options of a range reader, checked when it is built."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from consumer_sdk.adapters.kafka.options import connection_options
from consumer_sdk.errors import ConfigurationError

__all__ = ["OURS", "SECONDS", "RangeOptions"]

OURS = {
    "request_timeout_ms": "read_timeout= (seconds)",
    "api_version": "nothing",
    "loop": "nothing",
}
"""Client options that the reader sets itself → what to use."""

SECONDS = ("connect_timeout", "read_timeout", "seen_within")
LEVELS = {"read_uncommitted": 0, "read_committed": 1}
CHOICES = "'orders', several in a list, pattern='orders-.*', or partitions={'orders': [0, 1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeOptions:
    """What a range reader is configured with; `KafkaRanges`' docstring says what each does."""

    topics: Sequence[str]
    pattern: str | None
    partitions: Mapping[str, Collection[int]] | None
    servers: Sequence[str]
    group: str | None
    isolation_level: str
    connect_timeout: float
    read_timeout: float
    seen_within: float
    require_topics: bool
    client_id: str
    client_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._check_streams()
        if self.group is not None and not self.group.strip():
            raise ConfigurationError(f"group={self.group!r}: give a name, or None for nobody's")
        if self.isolation_level not in LEVELS:
            raise ConfigurationError(
                f"isolation_level={self.isolation_level!r}: give 'read_committed' or "
                f"'read_uncommitted'"
            )
        for name in SECONDS:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise ConfigurationError(f"{name}={value!r}: give seconds, above 0")

    def _check_streams(self) -> None:
        given = [bool(self.topics), self.pattern is not None, self.partitions is not None]
        if sum(given) != 1:
            raise ConfigurationError(f"KafkaRanges reads one choice of topics: give {CHOICES}")
        if not isinstance(self.partitions, Mapping | None):
            raise ConfigurationError(f"partitions={self.partitions!r}: give {CHOICES}")
        for topic in self.names:
            if not topic or not isinstance(topic, str):
                raise ConfigurationError(f"topic {topic!r}: give the name of a topic")
        for topic, numbers in (self.partitions or {}).items():
            if not numbers or not all(type(n) is int and n >= 0 for n in numbers):
                raise ConfigurationError(
                    f"partitions of {topic!r}: {numbers!r}; give numbers, from 0 up"
                )
        self._check_pattern()

    def _check_pattern(self) -> None:
        try:
            re.compile(self.pattern or "")
        except re.error as error:
            raise ConfigurationError(
                f"pattern={self.pattern!r} is no regular expression: {error}"
            ) from error

    @property
    def names(self) -> Sequence[str]:
        """The topics that are named; none where a pattern chooses."""
        return list(self.topics or self.partitions or ())

    @property
    def level(self) -> int:
        """The isolation level as Kafka's requests have it."""
        return LEVELS[self.isolation_level]

    def for_client(self) -> dict[str, Any]:
        """The options of the client; a connection that hangs is given up while time is left."""
        return connection_options(
            {
                **self.client_options,
                "bootstrap_servers": list(self.servers),
                "client_id": self.client_id,
                "request_timeout_ms": max(round(self.read_timeout * 500), 1),
            }
        )

    def for_consumer(self) -> dict[str, Any]:
        """The options of a consumer without a group."""
        return self.for_client() | {
            "isolation_level": self.isolation_level,
            "enable_auto_commit": False,
            "auto_offset_reset": "none",
        }
