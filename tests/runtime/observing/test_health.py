"""A consumer's health: facts in, a verdict out."""

from __future__ import annotations

import pytest

from consumer_sdk.records import Partition
from consumer_sdk.runtime.observing.health import Health, HealthInputs, State, assess


def test_running_consumer_is_live_and_ready() -> None:
    """Nothing is wrong, nothing is said."""
    assert assess(HealthInputs(state="running")) == Health(live=True, ready=True)


@pytest.mark.parametrize(
    "state, live",
    [("new", True), ("opening", True), ("stopping", True), ("closed", False), ("failed", False)],
)
def test_other_states_are_not_ready(state: State, *, live: bool) -> None:
    """Only what has ended needs a restart."""
    assert assess(HealthInputs(state=state)) == Health(live, False, (f"the consumer is {state}",))


def test_failure_is_said() -> None:
    """Its text comes after the state."""
    found = assess(HealthInputs(state="failed", failure="no disk"))
    assert found == Health(
        live=False, ready=False, reasons=("the consumer is failed", "it failed: no disk")
    )


@pytest.mark.parametrize("turned, stuck", [(10.0, False), (10.1, True)])
def test_event_loop_that_does_not_turn_is_dead(turned: float, *, stuck: bool) -> None:
    """From ten seconds on, and only while it runs."""
    reasons = ("its event loop has not turned for 10 s",) if stuck else ()
    found = assess(HealthInputs(state="running", turned=turned))
    assert found == Health(live=not stuck, ready=not stuck, reasons=reasons)
    assert assess(HealthInputs(state="opening", turned=turned)).live


def test_gated_consumer_is_live_and_not_ready() -> None:
    """The broker has not confirmed what it holds."""
    found = assess(HealthInputs(state="running", is_gated=True))
    reason = "the broker has not confirmed yet that its partitions are still its own"
    assert found == Health(live=True, ready=False, reasons=(reason,))


@pytest.mark.parametrize("needs_progress", [False, True])
def test_stalled_partition_is_said(*, needs_progress: bool) -> None:
    """It needs a restart only if whoever asks wants progress."""
    inputs = HealthInputs(state="running", stalled=[(Partition("s", "1"), 61.4)])
    found = assess(inputs, needs_progress=needs_progress)
    assert found == Health(live=not needs_progress, ready=True, reasons=("s/1 is pinned for 61 s",))
    assert assess(HealthInputs(state="running"), needs_progress=needs_progress).live
    assert assess(inputs).live
