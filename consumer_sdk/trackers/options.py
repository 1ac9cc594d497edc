"""The options that both kinds of tracker take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypedDict

from consumer_sdk.options import (
    FINITE,
    SECONDS,
    SECONDS_OR_0,
    TEXT,
    WHOLE_NUMBER,
    OptionType,
    endless,
    instance,
    optional,
)
from consumer_sdk.trackers.retry import RetryPolicy

__all__ = ["CALLABLE", "DELAY", "TYPES", "TrackerOptions", "check_moment"]


class TrackerOptions(TypedDict, total=False):
    """Options of `WatermarkTracker` and of `QueueTracker`; each has a default.

    Attributes:
        policy: retries and their limit; `RetryPolicy`'s defaults.
        flush_interval: seconds between flushes, 0.1; 0 for at once.
        ack_timeout: seconds from hand-out after which a delivery counts as failed; None (the
            default) for off.
        identity: changes when the stream is deleted and made again; kept in checkpoints. None
            where that is not known.
        random: numbers in [0, 1) for the jitter.
        chunk_bits: a chunk of the window holds ``1 << chunk_bits`` records; 10, and smaller in
            tests; at most ``MOST_BITS``.
    """

    policy: RetryPolicy | None
    flush_interval: float
    ack_timeout: float | None
    identity: str | None
    random: Callable[[], float]
    chunk_bits: int


MOST_BITS = 20
"""A chunk has a byte for each of its records from the start."""

CALLABLE = OptionType("a function", callable)
DELAY = optional(SECONDS_OR_0)
MOMENT = replace(FINITE, wanted="the monotonic clock's seconds")
TYPES: Mapping[str, OptionType] = {
    "flush_interval": endless(SECONDS_OR_0),
    "ack_timeout": optional(endless(SECONDS)),
    "policy": optional(instance(RetryPolicy, "a RetryPolicy, such as RetryPolicy(max_attempts=5)")),
    "identity": optional(TEXT),
    "random": CALLABLE,
    "chunk_bits": OptionType(
        f"a whole number from 0 to {MOST_BITS}",
        lambda value: WHOLE_NUMBER.accepts(value) and 0 <= value <= MOST_BITS,
    ),
}
"""What the options take that could be nonsense."""


def check_moment(now: float, what: str) -> None:
    """As ``MOMENT.check``, in a tenth of the time where all is well: records pay for it.

    Raises:
        ConfigurationError: it is no time.
    """
    if type(now) is not float or now - now:  # of a NaN and of infinity that is a NaN, which is true
        MOMENT.check("now", now, what)
