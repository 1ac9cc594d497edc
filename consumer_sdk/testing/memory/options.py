"""The options of a `MemoryAdapter`: it is a group's member or a subscriber."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.options import (
    COUNT,
    FLAG,
    LEAST_0,
    NAMES,
    TEXT,
    check_fields,
    choice,
    option,
    optional,
)
from consumer_sdk.records import Capabilities, Kind
from consumer_sdk.testing.memory.holding import ENTRIES, NUMBERS, Positions
from consumer_sdk.testing.memory.subscription import CursorKind

__all__ = ["ConsumerKind", "Options"]

ConsumerKind = Literal["group"] | CursorKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a `MemoryAdapter`; its docstring says what each does."""

    streams: tuple[str, ...]
    group: str | None = option(optional(TEXT))
    subscription: ConsumerKind = option(choice("group", *get_args(CursorKind)))
    metadata_size: int = option(LEAST_0)
    prefetch: int = option(COUNT)
    batch_index_acks: bool = option(FLAG)

    def __post_init__(self) -> None:
        if not self.streams:
            raise ConfigurationError("MemoryAdapter: name at least one stream")
        check_fields(self, "MemoryAdapter")
        NAMES.check("streams", self.streams, "MemoryAdapter")
        if self.cursor_kind is not None and self.group is None:
            raise ConfigurationError(
                f"MemoryAdapter(subscription={self.subscription!r}): name it with group=…"
            )

    @property
    def cursor_kind(self) -> CursorKind | None:
        """How the broker sends records; None for a group, which reads by position."""
        return None if self.subscription == "group" else self.subscription

    @property
    def is_queue(self) -> bool:
        """Several consumers share each partition."""
        return self.subscription in ("shared", "key_shared")

    @property
    def positions(self) -> Positions:
        """How positions look."""
        return NUMBERS if self.cursor_kind is None else ENTRIES

    @property
    def capabilities(self) -> Capabilities:
        """What such a consumer can do."""
        if self.cursor_kind is None:
            size = self.metadata_size if self.group else 0
            return Capabilities(commits=self.group is not None, metadata_size=size)
        return Capabilities(
            kind=Kind.QUEUE if self.is_queue else Kind.LOG,
            wants_settled=True,
            keeps_key_order=self.subscription != "shared",
        )
