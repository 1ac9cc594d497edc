"""Hypothesis' tests, at length: `make test` runs each with few examples."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHOICE = "hypothesis and not campaign and not spark"


@pytest.mark.campaign
def test_each_property_holds_for_five_hundred_examples() -> None:
    """Those that say themselves how many they take have as many as they have always."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", CHOICE, "--hypothesis-profile", "many"]
    ran = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--timeout", "3600"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-10_000:] + ran.stderr[-2_000:]
