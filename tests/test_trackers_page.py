"""docs/trackers.md: its names exist. `tests/docs/test_programs.py` runs its program."""

from __future__ import annotations

import re
from pathlib import Path

from consumer_sdk.abc import AckTracker
from consumer_sdk.testing.conformance import adapters, stores, trackers

PAGE = (Path(__file__).parents[1] / "docs" / "trackers.md").read_text(encoding="utf-8")


def test_suites_on_the_page_are_all_there_are() -> None:
    """None is missing, and none is made up."""
    modules = {"adapters": adapters, "stores": stores, "trackers": trackers}
    named = set(re.findall(r"`(\w+\.\w+Suite)`", PAGE))
    there = {f"{name}.{s}" for name, m in modules.items() for s in m.__all__ if "Suite" in s}
    assert named == there


def test_calls_on_the_page_are_a_trackers() -> None:
    """Each step of the table is a method of the contract."""
    steps = re.findall(r"^\| \w* ?\| (.*?) \|", PAGE, re.MULTILINE)
    calls = {call for step in steps for call in re.findall(r"`(\w+)\(?[^`]*`", step)}
    assert len(calls) > 10
    assert all(hasattr(AckTracker, call) for call in calls - {"tracked"})
