"""The options that both kinds of tracker take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypedDict

from consumer_sdk.options import (
    LEAST_0,
    SECONDS,
    SECONDS_OR_0,
    OptionType,
    endless,
    optional,
)
from consumer_sdk.trackers.retry import RetryPolicy

__all__ = ["TYPES", "TrackerOptions"]


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
            tests.
    """

    policy: RetryPolicy | None
    flush_interval: float
    ack_timeout: float | None
    identity: str | None
    random: Callable[[], float]
    chunk_bits: int


TYPES: Mapping[str, OptionType] = {
    "flush_interval": endless(SECONDS_OR_0),
    "ack_timeout": optional(endless(SECONDS)),
    "chunk_bits": LEAST_0,
}
"""What the options take that could be nonsense."""
