"""The simulation can fail: what is broken on purpose is found, and named, within some seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from consumer_sdk.records import Assignment, Checkpoint
from consumer_sdk.runtime.starts import lookup as inquiry
from consumer_sdk.trackers import decode_checkpoint
from tests.sim.fakes import SimStore
from tests.sim.seeds import RUNNER

pytestmark = pytest.mark.sim

ENOUGH = 100
"""Seeds within which each is found; the first ten find them today."""


def first_error() -> str:
    """What the first seed that fails says."""
    failures = (RUNNER.try_seed(seed) for seed in range(ENOUGH))
    return next((failure.error for failure in failures if failure), "all seeds pass")


def test_attempts_that_a_restart_forgets_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that kills its process would be delivered for ever."""

    def without_attempts(text: str, **options: Any) -> Checkpoint:
        attempts: Mapping[Any, tuple[int, float]] = {}
        return replace(decode_checkpoint(text, **options), attempts=attempts)

    monkeypatch.setattr(inquiry, "decode_checkpoint", without_attempts)
    assert "failures of it are known" in first_error()


def test_claims_that_are_never_forgotten_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a closed consumer has in the air could be written over what its successor has."""

    async def forget(_self: SimStore, _assignments: Sequence[Assignment]) -> None:
        """Keeps them."""

    monkeypatch.setattr(SimStore, "forget", forget)
    assert "were not forgotten" in first_error()
