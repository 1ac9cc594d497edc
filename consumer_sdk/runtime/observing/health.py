"""Judges whether a consumer works, for probes; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from consumer_sdk.records import Partition

__all__ = ["FAILED", "Health", "HealthInputs", "State", "assess"]

State = Literal["new", "opening", "running", "stopping", "closed", "failed"]
"""What a consumer is doing: it goes through these from left to right, and ends in one of the last."""

FAILED = "it failed: "
"""What a reason begins with that has an error's type and text behind it."""
TURN = 10.0
"""Seconds without a turn of the event loop after which a consumer is taken for dead."""


@dataclass(frozen=True, slots=True)
class Health:
    """The answer to a liveness and to a readiness probe.

    Attributes:
        live: the consumer's tasks run and its event loop turns, so the process need not be
            restarted.
        ready: the consumer is open, has joined its group, and may hand out records.
        reasons: one line for each thing that is wrong.
    """

    live: bool
    ready: bool
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthInputs:
    """What is known of a consumer at one moment.

    Attributes:
        state: what it is doing.
        failure: what made it stop by itself, as text; None for nothing.
        turned: seconds since the event loop turned last.
        is_gated: nothing is handed out, since others may have taken over what it holds.
        stalled: partitions whose position has been pinned for too long, with the seconds.
    """

    state: State
    failure: str | None = None
    turned: float = 0.0
    is_gated: bool = False
    stalled: Sequence[tuple[Partition, float]] = ()


def assess(inputs: HealthInputs, *, needs_progress: bool = False) -> Health:
    """Judges whether the consumer is live, and whether it is ready.

    Args:
        needs_progress: a stalled partition is a reason to restart the process.
    """
    is_stuck = inputs.turned > TURN and inputs.state == "running"
    reasons = [f"the consumer is {inputs.state}"] if inputs.state != "running" else []
    if inputs.failure is not None:
        reasons.append(f"{FAILED}{inputs.failure}")
    if is_stuck:
        reasons.append(f"its event loop has not turned for {inputs.turned:.0f} s")
    if inputs.is_gated:
        reasons.append("the broker has not confirmed yet that its partitions are still its own")
    reasons += [f"{where} is pinned for {age:.0f} s" for where, age in inputs.stalled]
    is_dead = inputs.state in {"failed", "closed"} or is_stuck
    return Health(
        live=not is_dead and not (needs_progress and inputs.stalled),
        ready=inputs.state == "running" and not is_stuck and not inputs.is_gated,
        reasons=tuple(reasons),
    )
