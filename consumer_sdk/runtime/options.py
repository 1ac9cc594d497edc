"""What a `Consumer` is configured with, checked when it is built."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from consumer_sdk.abc import Clock
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.options import (
    COUNT,
    FLAG,
    SECONDS,
    SECONDS_OR_0,
    TEXT,
    OptionType,
    check_options,
    choice,
    endless,
    instance,
    optional,
)
from consumer_sdk.records import AtPosition, AtTime, Start, StartPoint
from consumer_sdk.runtime.dispatch.decoding import DECODE, Decode
from consumer_sdk.runtime.dispatch.lanes import Ordering
from consumer_sdk.runtime.hooks import Hooks, check_hooks
from consumer_sdk.trackers import RetryPolicy

__all__ = [
    "RUN_TYPES",
    "HolePolicy",
    "LagPolicy",
    "LoopClock",
    "Options",
    "OutOfRange",
    "Restart",
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
LONG = endless(SECONDS)
TYPES: Mapping[str, OptionType] = {
    "retry": instance(RetryPolicy, "a RetryPolicy, such as RetryPolicy(max_attempts=5)"),
    "decode": DECODE,
    "restart": choice(*get_args(Restart)),
    "application_id": optional(
        OptionType(
            f"a text of 1 to {LONGEST_ID} characters",
            lambda value: TEXT.accepts(value) and 0 < len(value) <= LONGEST_ID,
        )
    ),
    "out_of_range": OptionType(
        "'fail', 'earliest', 'latest' or AtTime(seconds or datetime)",
        lambda value: isinstance(value, AtTime) or value in get_args(OutOfRange),
    ),
    "unreadable": choice(*get_args(Unreadable)),
    "max_lag": optional(COUNT),
    "lag_policy": choice(*get_args(LagPolicy)),
    "flush_interval": endless(SECONDS_OR_0),
    "flush_count": COUNT,
    "ack_timeout": optional(LONG),
    "drain_timeout": LONG,
    "max_in_flight": optional(COUNT),
    "max_in_flight_per_partition": optional(COUNT),
    "max_in_flight_bytes": COUNT,
    "max_retrying": COUNT,
    "max_holes": optional(COUNT),
    "max_hole_age": optional(LONG),
    "hole_policy": choice(*get_args(HolePolicy)),
    "fetch_records": COUNT,
    "fetch_bytes": COUNT,
    "fetch_wait": LONG,
    "trees": FLAG,
    "name_branches": FLAG,
    "clock": OptionType("an object with the methods monotonic() and wall()", _is_clock),
}
"""What each option of a `Consumer` takes."""

RUN_TYPES: Mapping[str, OptionType] = {
    "concurrency": COUNT,
    "batch_size": optional(COUNT),
    "batch_wait": endless(SECONDS_OR_0),
}
"""What each option of `Consumer.run` takes."""


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
        names = [each.value for each in Ordering]
        raise ConfigurationError(
            f"run(ordering={ordering!r}): give {choice(*names).wanted}"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a `Consumer`; its docstring says what each does."""

    retry: RetryPolicy = field(default_factory=RetryPolicy)
    decode: Decode | None = None
    start: Start = StartPoint.EARLIEST
    restart: Restart = "resume"
    application_id: str | None = None
    out_of_range: OutOfRange | AtTime = "fail"
    unreadable: Unreadable = "fail"
    max_lag: int | None = None
    lag_policy: LagPolicy = "warn"
    flush_interval: float = 0.1
    flush_count: int = 1000
    ack_timeout: float | None = None
    drain_timeout: float = 5.0
    max_in_flight: int | None = None
    max_in_flight_per_partition: int | None = None
    max_in_flight_bytes: int = 64 * 1024 * 1024
    max_retrying: int = 10_000
    max_holes: int | None = 10_000
    max_hole_age: float | None = None
    hole_policy: HolePolicy = "pause"
    fetch_records: int = 500
    fetch_bytes: int = 8 * 1024 * 1024
    fetch_wait: float = 0.5
    trees: bool = True
    name_branches: bool = False
    hooks: Hooks | None = None
    clock: Clock = field(default_factory=LoopClock)

    def __post_init__(self) -> None:
        check_options(self, TYPES)
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
