"""What a `Consumer` is configured with, checked when it is built."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import Literal, get_args

from consumer_sdk.abc import Clock
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.options import (
    ANYTHING,
    COUNT,
    FLAG,
    SECONDS,
    SECONDS_OR_0,
    TEXT,
    OptionType,
    check_fields,
    choice,
    endless,
    instance,
    option,
    optional,
)
from consumer_sdk.records import AtPosition, AtTime, Start, StartPoint
from consumer_sdk.runtime.dispatch.decoding import DECODE, Decode
from consumer_sdk.runtime.dispatch.lanes import Ordering
from consumer_sdk.runtime.hooks import Hooks, check_hooks
from consumer_sdk.trackers import RetryPolicy

__all__ = [
    "HolePolicy",
    "LagPolicy",
    "LoopClock",
    "Options",
    "OutOfRange",
    "Restart",
    "RunOptions",
    "StartName",
    "Unreadable",
    "parse_ordering",
    "parse_start",
]

StartName = Literal["earliest", "latest"]
Restart = Literal["resume", "from_start"]
OutOfRange = Literal["fail", "earliest", "latest"]
Unreadable = Literal["fail", "dead_letter"]
LagPolicy = Literal["warn", "pause", "skip"]
HolePolicy = Literal["pause", "warn", "dead_letter"]

LONGEST_ID = 100
"""Characters of an application's id: it is in every checkpoint, and a commit has little room."""


class LoopClock:
    """The running event loop's time, and the system's wall clock."""

    def monotonic(self) -> float:
        """The loop's time in seconds."""
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        """Seconds since the epoch."""
        return time.time()


def _is_clock(value: object) -> bool:
    return all(callable(getattr(value, name, None)) for name in ("monotonic", "wall"))


def _is_start(value: object) -> bool:
    is_point = value is StartPoint.EARLIEST or value is StartPoint.LATEST
    return is_point or isinstance(value, AtTime | AtPosition)


START = OptionType(
    "'earliest', 'latest', AtTime(seconds or datetime) or AtPosition(position)", _is_start
)
APPLICATION_ID = OptionType(
    f"a text of 1 to {LONGEST_ID} characters",
    lambda value: TEXT.accepts(value) and 0 < len(value) <= LONGEST_ID,
)
OUT_OF_RANGE = OptionType(
    "'fail', 'earliest', 'latest' or AtTime(seconds or datetime)",
    lambda value: isinstance(value, AtTime) or value in get_args(OutOfRange),
)
RETRY = instance(RetryPolicy, "a RetryPolicy, such as RetryPolicy(max_attempts=5)")
CLOCK = OptionType("an object with the methods monotonic() and wall()", _is_clock)
HOOKS = replace(ANYTHING, wanted="an object with some of the methods of Hooks, or None")
LONG = endless(SECONDS)
ORDERING = replace(
    choice(*(each.value for each in Ordering)),
    accepts=lambda value: isinstance(value, Ordering),
)


def parse_start(start: Start | str) -> Start:
    """``"earliest"`` or ``"latest"``, or a start as it is.

    Raises:
        ConfigurationError: anything else.
    """
    if isinstance(start, str) and start in get_args(StartName):
        return StartPoint(start)
    START.check("start", start)
    return start  # type: ignore[return-value]  # START says so


def parse_ordering(ordering: Ordering | str) -> Ordering:
    """``"key"``, ``"partition"`` or ``"none"``, or an ordering as it is.

    Raises:
        ConfigurationError: anything else.
    """
    try:
        return Ordering(ordering)
    except ValueError as error:
        raise ConfigurationError(f"run(ordering={ordering!r}): give {ORDERING.wanted}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a `Consumer`; its docstring says what each does, its signature has the defaults."""

    retry: RetryPolicy = option(RETRY, default_factory=RetryPolicy)
    decode: Decode | None = option(DECODE)
    start: Start = option(START)
    restart: Restart = option(choice(*get_args(Restart)))
    application_id: str | None = option(optional(APPLICATION_ID))
    out_of_range: OutOfRange | AtTime = option(OUT_OF_RANGE)
    unreadable: Unreadable = option(choice(*get_args(Unreadable)))
    max_lag: int | None = option(optional(COUNT))
    lag_policy: LagPolicy = option(choice(*get_args(LagPolicy)))
    flush_interval: float = option(endless(SECONDS_OR_0))
    flush_count: int = option(COUNT)
    ack_timeout: float | None = option(optional(LONG))
    drain_timeout: float = option(LONG)
    max_in_flight: int | None = option(optional(COUNT))
    max_in_flight_per_partition: int | None = option(optional(COUNT))
    max_in_flight_bytes: int = option(COUNT)
    max_retrying: int = option(COUNT)
    max_holes: int | None = option(optional(COUNT))
    max_hole_age: float | None = option(optional(LONG))
    hole_policy: HolePolicy = option(choice(*get_args(HolePolicy)))
    fetch_records: int = option(COUNT)
    fetch_bytes: int = option(COUNT)
    fetch_wait: float = option(LONG)
    trees: bool = option(FLAG)
    name_branches: bool = option(FLAG)
    hooks: Hooks | None = option(HOOKS)
    clock: Clock = option(CLOCK, default_factory=LoopClock)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.restart == "from_start" and self.application_id is None:
            raise ConfigurationError(
                "restart='from_start' starts an application anew once: give it an "
                "application_id=…, and another one whenever it is to start anew"
            )
        if self.hooks is not None:
            check_hooks(self.hooks)

    @property
    def gives_up_holes(self) -> bool:
        """The oldest unsettled record may have to be dead-lettered."""
        return self.hole_policy == "dead_letter"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of `Consumer.run`; its docstring says what each does, its signature has the defaults."""

    concurrency: int = option(COUNT)
    ordering: Ordering = option(ORDERING)
    batch_size: int | None = option(optional(COUNT))
    batch_wait: float = option(endless(SECONDS_OR_0))
    handle_signals: bool = option(FLAG)

    def __post_init__(self) -> None:
        check_fields(self, "run")
