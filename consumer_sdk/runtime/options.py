"""What a `Consumer` is configured with, checked when it is built."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from consumer_sdk.abc import Clock
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import AtPosition, AtTime, Start, StartPoint
from consumer_sdk.runtime.hooks import Hooks, check_hooks
from consumer_sdk.trackers import RetryPolicy

__all__ = ["LoopClock", "Options", "parse_start"]

OUT_OF_RANGE = ("fail", "earliest", "latest")
HOLE_POLICIES = ("pause", "warn", "dead_letter")
RESTARTS = ("resume", "from_start")
LAG_POLICIES = ("warn", "pause", "skip")
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


def parse_start(start: Start | str) -> Start:
    """``"earliest"`` or ``"latest"``, or a start as it is.

    Raises:
        ConfigurationError: anything else.
    """
    if isinstance(start, AtTime | AtPosition) or start in (StartPoint.EARLIEST, StartPoint.LATEST):
        return start
    if start in ("earliest", "latest"):
        return StartPoint(start)
    raise ConfigurationError(
        f"start={start!r}: give 'earliest', 'latest', AtTime(seconds) or AtPosition(position)"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a `Consumer`; its docstring says what each does."""

    retry: RetryPolicy = field(default_factory=RetryPolicy)
    start: Start = StartPoint.EARLIEST
    restart: str = "resume"
    application_id: str | None = None
    out_of_range: str = "fail"
    max_lag: int | None = None
    lag_policy: str = "warn"
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
    hole_policy: str = "pause"
    fetch_records: int = 500
    fetch_bytes: int = 8 * 1024 * 1024
    fetch_wait: float = 0.5
    trees: bool = True
    name_branches: bool = False
    hooks: Hooks | None = None
    clock: Clock = field(default_factory=LoopClock)

    def __post_init__(self) -> None:
        positive = (
            "drain_timeout",
            "flush_count",
            "fetch_wait",
            "fetch_records",
            "fetch_bytes",
            "max_in_flight_bytes",
            "max_retrying",
        )
        optional = (
            "ack_timeout",
            "max_lag",
            "max_in_flight",
            "max_in_flight_per_partition",
            "max_holes",
            "max_hole_age",
        )
        for name in positive + optional:
            value = getattr(self, name)
            if not (value is None and name in optional) and not self._is_positive(value):
                raise ConfigurationError(f"{name}={value!r}: give a number above 0")
        if not self.flush_interval >= 0:
            raise ConfigurationError(
                f"flush_interval={self.flush_interval!r}: give seconds, 0 for at once"
            )
        choices_of = {
            "restart": RESTARTS,
            "out_of_range": OUT_OF_RANGE,
            "lag_policy": LAG_POLICIES,
            "hole_policy": HOLE_POLICIES,
        }
        for name, choices in choices_of.items():
            if getattr(self, name) not in choices:
                raise ConfigurationError(
                    f"{name}={getattr(self, name)!r}: give one of {', '.join(choices)}"
                )
        self._check_application()
        if self.hooks is not None:
            check_hooks(self.hooks)

    def _check_application(self) -> None:
        name: object = self.application_id
        is_text = isinstance(name, str) and 0 < len(name) <= LONGEST_ID
        if name is not None and not is_text:
            raise ConfigurationError(
                f"application_id={name!r:.200}: give a text of 1 to {LONGEST_ID} characters"
            )
        if self.restart == "from_start" and name is None:
            raise ConfigurationError(
                "restart='from_start' starts an application anew once: give it an "
                "application_id=…, and another one whenever it is to start anew"
            )

    @property
    def gives_up_holes(self) -> bool:
        """The oldest unsettled record may have to be dead-lettered."""
        return self.hole_policy == "dead_letter"

    @staticmethod
    def _is_positive(value: object) -> bool:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and value > 0  # type: ignore[operator]  # is_number says so
