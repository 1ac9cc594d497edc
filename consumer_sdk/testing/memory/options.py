"""The options of a `MemoryAdapter`: it is a group's member or a subscriber."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.options import (
    COUNT,
    FLAG,
    NAMES,
    TEXT,
    WHOLE_NUMBER,
    OptionType,
    check_options,
    choice,
    optional,
)
from consumer_sdk.records import Capabilities, Kind
from consumer_sdk.testing.memory.holding import ENTRIES, NUMBERS, Positions
from consumer_sdk.testing.memory.subscription import CursorKind

__all__ = ["ConsumerKind", "Options"]

ConsumerKind = Literal["group"] | CursorKind


def _is_size(value: object) -> bool:
    return WHOLE_NUMBER.accepts(value) and isinstance(value, int) and value >= 0


TYPES: Mapping[str, OptionType] = {
    "group": optional(TEXT),
    "subscription": choice("group", *get_args(CursorKind)),
    "metadata_size": replace(COUNT, wanted="a whole number, 0 or more", accepts=_is_size),
    "prefetch": COUNT,
    "batch_index_acks": FLAG,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a `MemoryAdapter`; its docstring says what each does."""

    streams: tuple[str, ...]
    group: str | None
    subscription: ConsumerKind
    metadata_size: int
    prefetch: int
    batch_index_acks: bool

    def __post_init__(self) -> None:
        if not self.streams:
            raise ConfigurationError("MemoryAdapter: name at least one stream")
        check_options(self, TYPES, "MemoryAdapter")
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
